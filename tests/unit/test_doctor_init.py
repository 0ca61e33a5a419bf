"""What init writes: the answers, and nothing else of a file changed."""

from __future__ import annotations

import tomllib
from argparse import Namespace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from build.errors import UsageError
from build.settings import Sources
from supervisor.doctor.init import init, merged, write


def test_a_file_that_only_its_owner_may_read_stays_so(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("port = 1\n")
    file.chmod(0o600)
    write(file, {"port": 2})
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("port = 2\n", 0o600)


def test_keys_are_replaced_where_they_stand_and_new_ones_come_before_the_tables() -> None:
    before = '# mine\nworker = "old"\nport = 9000\n\n[engine_env]\nworker = "kept"\n'
    after = merged(before, {"worker": "ops@spark-b", "rails": "auto", "parallel": "4"})
    assert tomllib.loads(after) == {
        "worker": "ops@spark-b",
        "port": 9000,
        "rails": "auto",
        "parallel": 4,
        "engine_env": {"worker": "kept"},
    }
    assert after.startswith("# mine\n")


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.text("ab\"\\ #='", max_size=12)))
def test_any_text_comes_back_as_it_was(answers: dict[str, str]) -> None:
    assert tomllib.loads(merged("", answers)) == answers


def test_questions_are_asked_only_for_what_is_not_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        return ""

    out = tmp_path / "config.toml"
    sources = Sources(out, {"WORKER": "elsewhere"}, {"target": "demo", "state_dir": str(tmp_path)})
    code = init(Namespace(out=None, worker=None, target="demo"), sources, answer)
    assert [question.split()[0] for question in asked] == ["ssh"]
    assert tomllib.loads(out.read_text()) == {"target": "demo", "state_dir": str(tmp_path)}
    shown = capsys.readouterr().out
    assert (code, "nothing forbids a launch" in shown) == (0, True)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--out"):
        write(tmp_path / "nowhere" / "config.toml", {"a": "b"})
