"""Logs of ended launches that cannot be saved at once: kept, tried again, never overwritten by less."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from build.errors import Refused
from build.settings import Sources
from supervisor.configuration import Configuration, configure
from supervisor.gang.logs import Keeping
from supervisor.gang.saving import Saver, Unsaved
from supervisor.guard.guards import NoGuards
from supervisor.runners.protocol import RankHandle, Runner
from tests.unit.test_logs import Shelf, ended, handles


class Daemon(Shelf):
    """A runner whose daemon comes and goes; a removed rank has no log any more."""

    def __init__(self) -> None:
        super().__init__(rank0=b"zero\n", rank1=b"one\n")
        self.log_answers = self.remove_answers = True

    def whole_log(self, handle: RankHandle) -> Iterator[bytes]:
        if not self.log_answers:
            raise Refused("Docker does not answer")
        yield from super().whole_log(handle)

    def remove(self, handle: RankHandle) -> None:
        if not self.remove_answers:
            raise Refused("Docker does not answer")
        self.logs[handle.rank] = b""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "logs"


@pytest.fixture
def one(tmp_path: Path) -> Configuration:
    return configure(Sources(None, {}, {"state_dir": str(tmp_path / "state")}))


def saver(daemon: Daemon, folder: Path) -> Saver:
    return Saver(cast("Runner", daemon), NoGuards(), lambda _one: Keeping(folder, 9, 1 << 20))


def saved(folder: Path, launch: str = "l1") -> list[bytes]:
    return [gzip.decompress(path.read_bytes()) for path in sorted(folder.glob(f"*-{launch}-rank*.log.gz"))]


def test_what_could_not_be_saved_is_saved_the_next_time(folder: Path, one: Configuration) -> None:
    daemon = Daemon()
    kept = saver(daemon, folder)
    kept.add(Unsaved(one, handles(), ended("l1")))
    daemon.log_answers = False
    assert kept.settle() == "the logs of launch l1 could not be saved and stay where they are: Docker does not answer"
    assert saved(folder) == []
    daemon.log_answers = True
    assert kept.settle() == ""
    assert saved(folder) == [b"zero\n", b"one\n"]
    assert set(daemon.logs.values()) == {b""}, "the ranks are removed"
    assert kept.settle() == ""


def test_ranks_that_could_not_be_removed_are_removed_later_and_their_logs_stay_as_saved(folder: Path, one: Configuration) -> None:
    daemon = Daemon()
    kept = saver(daemon, folder)
    kept.add(Unsaved(one, handles(), ended("l1")))
    daemon.remove_answers = False
    assert "could not be saved" in kept.settle()
    daemon.logs = {0: b"", 1: b""}  # one was removed all the same
    daemon.remove_answers = True
    assert kept.settle() == ""
    assert saved(folder) == [b"zero\n", b"one\n"]


def test_launches_are_saved_in_their_order_each_by_itself(folder: Path, one: Configuration) -> None:
    daemon = Daemon()
    kept = saver(daemon, folder)
    daemon.log_answers = False
    for name in ("l1", "l2"):
        kept.add(Unsaved(one, tuple(replace(handle, launch_id=name) for handle in handles()), ended(name)))
        assert "launch l1" in kept.settle()
    daemon.log_answers = True
    assert kept.settle() == ""
    assert saved(folder, "l1") == [b"zero\n", b"one\n"]
    assert len(saved(folder, "l2")) == 2
