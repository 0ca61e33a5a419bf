"""The ends of containers as a daemon tells of them: at once, once for all who wait, and no faster than it can be asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest

from build.image.docker_api import Answer, Api, DaemonUnreachable
from supervisor.runners.docker_ends import AGAIN_S, DockerEnds

PATIENCE_S = 30.0
SOON_S = AGAIN_S / 4


class Daemon:
    """Answers ``wait`` for each container in ``ended``; others it leaves without an answer until one ends."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.ended: dict[str, int] = {}
        self.changed = threading.Condition()
        self.over = False

    def post(self, path: str, _params: Mapping[str, str], timeout_s: float) -> Answer:
        key = path.split("/")[2]
        with self.changed:
            self.asked.append(key)
            if not self.changed.wait_for(lambda: key in self.ended or self.over, timeout_s) or self.over:
                raise DaemonUnreachable("no answer")
            return Answer(self.ended[key], "{}")

    def end(self, key: str, status: int = 200) -> None:
        with self.changed:
            self.ended[key] = status
            self.changed.notify_all()


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    daemon = Daemon()
    yield daemon
    with daemon.changed:
        daemon.over = True
        daemon.changed.notify_all()


@pytest.fixture
def ends(daemon: Daemon) -> Iterator[DockerEnds]:
    ends = DockerEnds(cast("Api", cast("Any", daemon)))
    yield ends
    ends.close()


@pytest.mark.parametrize("status", [200, 404], ids=["ended", "gone"])
def test_one_end_wakes_all_who_wait_for_it_and_costs_one_request(daemon: Daemon, ends: DockerEnds, status: int) -> None:
    waiting = [threading.Thread(target=ends.wait, args=(["a", "b"], PATIENCE_S), daemon=True) for _ in range(3)]
    for one in waiting:
        one.start()
    daemon.end("a", status)
    for one in waiting:
        one.join(PATIENCE_S)
    assert not any(one.is_alive() for one in waiting)
    assert set(ends.told()) == {"a"}
    assert daemon.asked.count("a") == 1


def test_who_waits_for_one_container_is_not_woken_by_another(daemon: Daemon, ends: DockerEnds) -> None:
    ends.wait(["a", "b"], 0.0)
    daemon.end("b")
    ends.wait(["b"], PATIENCE_S)
    ends.wait(["a"], SOON_S)
    assert set(ends.told()) == {"b"}


def test_a_daemon_that_tells_of_an_end_in_vain_is_asked_again_after_a_pause_alone(daemon: Daemon, ends: DockerEnds) -> None:
    daemon.end("a")
    ends.wait(["a"], PATIENCE_S)
    ends.again("a")
    ends.wait(["a"], SOON_S)
    assert (daemon.asked, list(ends.told())) == (["a"], [])
    ends.wait(["a"], PATIENCE_S)
    assert (daemon.asked, list(ends.told())) == (["a", "a"], ["a"])


@pytest.mark.parametrize("status", [409, 500], ids=str)
def test_a_daemon_in_trouble_tells_of_no_end_and_is_not_asked_without_a_pause(
    daemon: Daemon, ends: DockerEnds, status: int
) -> None:
    daemon.end("a", status)
    ends.wait(["a"], SOON_S)
    assert (daemon.asked, list(ends.told())) == (["a"], [])
    daemon.end("a")
    ends.wait(["a"], PATIENCE_S)
    assert (daemon.asked, list(ends.told())) == (["a", "a"], ["a"])


def test_what_is_forgotten_is_told_of_no_more(daemon: Daemon, ends: DockerEnds) -> None:
    daemon.end("a")
    ends.wait(["a"], PATIENCE_S)
    ends.forget("a")
    ends.again("a")  # it may have been forgotten in the meantime
    assert not ends.told()
    assert daemon.asked == ["a"]


def test_a_closed_watch_asks_the_daemon_no_more(daemon: Daemon, ends: DockerEnds) -> None:
    daemon.end("a")
    ends.wait(["a"], PATIENCE_S)
    ends.again("a")
    ends.close()
    for thread in [one for one in threading.enumerate() if one.name == "container end"]:
        thread.join(PATIENCE_S)
    assert daemon.asked == ["a"]
