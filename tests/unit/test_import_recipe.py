"""``supervisor import-recipe``: the command from a recipe's folder to a config.toml that this project reads."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from build.settings import Places, Sources, names
from build.units import GIB
from supervisor import cli, commands
from supervisor.configuration import configure
from supervisor.recipe.importer import import_recipe, toml
from supervisor.recipe.values import RECIPE_RANK_BYTES, Machine, rank_needs
from supervisor.settings import GROUPS
from tests.testing.cases import case
from tests.testing.checkout import CHECKOUT

KNOWN = names(Places, *GROUPS)
UNSAFE = case("settings-unsafe-values")
QUOTING = case("settings-local-sh-quoting")
SPARK_KIB = int(121.69 * (1 << 20))


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line reads this process's environment: what it holds for us, such as the testbed's place, is no setting."""
    for name in [name for name in os.environ if name.startswith("TWINFOLD_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    folder = tmp_path / "recipe"
    (folder / "scripts").mkdir(parents=True)
    return folder


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A proc tree of the machine that the case speaks of."""
    folder = tmp_path / "proc"
    folder.mkdir()
    available_kib = int(115.7 * (1 << 20))
    meminfo = {"MemTotal": SPARK_KIB, "MemFree": available_kib, "MemAvailable": available_kib}
    (folder / "meminfo").write_text("".join(f"{name}: {kib} kB\n" for name, kib in meminfo.items()))
    return folder


def run(recipe: Path, proc: Path, *flags: str) -> int:
    args = cli._parser().parse_args(["import-recipe", str(recipe), *flags])
    return commands.import_recipe(args, sources(recipe, proc))


def sources(recipe: Path, proc: Path) -> Sources:
    return Sources(recipe.parent / "config.toml", {"TWINFOLD_PROC_ROOT": str(proc), "HOME": "/home/ops"})


def test_what_is_written_is_what_the_supervisor_then_reads(recipe: Path, proc: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (recipe / ".env").write_text(UNSAFE.text("input.env").replace("MAX_TOKENS=32k", "MAX_TOKENS=16384"))
    (recipe / "scripts" / "local.sh").write_text("PARALLEL=2 # fewer\nexport PORT=9000\n")
    assert run(recipe, proc) == 0
    one = configure(sources(recipe, proc))
    assert (one.serve.parallel, one.serve.port, one.serve.max_tokens) == (2, 9000, 16384)
    assert (one.serve.host, one.serve.allow_unauthenticated, one.serve.api_key_file) == ("0.0.0.0", True, None)
    assert (one.memory.launch_gate_gib, one.memory.min_avail_gib) == (108.0, 4.0)
    assert one.engine_env == (("TF_DS_IDX_SPLIT", "1"),)
    said = capsys.readouterr().out
    assert "ok   scripts/local.sh:1: PARALLEL=2 -> parallel = 2\n" in said
    assert "was a gate before launch" in said
    assert "PARALEL=8 (unknown; PARALLEL is meant)" in said
    assert said.endswith(f"written: {recipe.parent / 'config.toml'}\n")


def test_a_value_that_no_setting_takes_stops_the_import_before_anything_is_written(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (recipe / ".env").write_text(UNSAFE.text("input.env"))
    assert cli.main(["import-recipe", str(recipe), "--dry-run"]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("error: nothing was written, since some values cannot be taken: .env:")
    assert "MAX_TOKENS = 32k: wanted a whole number" in said.err


def test_a_dry_run_shows_the_file_and_writes_none(recipe: Path, proc: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (recipe / ".env").write_text("PARALLEL=2\nTF_DS_ENGRAM_LANES=2\n")
    assert run(recipe, proc, "--dry-run") == 0
    shown = capsys.readouterr().out.partition("# Imported")[2]
    assert tomllib.loads("# Imported" + shown) == {"parallel": 2, "engine_env": {"TF_DS_ENGRAM_LANES": "2"}}
    assert not (recipe.parent / "config.toml").exists()


def test_a_configuration_that_is_there_is_replaced_only_when_told(
    recipe: Path, proc: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (recipe / ".env").write_text("PARALLEL=2\n")
    config = recipe.parent / "config.toml"
    config.write_text("parallel = 3\n")
    with pytest.raises(Exception, match=r"config\.toml is there already: --force replaces it"):
        run(recipe, proc)
    assert config.read_text() == "parallel = 3\n"
    assert run(recipe, proc, "--force") == 0
    assert tomllib.loads(config.read_text()) == {"parallel": 2}


def test_lines_that_set_nothing_are_told_with_their_place(recipe: Path, proc: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (recipe / "scripts" / "local.sh").write_text(QUOTING.text("input-local.sh"))
    (recipe / ".env").write_text("nonsense\nHF_TOKEN=hf_secret\n")
    found = import_recipe(recipe, {"HOME": QUOTING.given["HOME"]}, Machine(), KNOWN)
    assert found.found.values.items() >= {key: str(value) for key, value in QUOTING.expect["values"].items()}.items()
    report = "\n".join(found.report())
    assert "note .env:1: no assignment" in report
    assert "hf_secret" not in report + found.config()
    for want in QUOTING.expect["reported"]:
        assert f"scripts/local.sh:{want['line']}: {want['key']}" in report


def test_a_folder_without_a_recipe_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["import-recipe", str(tmp_path)]) == 2
    assert f"{tmp_path} has neither scripts/local.sh nor .env" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["plain", 'a "b" \\c', "é\x7f\t", 3, 1.5, True])
def test_scalars_come_back_out_of_toml(value: object) -> None:
    assert tomllib.loads(f"x = {toml(value)}") == {"x": value}


# Every variable that the recipe's settings list has, with a value of a real installation: what each becomes here.
IMPORTED = {
    "WORKER": "spark-b", "FABRIC_PEER": "192.0.2.2", "MASTER_ADDR": "192.0.2.1", "MASTER_PORT": "29500", "SERVED_NAME": "model",
    "HOST": "0.0.0.0", "PORT": "8888", "CONTEXT": "524288", "PARALLEL": "4", "MAX_TOKENS": "32768", "THINKING": "1",
    "HF_CACHE": "/data/hub", "HF_HUB_OFFLINE": "1", "NFS_VOLUME": "twinfold-hf", "HEAD_NFS_SERVER": "192.0.2.1",
    "NFS_PATH": "/data/hub", "PREPARE": "auto", "ABLIT": "0", "MIN_AVAIL_GIB": "4", "LOG_DIR": "/var/log/gang", "LOG_KEEP": "10",
    "WORKER_HF_CACHE": "/data/hub",
    "CONTAINER_NAME": "gang", "WAIT_TIMEOUT": "1800", "STOP_TIMEOUT": "30", "STATE_DIR": "/data/twinfold", "NCCL_RAILS": "2",
}  # fmt: skip
EXPLAINED = {
    "MODEL_ID": "org/model", "MODEL_REVISION": "main", "HF_TOKEN": "hf_secret", "DRY_RUN": "1",
    "ABLIT_REVISION": "main", "TF_REPO": "https://example.org/e", "TF_REF": "main", "ZIG_VERSION": "0.17.0",
    "ZIG_SHA256": "0" * 64, "BASE_IMAGE": "ubuntu:24.04",
}  # fmt: skip


@pytest.mark.parametrize(("key", "value"), [*IMPORTED.items(), *EXPLAINED.items()])
def test_every_variable_of_the_recipe_becomes_a_setting_that_loads_or_says_why_not(
    key: str, value: str, recipe: Path, proc: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (recipe / ".env").write_text(f"{key}={value}\n")
    assert run(recipe, proc) == 0
    line = capsys.readouterr().out.splitlines()[0]
    written = tomllib.loads((recipe.parent / "config.toml").read_text())
    assert bool(written) == (key in IMPORTED), line
    assert "unknown" not in line
    assert "there is no setting" not in line
    assert " -> " in line if written else line.rpartition(" (")[2].rstrip(")")
    configure(sources(recipe, proc))  # every key is one that we read, with a value that it takes


def test_offline_means_that_the_hub_is_never_asked(tmp_path: Path) -> None:
    from build.errors import BuildFailed
    from build.graph.project import open_project

    for environ in ({"HF_HUB_OFFLINE": "1"}, {"TWINFOLD_HF_HUB_OFFLINE": "true"}):
        project = open_project(CHECKOUT, environ | {"TWINFOLD_STATE_DIR": str(tmp_path / "state")}, {}, frozenset)
        hub = project.tools().hub.connect()
        with pytest.raises(BuildFailed, match="model-1 at 111 is not in the cache, and hf_hub_offline is set"):
            hub.locate("org/model", "111", "model-1")
        project.close()


def test_only_a_machine_that_could_hold_a_rank_served_the_recipe() -> None:
    assert rank_needs(122 * GIB) == RECIPE_RANK_BYTES
    assert rank_needs(24 * GIB) is None
