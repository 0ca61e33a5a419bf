"""One runner over the runners of several nodes: each call goes to the node that the rank is on.

Ends are watched by a thread a node, so that a node that does not answer keeps no other's end from being seen.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from build.errors import LaunchFailed, TwinfoldError
from supervisor.runners.protocol import Leftover, LogChunk, RankExit, RankHandle, RankSpec, Runner

LOOK_S = 1.0  # a watch asks for its node's ends for so long at a time
IDLE_S = 5.0  # after which a watch that nobody waits on rests


@dataclass(frozen=True, slots=True)
class Found:
    """Ranks found on the nodes that answered, and what keeps the others from it, by node."""

    leftovers: tuple[Leftover, ...]
    troubles: Mapping[str, TwinfoldError]


class FleetRunner:
    """A :class:`supervisor.runners.protocol.Runner` over several nodes. ``runners`` is by the node's name."""

    def __init__(self, runners: Mapping[str, Runner], clock: Callable[[], float] = time.monotonic) -> None:
        self._runners, self._clock = dict(runners), clock
        self._changed = threading.Condition()
        self._ended: dict[RankHandle, RankExit] = {}
        self._watches = {name: _Watch(name, runner, self._tell, clock) for name, runner in self._runners.items()}

    def start(self, spec: RankSpec) -> RankHandle:
        """On the node that the spec names."""
        return self._on(spec.node).start(spec)

    def poll(self, handle: RankHandle) -> RankExit | None:
        """What is known, else what its node says."""
        with self._changed:
            if handle in self._ended:
                return self._ended[handle]
        return self._on(handle.node).poll(handle)

    def wait(self, handles: Sequence[RankHandle], timeout_s: float) -> tuple[RankExit, ...]:
        """The watches look; this only waits for what they tell."""
        for name, watch in self._watches.items():
            watch.look([handle for handle in handles if handle.node == name])
        with self._changed:
            self._changed.wait_for(lambda: any(handle in self._ended for handle in handles), timeout_s)
            return tuple(self._ended[handle] for handle in handles if handle in self._ended)

    def terminate(self, handle: RankHandle) -> None:
        """On its node."""
        self._on(handle.node).terminate(handle)

    def kill(self, handle: RankHandle) -> None:
        """On its node."""
        self._on(handle.node).kill(handle)

    def read_log(self, handle: RankHandle, cursor: str = "") -> LogChunk:
        """From its node."""
        return self._on(handle.node).read_log(handle, cursor)

    def pass_log(self, handle: RankHandle, cursor: str) -> str:
        """On its node."""
        return self._on(handle.node).pass_log(handle, cursor)

    def whole_log(self, handle: RankHandle) -> Iterator[bytes]:
        """From its node."""
        return self._on(handle.node).whole_log(handle)

    def leftovers(self) -> tuple[Leftover, ...]:
        """Of every node; the first trouble of one is raised."""
        found = self.survey()
        for error in found.troubles.values():
            raise error
        return found.leftovers

    def survey(self) -> Found:
        """Of every node that answers; all are asked at once."""
        with ThreadPoolExecutor(len(self._runners)) as pool:
            asked = {name: pool.submit(runner.leftovers) for name, runner in self._runners.items()}
        found: list[Leftover] = []
        troubles: dict[str, TwinfoldError] = {}
        for name, answer in asked.items():
            try:
                found += answer.result()
            except TwinfoldError as error:
                troubles[name] = error
        return Found(tuple(sorted(found, key=lambda one: (one.handle.launch_id, one.handle.rank))), troubles)

    def remove(self, handle: RankHandle) -> None:
        """On its node."""
        self._on(handle.node).remove(handle)
        with self._changed:
            self._ended.pop(handle, None)

    def close(self) -> None:
        """End the watches; the ranks go on."""
        for watch in self._watches.values():
            watch.close()

    def _on(self, node: str) -> Runner:
        if node not in self._runners:
            raise LaunchFailed(f"no node is called {node}: this gang runs on {', '.join(sorted(self._runners))}")
        return self._runners[node]

    def _tell(self, handle: RankHandle, ended: RankExit) -> None:
        with self._changed:
            self._ended[handle] = ended
            self._changed.notify_all()


class _Watch:
    """Looks for the ends of one node's ranks, as long as somebody waits for them."""

    def __init__(
        self, name: str, runner: Runner, tell: Callable[[RankHandle, RankExit], None], clock: Callable[[], float]
    ) -> None:
        self._runner, self._tell, self._clock = runner, tell, clock
        self._wanted: dict[RankHandle, None] = {}
        self._until_s = 0.0
        self._closed = False
        self._asked = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"ends-{name}", daemon=True)

    def look(self, handles: Sequence[RankHandle]) -> None:
        """Watch these from now on, and no others."""
        with self._asked:
            self._wanted = dict.fromkeys(handles)
            self._until_s = self._clock() + IDLE_S
            if handles and not self._thread.is_alive() and not self._closed:
                self._thread.start()
            self._asked.notify_all()

    def close(self) -> None:
        """End soon."""
        with self._asked:
            self._closed = True
            self._asked.notify_all()

    def _run(self) -> None:
        while True:
            with self._asked:
                self._asked.wait_for(lambda: self._closed or (self._wanted and self._clock() < self._until_s))
                if self._closed:
                    return
                handles = list(self._wanted)
            ends: tuple[RankExit, ...] = ()
            with contextlib.suppress(Exception):  # a fault must not blind the gang for ever: the next look may see
                ends = self._runner.wait(handles, LOOK_S)
            for ended in ends:
                handle = next(h for h in handles if (h.launch_id, h.rank) == (ended.launch_id, ended.rank))
                self._tell(handle, ended)
                with self._asked:
                    self._wanted.pop(handle, None)
