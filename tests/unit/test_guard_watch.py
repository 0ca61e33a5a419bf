"""Guards that are lost: replaced, given up after vain tries in a row, forgiven where they lasted."""

from __future__ import annotations

import socket
from collections import deque
from pathlib import Path
from typing import cast

import pytest

from build.errors import UsageError
from build.settings import Sources, load
from supervisor.guard import guards
from supervisor.guard import watch as watch_module
from supervisor.guard.client import GuardClient
from supervisor.guard.guards import HostedGuards
from supervisor.guard.host import GuardHost
from supervisor.guard.kept import Kept
from supervisor.guard.spec import GuardSpec, Lease, Limits
from supervisor.guard.watch import CALM_EVERY_S, LASTS_S, LIVELY_S, REST_S, STARTS, GuardWatch
from supervisor.guard.wire import Hello
from supervisor.machine import Event
from supervisor.machine.types import GuardLost
from supervisor.settings import Memory
from tests.testing.waiting import until

SPEC = GuardSpec(
    launch_id="l1",
    rank=1,
    node="worker",
    pid=1,
    start_ticks=1,
    limits=Limits(hard_bytes=1, soft_bytes=2, horizon_s=0.5, period_s=0.1, proc="/proc", orphan_s=600, stop_timeout_s=30),
    supervised=False,
    lease=Lease(),
)


def a_hello(**protected: object) -> Hello:
    given = {"locked": True, "oom_score_adj": -1000, "scheduling": "fifo", **protected}
    return Hello("1", 10, 11, "l1", "watching", None, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("protected", "words"),
    [
        ({}, ()),
        ({"oom_score_adj": 0}, ("be killed by the kernel when memory runs out (its OOM score is 0, not -1000)",)),
        (
            {"locked": False, "scheduling": "normal"},
            (
                "be swapped out (its memory is not locked)",
                "be held up by busy programs (its priority is an ordinary one)",
            ),
        ),
        ({"scheduling": "nice"}, ()),
    ],
)
def test_what_can_happen_to_a_guard_is_said_in_words(protected: dict[str, object], words: tuple[str, ...]) -> None:
    assert a_hello(**protected).refused == words


def test_a_want_of_protection_is_told_once_for_each_node() -> None:
    said: list[str] = []
    watch = GuardWatch({}, 1, b"", post=lambda _: None, say=lambda line, _: said.append(line))
    for node in ("head", "head", "worker"):
        watch._tell_refused(node, a_hello(oom_score_adj=0).refused)
    watch._tell_refused("head", ())
    assert [line.partition(" watch")[0] for line in said] == ["guards on head", "guards on worker"]
    assert "docs/memory.md#the-guards-own-safety" in said[0]


class Host:
    """A node whose guards start well and are gone at once."""

    silent_s = 15.0

    def __init__(self) -> None:
        self.started = 0

    def start(self, _spec: GuardSpec, _secret: bytes) -> None:
        self.started += 1

    def running(self, _launch_id: str, _rank: int) -> bool:
        return False

    def connect(self, _launch_id: str, _rank: int) -> None:
        return None

    def kill(self, _launch_id: str, _rank: int) -> None:
        """Nothing runs."""


def test_a_sample_that_waited_on_a_calm_node_is_never_too_old_to_count() -> None:
    with pytest.raises(UsageError, match="sample_stale_s"):
        load([Memory], Sources(None, {}, {"sample_stale_s": CALM_EVERY_S + REST_S}))


@pytest.mark.parametrize(("apart_s", "lost"), [(1.0, True), (LASTS_S + 1.0, False)])
def test_only_guards_that_are_lost_in_a_row_end_the_gang(apart_s: float, lost: bool) -> None:
    now, told, host = [0.0], list[Event](), Host()
    watch = GuardWatch(
        {"worker": cast("GuardHost", host)}, 1, b"s", post=told.append, say=lambda _text, _level: None, clock=lambda: now[0]
    )
    watch.guard(SPEC)
    for _ in range(2 * STARTS):
        now[0] += apart_s
        watch._keep_up(watch.kept[0])
    assert any(isinstance(event, GuardLost) for event in told) is lost
    assert host.started == (STARTS if lost else 2 * STARTS + 1)


class Logging(Host):
    """A node whose guard writes its log a moment after it told of the end."""

    def __init__(self, *logs: bytes) -> None:
        super().__init__()
        self.logs = list(logs)

    def log(self, _launch_id: str, _rank: int) -> bytes:
        return self.logs.pop(0) if len(self.logs) > 1 else self.logs[0]


@pytest.mark.parametrize(
    ("cause", "logs", "kept"),
    [
        ("hard", (b"", b"", b"kill"), b"kill"),
        ("hard", (b"",), b"a sample\n"),
        (None, (b"", b"not waited for"), b"a sample\n"),
    ],
    ids=["written late", "never written", "did not act"],
)
def test_a_guards_evidence_is_its_log_though_it_is_written_a_moment_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: str | None, logs: tuple[bytes, ...], kept: bytes
) -> None:
    monkeypatch.setattr(guards, "CAUSE_S", 0.3)
    host = {"worker": cast("GuardHost", Logging(*logs))}
    found = HostedGuards(host, tmp_path, post=lambda _: None, say=lambda _text, _level: None)
    watch = found._watches["worker"] = GuardWatch(host, 1, b"s", post=lambda _: None, say=lambda _text, _level: None)
    watch._kept[1] = Kept(SPEC, cause=cause, recent=deque([(0.0, b"a sample")]))
    assert found.evidence(1) == kept


def test_a_new_guard_is_heard_at_once_though_calm_ones_are_read_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "REST_S", 600.0)
    ours, guards_own = socket.socketpair()
    ours.setblocking(False)

    class Listening(Host):
        def connect(self, _launch_id: str, _rank: int) -> GuardClient:  # type: ignore[override]
            return GuardClient(ours)

    host = {"worker": cast("GuardHost", Listening())}
    watch = GuardWatch(host, 1, b"s", post=lambda _: None, say=lambda _text, _level: None)
    watch.start()
    try:
        watch.guard(SPEC)
        guards_own.sendall(b'{"missed":1}\n')
        until("its first line", lambda: watch.kept[0].recent)
        guards_own.sendall(b'{"sample":1,"t_ms":1,"available_bytes":7,"free_bytes":7}\n')
        until("its first sample", lambda: watch.kept[0].last)
    finally:
        watch.stop()
        watch.join()
        guards_own.close()


def test_a_lost_guard_is_replaced_soon_though_its_node_takes_it_for_running_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "REST_S", 600.0)
    pairs = [socket.socketpair() for _ in range(2)]

    still = [True]

    class Lagging(Host):
        def running(self, _launch_id: str, _rank: int) -> bool:
            return bool(still) and still.pop()

        def connect(self, _launch_id: str, _rank: int) -> GuardClient | None:  # type: ignore[override]
            if pairs[self.started - 1][1].fileno() < 0:
                return None
            ours = pairs[self.started - 1][0]
            ours.setblocking(False)
            return GuardClient(ours)

    host = Lagging()
    watch = GuardWatch({"worker": cast("GuardHost", host)}, 1, b"s", post=lambda _: None, say=lambda _text, _level: None)
    watch.start()
    try:
        watch.guard(SPEC)
        pairs[0][1].sendall(b'{"sample":1,"t_ms":1,"available_bytes":7,"free_bytes":7}\n')
        until("its first sample", lambda: watch.kept[0].last)
        pairs[0][1].close()
        until("another guard", lambda: host.started == 2)
        pairs[1][1].sendall(b'{"sample":1,"t_ms":1,"available_bytes":8,"free_bytes":8}\n')
        until("its sample", lambda: (last := watch.kept[0].last) and last.available_bytes == 8)
    finally:
        watch.stop()
        watch.join()


def test_guards_that_tell_each_sample_are_read_more_often() -> None:
    now = [0.0]
    watch = GuardWatch({}, 1, b"", post=lambda _: None, say=lambda _line, _level: None, clock=lambda: now[0])
    for seconds, lines, rest_s in ((3.0, 7, REST_S), (3.0, 30, LIVELY_S), (0.5, 5, LIVELY_S), (0.5, 1, REST_S)):
        now[0] += seconds
        watch._note_pace(lines)
        assert watch._rest_s == rest_s
