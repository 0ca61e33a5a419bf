"""Hears every guard of a launch, tells them that the supervisor lives, and starts one again that is lost.

A gang does not run unguarded: a guard that died or hangs is replaced at once, and after a few vain tries the gang is stopped in
order. Until the new one watches, the supervisor's own memory watch acts on the head, slower, as it does before a launch.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from build.errors import TwinfoldError
from supervisor.gang.watchers import Watcher
from supervisor.guard.client import GuardClient, StreamEnded
from supervisor.guard.host import GuardHost, RankGone
from supervisor.guard.kept import Kept
from supervisor.guard.spec import GuardSpec
from supervisor.guard.wire import Hello, Line
from supervisor.machine import Event
from supervisor.machine import types as machine
from supervisor.status.view import NodeGuard

ALIVE_EVERY_S = 1.0
HEAR_S = 0.1
LIVELY_S = 0.5  # instead of REST_S while guards tell each sample: what they keep for a slow reader is soon full
CALM_LEAST_S = 0.45  # between samples of a calm node, at least: the node tool's
CALM_EVERY_S = 0.55  # and at most, at the usual period and with its jitter
REST_S = 3.0  # so long lines of a calm node wait to be read together, and the memory watch for them; a sample may be 4 s old
SHOW_EVERY_S = 1.5
STARTS = 4  # of one rank's guard, where none of them lasts
LASTS_S = 600.0  # a guard that has watched for so long was no vain try: a launch may serve for months
RETRY_S = 0.5


class Bell:
    """Ends a wait from any thread. Once rung it stays so until a wait has heard it."""

    def __init__(self) -> None:
        self._fd = -1
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def ring(self) -> None:
        """End the wait, or the next one."""
        os.eventfd_write(self._fd, 1)

    def wait(self, timeout_s: float, streams: Iterable[GuardClient]) -> None:
        """Until it rings, or one of the streams has ended; what they tell does not count."""
        polled = select.poll()
        polled.register(self._fd, select.POLLIN)
        for one in streams:
            polled.register(one, select.POLLRDHUP)
        if any(fd == self._fd for fd, _ in polled.poll(timeout_s * 1000)):
            os.eventfd_read(self._fd)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


class GuardWatch(Watcher):
    """One launch's guards. ``hosts`` are the nodes' by name; ``post`` takes what the machine should know."""

    def __init__(
        self,
        hosts: Mapping[str, GuardHost],
        launch: int,
        secret: bytes,
        *,
        post: Callable[[Event], None],
        say: Callable[[str, str], None],
        show: Callable[[NodeGuard], None] = lambda _guard: None,
        heard: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(f"guards-{launch}")
        self._hosts, self._launch, self._secret = hosts, launch, secret
        self._post, self._say, self._show, self._clock = post, say, show, clock
        self._heard = heard
        self._read_s = clock()
        self._lively = False
        self._kept: dict[int, Kept] = {}
        self._told: set[tuple[str, tuple[str, ...]]] = set()
        self._lock = threading.Lock()
        self._awaited = 0  # askers of a cause: until they have it, lines are read as they come
        self._bell = Bell()
        self._alive_s = 0.0
        self._alive = 0
        self._shown_s = 0.0

    def guard(self, spec: GuardSpec) -> None:
        """Start a guard and hear it. ``LaunchFailed`` where none can be started; nothing for a rank that is gone already."""
        try:
            self._hosts[spec.node].start(spec, self._secret)
        except RankGone:
            return
        self._hear(spec)

    def adopt(self, spec: GuardSpec) -> None:
        """Take over the guard that watches this rank already; one that is gone is started anew."""
        if self._hosts[spec.node].running(spec.launch_id, spec.rank):
            self._hear(spec)
        else:
            self._say(f"rank {spec.rank} was left without a guard: starting one", "warning")
            self.guard(spec)

    @property
    def kept(self) -> tuple[Kept, ...]:
        """By rank."""
        with self._lock:
            return tuple(one for _, one in sorted(self._kept.items()))

    def cause(self, rank: int, patience_s: float) -> str | None:
        """Why the guard ended this rank, which has just ended; None where it did not, or does not answer in time.

        A guard that is heard says "dead" within milliseconds of the end, with the cause.
        """
        with self._lock:
            one = self._kept.get(rank)
        if one is None:
            return None
        if one.connected.is_set():
            with self._read_at_once():
                one.ended.wait(patience_s)
        return one.cause

    @contextlib.contextmanager
    def _read_at_once(self) -> Iterator[None]:
        with self._lock:
            self._awaited += 1
        self._bell.ring()
        try:
            yield
        finally:
            with self._lock:
                self._awaited -= 1

    def stop(self) -> None:
        """End soon."""
        super().stop()
        self._bell.ring()

    def _hear(self, spec: GuardSpec) -> None:
        one = Kept(spec, heard_s=self._clock(), began_s=self._clock())
        one.client = self._hosts[spec.node].connect(spec.launch_id, spec.rank)
        if one.client:
            one.connected.set()
        with self._lock:
            self._kept[spec.rank] = one
        self._bell.ring()

    def _watch(self) -> None:
        while not self._stopped.is_set():
            self._greet()
            self._rest()
            heard = {one.client: one for one in self.kept if one.client}
            if heard:
                readable = select.select(list(heard), [], [], HEAR_S if self._hurried else 0.0)[0]
                self._note_pace(max((self._read(heard[ready]) for ready in readable), default=0))
                if readable:
                    self._heard()
            for one in self.kept:
                self._keep_up(one)
            if self._clock() - self._shown_s >= SHOW_EVERY_S:
                self._show_nodes()
        for one in self.kept:
            if one.client:
                one.client.close()
                one.client = None
        self._show_nodes()

    @property
    def _hurried(self) -> bool:
        """Somebody waits for a line, or a guard's first sample is still to come: until then memory is read without it."""
        return self._awaited > 0 or any(one.client and one.last is None for one in self.kept)

    def _rest(self) -> None:
        """Each waking costs more than a line's reading: where nothing is urgent, they are taken a few at a time. A stream's end
        is seen at once.
        """
        if self._stopped.is_set():
            return
        if not self._hurried:
            self._bell.wait(max(0.0, self._rest_s), [one.client for one in self.kept if one.client])
        elif not any(one.client for one in self.kept):
            self._stopped.wait(HEAR_S)

    @property
    def _rest_s(self) -> float:
        """Until the next look at a guard that is lost, or that may hang by then."""
        now_s, watched = self._clock(), [one for one in self.kept if not (one.cause or one.ended.is_set())]
        due = [
            (max(one.heard_s + self._hosts[one.spec.node].silent_s, one.retry_s) if one.client else one.retry_s) - now_s
            for one in watched
        ]
        return min([LIVELY_S if self._lively else REST_S, *due])

    def _note_pace(self, lines: int) -> None:
        """Whether a guard has told more than a calm one since the last reading."""
        now_s = self._clock()
        self._lively, self._read_s = lines > (now_s - self._read_s) / CALM_LEAST_S + 2, now_s

    def _show_nodes(self) -> None:
        self._shown_s = self._clock()
        for name in self._hosts:
            self._show(_node(name, [one for one in self.kept if one.spec.node == name]))

    def _greet(self) -> None:
        now_s = self._clock()
        if now_s - self._alive_s < ALIVE_EVERY_S:
            return
        self._alive_s, self._alive = now_s, self._alive + 1
        for one in self.kept:
            if one.client:
                one.client.say(alive=self._alive)

    def _read(self, one: Kept) -> int:
        """Take what it told: so many lines."""
        assert one.client is not None
        told: list[tuple[bytes, Line]] = []
        try:
            told = one.client.read()
            for raw, line in told:
                one.take(raw, line, self._clock())
                if isinstance(line, Hello):
                    self._tell_refused(one.spec.node, line.refused)
        except StreamEnded:
            one.client.close()
            one.client = None
            one.connected.clear()
        return len(told)

    def _tell_refused(self, node: str, refused: tuple[str, ...]) -> None:
        """Once for each node and what its kernel did not allow: guards of one node are of one user."""
        if not refused or (node, refused) in self._told:
            return
        self._told.add((node, refused))
        self._say(
            f"guards on {node} watch memory, but can themselves {' and '.join(refused)}, as this user may not prevent it:"
            " docs/memory.md#the-guards-own-safety says what would",
            "info" if self._launch == 1 else "debug",  # the next launch's guards can do no more
        )

    def _keep_up(self, one: Kept) -> None:
        """Connect again; a guard that is gone, or hangs, while its rank lives is replaced."""
        now_s, spec = self._clock(), one.spec
        if one.ended.is_set() or one.cause or now_s < one.retry_s:
            return
        host = self._hosts[spec.node]
        hangs = now_s - one.heard_s > host.silent_s
        if one.client and not hangs:
            return
        if not hangs and host.running(spec.launch_id, spec.rank):
            one.client = host.connect(spec.launch_id, spec.rank)
            if one.client:
                one.connected.set()
            one.retry_s = self._clock() + RETRY_S
            return
        self._replace(one, host, "says nothing" if hangs and one.client else "is gone")
        one.retry_s = max(one.retry_s, self._clock() + RETRY_S)  # also after a try that has taken long

    def _replace(self, one: Kept, host: GuardHost, how: str) -> None:
        spec = one.spec
        if one.client:
            one.client.close()
            one.client = None
            one.connected.clear()
        one.retry_s = self._clock() + RETRY_S
        if self._clock() - one.began_s > LASTS_S:
            one.starts = 0
        if one.starts >= STARTS:
            one.retry_s = float("inf")
            why = f"the guard of rank {spec.rank} {how} again, after {one.starts} starts: the gang does not run unguarded"
            self._post(machine.GuardLost(self._clock(), self._launch, why))
            return
        try:
            host.kill(spec.launch_id, spec.rank)
        except TwinfoldError:  # out of reach: nobody can tell whether it is gone, and it does its work without us
            return
        one.starts += 1
        try:
            self._say(f"the guard of rank {spec.rank} {how}: starting another", "warning")
            host.start(spec, self._secret)
        except RankGone:
            one.ended.set()
            return
        except TwinfoldError as error:
            self._say(str(error), "error")
            return
        one.heard_s = one.began_s = self._clock()
        one.last = None  # its first sample is heard at once
        one.client = host.connect(spec.launch_id, spec.rank)
        if one.client:
            one.connected.set()


def _node(name: str, kept: Sequence[Kept]) -> NodeGuard:
    """Each node's guards as one: up when all are, as old as the oldest."""
    ages = [one.last.lease_age_ms for one in kept if one.last and one.last.lease_age_ms is not None]
    return NodeGuard(
        name,
        up=bool(kept) and all(one.client is not None and not one.ended.is_set() for one in kept),
        at_s=min((one.heard_s for one in kept), default=0.0),
        lease_age_s=max(ages) / 1000 if ages else None,
    )
