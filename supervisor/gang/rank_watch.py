"""A launch's ranks: their exits at once, and their logs until all have loaded."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from build.units import GIB
from supervisor.engine.contract import Logged, parity
from supervisor.engine.facts import Fact, MemoryLine, RankLoaded, Ready, StartFailure
from supervisor.engine.log import LogReader, logged
from supervisor.gang.watchers import Post, Watcher
from supervisor.machine import types as machine
from supervisor.runners.protocol import RankExit, RankHandle, Runner

LOADING_POLL_S = 0.05
SERVING_POLL_S = 2.0  # ends are told at once; so often a log's growth is looked at
HOPELESS_EXITS = frozenset({2, 126, 127})  # a usage error, no such program, no such entry point: the same again next time
LOG_PIECES = 64  # at most this many MiB of one rank's log are read at once


@dataclass(slots=True)
class _Read:
    """How far a rank's log was read, and what it said."""

    cursor: str = ""
    reader: LogReader = field(default_factory=LogReader)
    facts: list[Fact] = field(default_factory=list)


class RankWatch(Watcher):
    """Watches one launch: exits at once, log lines as they come, and parity once every rank has loaded."""

    def __init__(
        self,
        runner: Runner,
        post: Post,
        launch: int,
        *,
        world_size: int,
        asked: tuple[int, bool],
        guarded: Callable[[int], machine.Reason | None] = lambda _rank: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(f"ranks-{launch}")
        self._guarded = guarded
        self._runner, self._post, self._launch, self._clock = runner, post, launch, clock
        self._world_size = world_size
        self._asked_context, self._asked_drafts = asked
        self._handles: dict[int, RankHandle] = {}
        self._lock = threading.Lock()
        self._logs: dict[int, _Read] = {}
        self._judged = False
        self.exits: dict[int, RankExit] = {}

    def add(self, handle: RankHandle) -> None:
        """Watch a rank that the machine knows to run."""
        with self._lock:
            self._handles[handle.rank] = handle

    def started(self, handle: RankHandle) -> None:
        """Tell of a start, then watch the rank: so its exit is never told first, and a signal finds its handle."""
        with self._lock:
            self._post(machine.RankStarted(self._clock(), self._launch, handle.rank))
            self._handles[handle.rank] = handle

    @property
    def handles(self) -> tuple[RankHandle, ...]:
        """Every rank that was started, by rank."""
        with self._lock:
            return tuple(handle for _, handle in sorted(self._handles.items()))

    def handle(self, rank: int) -> RankHandle | None:
        """One rank's handle, or None before its start."""
        with self._lock:
            return self._handles.get(rank)

    @property
    def said_bytes(self) -> dict[int, int]:
        """What each rank logged that its weights take, by rank."""
        return {rank: count for rank, log in dict(self._logs).items() if (count := _weights_said(log.facts))}

    def _watch(self) -> None:
        while not self._stopped.is_set():
            living = [h for h in self.handles if h.rank not in self.exits]
            if not living:
                self._stopped.wait(LOADING_POLL_S)
                continue
            for ended in self._runner.wait(living, SERVING_POLL_S if self._judged else LOADING_POLL_S):
                self._ended(ended)
            for handle in living:
                if handle.rank not in self.exits:
                    self._follow(handle)
            self._judge()

    def _follow(self, handle: RankHandle) -> None:
        """Once all is judged, nothing in a log is news: what a flood writes must keep nobody from seeing an end."""
        if not self._judged:
            self._read(handle)
        else:
            log = self._logs.setdefault(handle.rank, _Read())
            with contextlib.suppress(OSError):  # a folder that may not be read is told of by its own watch
                log.cursor = self._runner.pass_log(handle, log.cursor)

    def _ended(self, ended: RankExit) -> None:
        """A serving gang's loss is told as it is; a failed start's last words decide whether to try again."""
        handle = self.handle(ended.rank)
        self.exits[ended.rank] = ended
        if handle and not self._judged:
            self._read(handle, last=True)
        told = self._explained(ended)
        hopeless = ended.code in HOPELESS_EXITS or bool(told and not told.restart)
        how = f"{ended.described}: {told.message}" if told else ended.described
        reason = self._guarded(ended.rank) if ended.signal or ended.code is None else None
        if reason:
            how, hopeless = f"{how}, ended by its guard", False
        self._post(machine.RankExited(self._clock(), self._launch, ended.rank, how, hopeless, reason or machine.Reason.RANK_EXIT))

    def _explained(self, ended: RankExit) -> StartFailure | None:
        facts = self._logs[ended.rank].facts if ended.rank in self._logs and not self._judged else []
        return next((fact for fact in facts if isinstance(fact, StartFailure)), None)

    def _read(self, handle: RankHandle, *, last: bool = False) -> None:
        log = self._logs.setdefault(handle.rank, _Read())
        facts: list[Fact] = []
        for _ in range(LOG_PIECES):
            chunk = self._runner.read_log(handle, log.cursor)
            log.cursor = chunk.cursor
            if not chunk.data:
                break
            facts += log.reader.feed(chunk.data)
        if last:
            facts += log.reader.finish()
        for fact in facts:
            self._tell(handle.rank, fact)
        # Facts of a start are few; replies and access lines are many and of no use here.
        log.facts += [fact for fact in facts if isinstance(fact, (Ready, RankLoaded, StartFailure, MemoryLine))]

    def _tell(self, rank: int, fact: Fact) -> None:
        now_s = self._clock()
        if isinstance(fact, RankLoaded) and fact.rank == rank:
            self._post(machine.RankLoaded(now_s, self._launch, rank))
        elif isinstance(fact, Ready) and rank == 0:
            self._post(machine.ServerReady(now_s, self._launch))

    def _judge(self) -> None:
        """Once every rank has said what it loaded with, compare it with what was asked."""
        if self._judged or len(self._logs) < self._world_size:
            return
        if not all(any(isinstance(f, (Ready, RankLoaded)) for f in self._logs[r].facts) for r in range(self._world_size)):
            return
        self._judged = True
        said: list[Logged] = [logged(rank, log.facts) for rank, log in sorted(self._logs.items())]
        differences = parity(self._asked_context, self._asked_drafts, said)
        self._post(machine.Parity(self._clock(), self._launch, tuple(map(str, differences))))


def _weights_said(facts: Sequence[Fact]) -> int:
    """Rank 0 logs gibibytes, a follower bytes; 0 where neither was logged."""
    said = [round(fact.model_gib * GIB) for fact in facts if isinstance(fact, MemoryLine)]
    said += [fact.arena_bytes or 0 for fact in facts if isinstance(fact, RankLoaded)]
    return max(said, default=0)
