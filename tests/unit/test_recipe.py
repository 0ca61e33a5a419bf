from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from build.settings import Places, names
from build.units import GIB
from supervisor.recipe.file import read_env, read_shell
from supervisor.recipe.values import Judgement, Machine, judge
from supervisor.settings import GROUPS, Memory
from tests.testing.cases import case

QUOTING = case("settings-local-sh-quoting")
UNSAFE = case("settings-unsafe-values")
KNOWN = names(Places, *GROUPS)
HEAD = Machine(
    int(UNSAFE.given["head_total_gib"] * GIB),
    int(UNSAFE.given["head_available_idle_gib"] * GIB),
    int(UNSAFE.given["rank_needs_gib"] * GIB),
)


def quoting():
    return read_shell(QUOTING.text("input-local.sh"), {"HOME": QUOTING.given["HOME"]})


def judged(key: str, value: str, machine: Machine = HEAD) -> Judgement:
    return judge({key: value}, machine, KNOWN)[0]


def test_every_value_is_exactly_what_bash_would_set() -> None:
    values = quoting().values
    assert {key: values.get(key) for key in QUOTING.expect["values"]} == {k: str(v) for k, v in QUOTING.expect["values"].items()}
    assert not set(QUOTING.expect["not_set"]) & values.keys()


def test_what_needs_a_look_is_reported_with_its_line() -> None:
    found = quoting()
    notes = [(note.line, note.key, note.why) for note in found.notes]
    lines = {one.key: one.line for one in found.settings}
    notes += [(lines[j.key], j.key, j.why) for j in judge(found.values, Machine(), KNOWN) if j.why.startswith("unknown")]
    assert sorted(notes) == [(want["line"], want["key"], want["why"]) for want in QUOTING.expect["reported"]]


def test_nothing_of_a_file_is_run(tmp_path: Path) -> None:
    trap = tmp_path / "ran"
    text = f'A=$(touch {trap})\nB=`touch {trap}`\ntouch {trap}\nC="x$(touch {trap} $(echo y))"\n: ${{D:=$(touch {trap})}}\nE=last'
    found = read_shell(text, {})
    assert not trap.exists()
    assert found.values == {"E": "last"}
    assert [note.line for note in found.notes] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "script",
    [
        "A=1",
        "A='a b' B=\"c d\"",
        "A=a\\ b\\\nc",
        'A=x; B=$A/y; C="${B}z"',
        "export A=1 B",
        "A=${NONE:-dflt}; B=${A:-other}",
        ": ${A:=first}; : ${A:=second}",
        "A=a#b # c",
        "A='it''s'\"\\\"quoted\\\"\"",
        "A=\nB=1",
        "HOME=/x\nA=~/y",
        'A="multi\nline"',
        "A=1\r\nB=2\r\n".replace("\r\n", "\n"),
        "A='$HOME' B=\"\\$HOME\"",
        "A=1 &&\nB=2",
    ],
)
def test_the_reader_agrees_with_bash(script: str) -> None:
    found = read_shell(script, {"HOME": "/home/ops"}).values
    show = "; ".join(f'[ -z "${{{key}+x}}" ] || printf "%s\\0" "{key}=${{{key}}}"' for key in "ABC")
    run = subprocess.run(
        ["bash", "-c", f"{script}\n{show}"], env={"HOME": "/home/ops"}, capture_output=True, text=True, check=False
    )
    bash = dict(pair.split("=", 1) for pair in run.stdout.split("\0") if pair)
    assert {key: value for key, value in found.items() if key in "ABC"} == bash


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("A=$UNKNOWN", "not known"),
        ("A=${B%/*}", "form that an import does not read"),
        ("A='open", "without an end"),
        ('A="open', "without an end"),
        ("if true; then A=1; fi", "never run"),
        ("A=1 make run", "never run"),
    ],
)
def test_what_cannot_be_known_leaves_its_key_unset(line: str, why: str) -> None:
    found = read_shell(line, {})
    assert "A" not in found.values
    assert any(why in note.why for note in found.notes)


def test_an_env_file_is_read_literally() -> None:
    found = read_env("\ufeffA=1\r\n# note\nexport B=\"two words\"\nC=$(x)\n\nno assignment\nD=\nE='q'")
    assert found.values == {"A": "1", "B": "two words", "C": "$(x)", "D": "", "E": "q"}
    assert [(note.line, note.key) for note in found.notes] == [(6, "")]


@pytest.mark.parametrize("want", UNSAFE.expect["setting"], ids=lambda want: want["key"])
def test_values_that_end_badly_are_judged(want: dict[str, str]) -> None:
    values = read_env(UNSAFE.text("input.env")).values
    found = next(j for j in judge(values, HEAD, KNOWN) if j.key == want["key"])
    assert values[want["key"]] == want["value"]
    assert found.verdict == want["verdict"]
    if want["verdict"] == "warn":
        assert found.why == want["why"]
    if want.get("effect") == "none" or want["verdict"] == "fail":
        assert found.settings == found.engine_env == ()


def test_what_they_are_imported_as() -> None:
    assert judged("MIN_AVAIL_GIB", "108").settings == (("launch_gate_gib", 108.0),)
    assert judged("MIN_AVAIL_GIB", "6").settings == (("min_avail_gib", 6.0),)
    assert Memory(launch_gate_gib=108.0).floor_bytes == Memory().floor_bytes
    assert judged("NCCL_IB_GID_INDEX", "").engine_env == ()
    assert judged("TF_DS_IDX_SPLIT", "1").engine_env == (("TF_DS_IDX_SPLIT", "1"),)
    assert judged("HF_HUB_OFFLINE", "true").value == "1"
    assert judged("HF_HUB_OFFLINE", "true").settings == (("hf_hub_offline", True),)
    assert judged("NCCL_RAILS", "2").settings == (("rails", 2),)
    assert judged("HEAD_NFS_SERVER", "").settings == (("storage", "local"),)
    assert judged("HOST", "0.0.0.0").settings == (("host", "0.0.0.0"), ("allow_unauthenticated", True))


def test_the_same_values_are_fine_where_they_fit() -> None:
    roomy = Machine(HEAD.total_bytes, HEAD.total_bytes, HEAD.rank_needs_bytes, has_api_key=True)
    for key, value in (("CONTEXT", "1048576"), ("HOST", "0.0.0.0"), ("WAIT_TIMEOUT", "1800"), ("MIN_AVAIL_GIB", "6")):
        assert judged(key, value, roomy).verdict == "ok"
    assert judged("CONTEXT", "524288").verdict == "ok"
    assert judged("CONTEXT", "1048576", Machine()).verdict == "ok"


def test_secrets_and_pins_are_never_taken() -> None:
    secret = judged("HF_TOKEN", "hf_abc")
    assert "hf_abc" not in str(secret)
    assert (secret.verdict, secret.settings) == ("warn", ())
    assert "doit lock" in judged("TF_REF", "main").why


def test_a_key_that_config_toml_does_not_have_is_never_proposed() -> None:
    found = judge({"NFS_VOLUME": "models", "PORT": "1"}, HEAD, names(Places, *GROUPS) - {"nfs_volume"})
    assert [j.settings for j in found] == [(), (("port", 1),)]
    assert "no setting nfs_volume" in found[0].why


@given(st.text(alphabet="AB=\"'$(){}`\\ \n;#:~x", max_size=60))
def test_any_text_is_read_without_an_error(text: str) -> None:
    for found in (read_shell(text, {"HOME": "/h"}), read_env(text)):
        judge(found.values, HEAD, KNOWN)
