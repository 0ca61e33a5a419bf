"""Every row of the findings' table: a healthy capture with one change gives that finding and nothing else, and a run's gate does
about it what the table says. A row without a test here fails, and so does a finding without a row.
"""

from __future__ import annotations

import ast
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from build.errors import Refused, UsageError
from supervisor.doctor import catalogue, preflight
from supervisor.doctor.findings import Action, Level
from supervisor.doctor.links import Links
from supervisor.gang.launch import blueprint
from tests.testing.captures import PAIR, played
from tests.testing.checkout import CHECKOUT
from tests.testing.doctor_changes import CHANGES, HEALTHY
from tests.testing.doctor_pair import Pair


def test_the_healthy_pair_has_no_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert Pair(HEALTHY, tmp_path).doctor("--json", "--strict") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["findings"] == []
    assert [rail["full_size"] for rail in found["rails"]] == [{"worker": "ok"}] * 2


def test_a_folder_is_judged_where_no_setting_names_its_worker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each node is asked for its own ranks' memory: both ranks on the head would not fit."""
    pair = Pair(HEALTHY, tmp_path)
    pair.settings |= {"worker": "", "fabric_peer": ""}
    assert pair.doctor("--json", "--strict") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["findings"], len(found["rails"])) == ([], 2)


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_gives_its_finding_and_nothing_else(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change = CHANGES[name]
    pair = Pair(change, tmp_path)
    code = pair.doctor("--json")
    (found,) = json.loads(capsys.readouterr().out)["findings"]
    _, level, action = change.want
    assert (found["reason"], found["level"], found["run"]) == (change.reason, level.value, action.value)
    assert change.words in f"{found['found']} {found['means']} {found['do']} {found['command']}"
    assert all(found[part] for part in ("found", "means", "do"))
    assert code == (3 if level is Level.ERROR else 0)
    assert pair.doctor("--strict") == {Level.ERROR: 3, Level.WARNING: 1, Level.NOTE: 0}[level]
    assert change.words.split()[0] in capsys.readouterr().out


class Gate:
    """A run's gate over the changed pair: what it said, what it refused with, and the links that it let through."""

    def __init__(self, pair: Pair) -> None:
        self.said: list[tuple[str, str]] = []
        self.nodes = played(pair.folder)
        self.links = Links()
        self.refused, self.code = "", 0
        try:
            self.links = preflight.check(
                pair.configuration, self.nodes, threading.Event(), lambda text, level: self.said.append((level, text))
            )
        except Refused as error:
            self.refused, self.code = str(error), error.exit_code


@pytest.mark.parametrize("name", [name for name in CHANGES if name != "nothing built"])
def test_a_runs_gate_does_what_the_table_says(name: str, tmp_path: Path) -> None:
    change = CHANGES[name]
    pair = Pair(change, tmp_path)
    gate = Gate(pair)
    _, level, action = change.want
    if level is Level.ERROR:
        assert gate.code == 3
        assert change.words.split()[0] in gate.refused
        assert bool(gate.said) == (action is Action.WAIT)
        assert not any(node.ran for node in gate.nodes.values())
        return
    assert gate.refused == ""
    assert [level for level, _ in gate.said] == ["info" if level is Level.NOTE else "warning"]
    assert change.words.split()[0] in gate.said[0][1]
    pair.settings["strict"] = "true"
    assert ("--strict" in Gate(pair).refused) == (level is Level.WARNING)


ADAPTED: dict[str, Callable[[Gate], bool]] = {
    "another MTU, auto": lambda gate: [rail.number for rail in gate.links.rails] == [0],
    "no v2 GID, auto": lambda gate: gate.links.local("worker").rdma_devices == ("rocep1s0f1",),
    "a path for small packets, auto": lambda gate: [rail.number for rail in gate.links.rails] == [0],
    "indexes that the engine cannot take, auto": lambda gate: gate.links.local("worker").gid_index == 3,
    "the second rail down": lambda gate: gate.links.local("head").rdma_devices == ("rocep1s0f1",),
    "a moved index": lambda gate: gate.links.local("worker").gid_index == 3,
    "indexes that differ": lambda gate: gate.links.local("worker").environment()["NCCL_IB_ADDR_RANGE"] == "192.0.0.0/5",
    "no volume yet": lambda gate: [argv[3:5] for argv in gate.nodes["worker"].ran] == [["volume", "create"]],
}


@pytest.mark.parametrize("name", ADAPTED)
def test_a_run_adapts_where_the_table_says_so(name: str, tmp_path: Path) -> None:
    assert ADAPTED[name](Gate(Pair(CHANGES[name], tmp_path)))


def test_without_a_build_a_run_cannot_begin(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="run `doit target=dsv41`"):
        blueprint(Pair(CHANGES["nothing built"], tmp_path).configuration)


def made_in(source: Path) -> set[str]:
    """The reasons of findings that a module makes: first words of calls to error, warning and note, and of tables of reasons."""
    tree = ast.parse(source.read_text())
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args)
    named = (call for call in calls if isinstance(call.func, ast.Name) and call.func.id in {"error", "warning", "note", "level"})
    return {
        call.args[0].value for call in named if isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str)
    }


def test_every_finding_has_a_row_and_every_row_a_test() -> None:
    rows = {reason for table in catalogue.TABLES.values() for row in table for reason in row.reasons}
    made = set().union(*(made_in(path) for path in (CHECKOUT / "supervisor/doctor").glob("*.py")))
    assert len(made) > 20
    assert made <= rows
    assert {change.reason for change in CHANGES.values()} == rows
    eased = {reason for table in catalogue.TABLES.values() for row in table if row.eased for reason in row.reasons}
    assert {change.reason for change in CHANGES.values() if change.eased} == eased


def test_the_page_has_the_tables_as_they_are() -> None:
    page = (CHECKOUT / "docs/doctor.md").read_text()
    assert catalogue.document(page) == page
    for rows in catalogue.TABLES.values():
        assert catalogue.table(rows) in page


def test_the_capture_is_of_a_pair() -> None:
    assert sorted(path.name for path in PAIR.iterdir()) == ["head", "nodes.json", "probed.json", "worker"]
