from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from build.errors import UsageError
from build.settings import AMBIENT, LOCK_NAMES, Places, Sources, ambient_seen, default_state_dir, load, names
from supervisor.settings import GROUPS, Logs, Memory, Metrics, Probes, Restarts, Serve
from tests.testing.cases import case

UNSAFE = case("settings-unsafe-values")


def loaded(
    group: type, *, toml: str | None = None, environ: dict[str, str] | None = None, tmp: Path | None = None, **flags: object
):
    file = None
    if toml is not None:
        assert tmp is not None
        file = tmp / "config.toml"
        file.write_text(toml, encoding="utf-8")
    return load(GROUPS, Sources(file, environ or {}, flags), lambda: names(Places))[group]


def test_defaults_are_the_recipes_where_it_has_them() -> None:
    serve, memory, logs, metrics = Serve(), Memory(), Logs(), Metrics()
    assert (serve.port, serve.parallel, serve.max_tokens, serve.master_port) == (8888, 4, 32768, 29620)
    assert (serve.wait_timeout, serve.stop_timeout, serve.orphan_s) == (1800, 30, 600)
    assert (serve.temperature, serve.top_p, serve.top_k, serve.host) == (1.0, 0.95, 20, "127.0.0.1")
    assert (memory.min_avail_gib, logs.log_keep, metrics.metrics_port, metrics.metrics_host) == (4.0, 10, 9888, "127.0.0.1")


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    toml = "parallel = 1\nmax_tokens = 1\ncontext = 2048\n"
    got = loaded(
        Serve, toml=toml, tmp=tmp_path, environ={"PARALLEL": "2", "TWINFOLD_MAX_TOKENS": "2", "MAX_TOKENS": "9"}, parallel=3
    )
    assert (got.value.parallel, got.value.max_tokens, got.value.context) == (3, 2, 2048)
    assert got.origins["parallel"].where == "command line"
    assert got.origins["max_tokens"].where == "environment TWINFOLD_MAX_TOKENS"
    assert got.origins["context"].where == f"{tmp_path}/config.toml, line 3"
    assert got.origins["top_k"].kind == "default"


@pytest.mark.parametrize("name", sorted(AMBIENT - {"HF_HOME"}))
def test_names_that_other_software_sets_are_ignored_bare_and_reported(name: str) -> None:
    value = {"HOST": "192.0.2.9", "PORT": "1", "MASTER_ADDR": "192.0.2.9", "MASTER_PORT": "1024", "LOG_DIR": "/x"}[name]
    group = Logs if name == "LOG_DIR" else Serve
    assert getattr(loaded(group, environ={name: value}).value, name.lower()) == getattr(group(), name.lower())
    assert ambient_seen({name: value}) == (name,)
    assert str(getattr(loaded(group, environ={"TWINFOLD_" + name: value}).value, name.lower())) == value


@pytest.mark.parametrize("name", ["TEMPERATURE", "DRAFTS", "RUNNER", "METRICS_PORT", "PROC_ROOT", "ENGINE_ENV"])
def test_bare_names_that_the_recipe_never_had_do_not_count(name: str) -> None:
    for group in GROUPS:
        assert loaded(group, environ={name: "0.5"}).value == group()


@pytest.mark.parametrize("name", sorted(LOCK_NAMES))
def test_names_of_the_lock_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}.*doit lock"):
        loaded(Serve, environ={name: "x"})


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("context", "1000", '"auto" or a whole number from 1024 to 1048576'),
        ("context", "32k", '"auto" or a whole number'),
        ("max_tokens", "32k", "a whole number from 1 to 1048576"),
        ("parallel", "0", "a whole number from 1 to 64"),
        ("parallel", 2.0, "a whole number"),
        ("parallel", True, "a whole number"),
        ("port", "70000", "a whole number from 1 to 65535"),
        ("host", "spark-a", "an address"),
        ("master_addr", "spark-a", "IPv4"),
        ("master_addr", "2001:db8::1", "IPv4"),
        ("temperature", "nan", "a number from 0 to 2"),
        ("min_avail_gib", "-1", "a number from 0 to 1024"),
        ("min_avail_gib", "inf", "a number from 0 to 1024"),
        ("reasoning_effort", "hard", "one of none"),
        ("container_name", "a b", "letters"),
        ("container_name", "-x", "letters"),
        ("runner", "podman", "one of process, docker"),
        ("sample_period_s", "1", "0.02 to 0.5"),
        ("thinking", "maybe", "true or false"),
        ("log_keep", "0", "a whole number from 1"),
        ("engine_env", "x", "a table"),
    ],
)
def test_nonsense_is_refused_with_what_was_wanted(key: str, value: object, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        loaded(Serve, **{key: value})
    assert key in str(caught.value)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_misspelt_key_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown setting paralel \(.*config.toml, line 2\): did you mean parallel\?"):
        loaded(Serve, toml="port = 1\nparalel = 8\n", tmp=tmp_path)
    with pytest.raises(UsageError, match=r"TWINFOLD_PARALEL.*did you mean parallel"):
        loaded(Serve, environ={"TWINFOLD_PARALEL": "8"})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"port = \n", "not valid TOML"),
        (b"port = 1\nport = 2\n", "not valid TOML"),
        (b"port = " + b"9" * 5000, "not valid TOML"),
        (b"port = " + b"[" * 5000 + b"]" * 5000, "not valid TOML"),
        (b"\xff\xfe", "not UTF-8 text"),
        (b'"a\\nb" = 1', "unknown setting"),
        (b'"" = 1', 'unknown setting ""'),
        (b"min_avail_gib = " + b"9" * 400, "wanted a number from 0 to 1024"),
        (b"port = " + b"9" * 4000, "wanted a whole number"),
        (b"engine_env = 5", "wanted a table"),
    ],
)
def test_a_broken_file_is_one_clear_line(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=says) as caught:
        load(GROUPS, Sources(file), lambda: names(Places))
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to(path)], ids=["pipe", "folder", "loop"])
def test_what_is_no_file_of_settings_is_refused_at_once(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "config.toml")
    with pytest.raises(UsageError, match=r"config.toml (is no file of settings|cannot be read)"):
        load(GROUPS, Sources(tmp_path / "config.toml"), lambda: names(Places))


@pytest.mark.parametrize("target", ["../../etc/passwd", "/etc", "", "a b", "x" * 3000, "\udcff", "a\nb"])
def test_a_target_is_a_plain_name(target: str) -> None:
    with pytest.raises(UsageError, match="target = "):
        load([Places], Sources(None, {}, {"target": target}), lambda: names(*GROUPS))


def test_a_home_that_is_not_known_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="home folder that is known here"):
        load([Places], Sources(None, {}, {"state_dir": "~nobody-of-that-name/x"}), lambda: names(*GROUPS))

    def nobody(_self: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", nobody)
    with pytest.raises(UsageError, match="set HOME or TWINFOLD_STATE_DIR"):
        default_state_dir({})


def test_a_missing_file_and_one_with_a_byte_order_mark_are_fine(tmp_path: Path) -> None:
    assert load([Serve], Sources(tmp_path / "none.toml"), lambda: names(*GROUPS))[Serve].value == Serve()
    (tmp_path / "config.toml").write_bytes(b"\xef\xbb\xbfport = 9\r\n")
    assert load([Serve], Sources(tmp_path / "config.toml"), lambda: names(*GROUPS))[Serve].value.port == 9


def test_engine_variables_are_a_table_of_the_file_only(tmp_path: Path) -> None:
    toml = "[engine_env]\nTF_DS_GRAPHS = 1\nTF_DS_HC_SIDE = true\nNCCL_DEBUG = 'WARN'\n"
    got = loaded(Serve, toml=toml, tmp=tmp_path)
    assert got.value.engine_env == (("NCCL_DEBUG", "WARN"), ("TF_DS_GRAPHS", "1"), ("TF_DS_HC_SIDE", "1"))
    assert got.origins["engine_env"].where.endswith("line 1")


@pytest.mark.parametrize("want", UNSAFE.expect["setting"], ids=lambda want: want["key"])
def test_values_from_the_field_load_or_are_refused(want: dict[str, str]) -> None:
    group = next((g for g in GROUPS if want["key"].lower() in names(g)), Serve)
    environ = {want["key"]: want["value"]}
    if want["verdict"] == "fail":
        with pytest.raises(UsageError, match=want["why"].removeprefix("no ")):
            loaded(group, environ=environ)
    elif want.get("effect") == "none" or want["key"] in AMBIENT:
        assert loaded(group, environ=environ).value == group()
    else:
        loaded(group, environ=environ)


def test_no_state_folder_in_the_checkout(tmp_path: Path) -> None:
    assert default_state_dir({"XDG_DATA_HOME": "/data"}) == Path("/data/twinfold")
    assert default_state_dir({"XDG_DATA_HOME": "relative"}) == Path.home() / ".local/share/twinfold"
    assert Logs().folder(tmp_path) == tmp_path / "logs"
    assert Logs(log_dir=Path("/logs")).folder(tmp_path) == Path("/logs")


def test_no_key_stands_in_two_groups_and_every_one_has_help() -> None:
    keys = [item.name for group in (Places, *GROUPS) for item in dataclasses.fields(group)]
    assert len(keys) == len(set(keys))
    assert all(item.metadata["help"] for group in GROUPS for item in dataclasses.fields(group))


@pytest.mark.parametrize("group", GROUPS)
def test_every_default_is_in_its_own_range(group: type) -> None:
    for item in dataclasses.fields(group):
        default = item.default
        if isinstance(default, tuple):
            default = dict(default)
        raw = "" if default is None else str(default) if isinstance(default, Path) else default
        item.metadata["parser"].parse(raw)


keys = st.sampled_from(sorted(names(*GROUPS)))
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
values = scalars | st.lists(scalars, max_size=2) | st.dictionaries(st.text(max_size=3), scalars, max_size=2)


@given(keys, values)
def test_any_value_is_taken_or_refused_in_one_line(key: str, value: object) -> None:
    said = None
    try:
        load(GROUPS, Sources(None, {}, {key: value}), lambda: names(Places))
    except UsageError as error:
        said = str(error)
    assert said is None or (key in said and len(said.splitlines()) == 1)


def test_probe_and_restart_defaults_hang_together() -> None:
    probes, restarts, memory = Probes(), Restarts(), Memory()
    assert probes.stall_s < 15  # a hang of decoding is to be found within 15 s
    assert restarts.restart_pause_s <= 0.5  # ranks that died are back within 5 s
    assert restarts.restart_pause_s <= restarts.restart_pause_max_s < restarts.restart_reset_s
    assert memory.sample_period_s * 5 <= memory.sample_stale_s
