"""Ways in which people name a worker."""

from __future__ import annotations

import getpass
import shlex
from collections.abc import Mapping
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from build.nodes import named as forms
from build.nodes import node as nodes
from build.nodes import workers
from build.nodes.named import NOTHING, Target, Worker
from build.nodes.ssh_link import Destination
from tests.testing.cases import case

CASE = case("settings-worker-forms")
LINK = (IPv4Network(CASE.given["link_network"]),)
LINES = {int(line.split(" ", 1)[0]): line.split(" ", 1)[1] for line in CASE.text("input-forms.txt").splitlines()}


def nothing_resolves(_name: str) -> None:
    return None


def named(line: str, config: Path) -> Worker:
    """What is made of one setup, with the real ssh's own reading of it."""
    given = dict(word.split("=", 1) for word in shlex.split(line))
    if problem := workers.unsafe(given["WORKER"]):
        return Worker(NOTHING, "", problem)
    printed = nodes.probe_target(Destination("worker", given["WORKER"], config=config))
    target = forms.read_target(printed, getpass.getuser())
    return forms.judge(target, given.get("FABRIC_PEER", ""), LINK, nothing_resolves)


@pytest.mark.parametrize("form", CASE.expect["form"], ids=lambda form: f"line{form['line']}")
def test_each_form_is_read_as_ssh_reads_it(form: Mapping[str, Any]) -> None:
    worker = named(LINES[form["line"]], CASE.folder / "input-ssh_config")
    assert worker.target == Target(form["ssh_host"], form["ssh_user"], form["ssh_port"])
    assert worker.fabric == form["fabric"]
    assert (worker.problem == "") == (form["verdict"] == "ok")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (3, "FABRIC_PEER"),
        (5, "spark-b-link.example.com"),
        (6, "FABRIC_PEER"),
        (7, "brackets"),
        (8, ":2222"),
        (10, "dash"),
        (11, "/24"),
    ],
)
def test_a_refusal_names_its_reason(line: int, words: str) -> None:
    assert words in named(LINES[line], CASE.folder / "input-ssh_config").problem


def test_a_name_that_resolves_onto_the_link_is_the_link() -> None:
    worker = forms.judge(Target("spark-b.example", "", 22), "", LINK, {"spark-b.example": "192.0.2.7"}.get)
    assert worker == Worker(Target("spark-b.example", "", 22), "192.0.2.7", "")


def test_a_name_that_resolves_off_the_link_is_asked_about() -> None:
    worker = forms.judge(Target("spark-b.example", "", 22), "", LINK, {"spark-b.example": "198.51.100.7"}.get)
    assert worker.fabric == ""
    assert "198.51.100.7" in worker.problem
