"""The guards of a gang over its launches: called on starts, ends and adoption, and where its memory samples come from."""

from __future__ import annotations

import functools
import secrets
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from build.errors import TwinfoldError
from supervisor.gang.watchers import stop_all
from supervisor.guard.host import GuardHost
from supervisor.guard.kept import Kept
from supervisor.guard.processes import SECRET, farewell, read_private
from supervisor.guard.spec import REASONS, GuardSpec, Lease, Limits
from supervisor.guard.watch import GuardWatch
from supervisor.machine import Event, Reason
from supervisor.memory.policy import Sample
from supervisor.runners.protocol import RankHandle
from supervisor.status.view import NodeGuard

CAUSE_S = 1.0  # a rank has ended: how long its guard may take to say whether it was the one
LOG_AGAIN_S = 0.05
SECRET_BYTES = 32


class Guards(Protocol):
    """What the gang asks. ``launch`` is the supervisor's number of it."""

    def begin(self, launch: int, launch_id: str, limits: Limits) -> None:
        """A launch gets its guards' watch; nothing is guarded yet."""

    def guard(self, handle: RankHandle) -> None:
        """Put a guard over a rank that has just been started. ``LaunchFailed`` where there can be none."""

    def adopt(self, handle: RankHandle) -> None:
        """Take over the guard of a rank that runs already, or start one."""

    def reason(self, rank: int) -> Reason | None:
        """Why a guard ended this rank, which has just ended; None where it ended otherwise."""

    def short_of_memory(self) -> str:
        """The node whose guard ended its rank for memory in this launch; "" where none did."""

    def evidence(self, rank: int) -> bytes:
        """The guard's words of its kill, else its last seconds of samples; JSON lines."""

    def samples(self, node: str, after_s: float) -> tuple[Sample, ...]:
        """A node's samples taken after a monotonic moment, oldest first."""

    def wake(self, node: str, sleeper: Callable[[], None]) -> None:
        """Call ``sleeper`` whenever guards of the node have told something. It must not wait."""

    def end(self) -> None:
        """The launch is over: its guards leave."""

    def close(self) -> None:
        """The supervisor leaves; guards and ranks stay as they are."""


class NoGuards:
    """Ranks without guards: of a bundle without a node tool, and in tests."""

    def begin(self, launch: int, launch_id: str, limits: Limits) -> None:
        """Nothing."""

    def guard(self, handle: RankHandle) -> None:
        """Nothing."""

    def adopt(self, handle: RankHandle) -> None:
        """Nothing."""

    def reason(self, rank: int) -> Reason | None:  # noqa: ARG002
        """None."""
        return None

    def short_of_memory(self) -> str:
        """None."""
        return ""

    def evidence(self, rank: int) -> bytes:  # noqa: ARG002
        """Nothing."""
        return b""

    def samples(self, node: str, after_s: float) -> tuple[Sample, ...]:  # noqa: ARG002
        """None."""
        return ()

    def wake(self, node: str, sleeper: Callable[[], None]) -> None:
        """Never."""

    def end(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class HostedGuards:
    """Guards run by each node's host.

    ``show`` takes each node's guards for status and metrics; ``lease`` gives a rank's part in the lease between nodes, by
    (rank, node).
    """

    def __init__(
        self,
        hosts: Mapping[str, GuardHost],
        run_dir: Path,
        *,
        post: Callable[[Event], None],
        say: Callable[[str, str], None],
        show: Callable[[NodeGuard], None] = lambda _guard: None,
        lease: Callable[[int, str], Lease] = lambda _rank, _node: Lease(),
    ) -> None:
        self._hosts, self._run_dir, self._lease = hosts, run_dir, lease
        self._post, self._say, self._show = post, say, show
        self._watches: dict[str, GuardWatch] = {}
        self._sleepers: dict[str, Callable[[], None]] = {}
        self._launch_id = ""
        self._limits: Limits | None = None

    def begin(self, launch: int, launch_id: str, limits: Limits) -> None:
        """The launch's secret is the one that its folder holds where it was begun by an earlier supervisor."""
        self._launch_id, self._limits = launch_id, limits
        secret = read_private(self._run_dir / launch_id / SECRET) or secrets.token_hex(SECRET_BYTES).encode()
        for node, host in self._hosts.items():  # one each: a node that does not answer holds up no other's
            heard = functools.partial(self._heard, node)
            watch = GuardWatch({node: host}, launch, secret, post=self._post, say=self._say, show=self._show, heard=heard)
            self._watches[node] = watch
            watch.start()

    def guard(self, handle: RankHandle) -> None:
        """A rank that is gone already needs none."""
        spec = self._spec(handle)
        if spec:
            self._watches[spec.node].guard(spec)

    def adopt(self, handle: RankHandle) -> None:
        """The same."""
        spec = self._spec(handle)
        if spec:
            self._watches[spec.node].adopt(spec)

    def reason(self, rank: int) -> Reason | None:
        """From what the guard said."""
        cause = self._cause(rank)
        return REASONS.get(cause) if cause else None

    def _cause(self, rank: int) -> str | None:
        """Read what its guard has said by now, and wait for its word of the end."""
        found = (watch.cause(rank, CAUSE_S) for watch in self._watches.values())
        return next((cause for cause in found if cause), None)

    def short_of_memory(self) -> str:
        """From what the guards said."""
        ended = (one for one in self._kept if (reason := REASONS.get(one.cause or "")) and reason.evicts)
        return next((one.spec.node for one in ended), "")

    def evidence(self, rank: int) -> bytes:
        """The guard's own log where it acted: it holds the samples before its kill, and follows its word of the end."""
        one = next((one for one in self._kept if one.spec.rank == rank), None)
        if one is None:
            return b""
        acted, until_s = self._cause(rank) is not None, time.monotonic() + CAUSE_S
        while not (log := self._hosts[one.spec.node].log(one.spec.launch_id, rank)) and acted and time.monotonic() < until_s:
            time.sleep(LOG_AGAIN_S)
        return log or one.evidence

    def samples(self, node: str, after_s: float) -> tuple[Sample, ...]:
        """Of the node's guard with the newest; several guards of one node read the same memory."""
        found = [one.newer(after_s) for one in self._kept if one.spec.node == node]
        return max(found, key=lambda samples: samples[-1].at_s if samples else 0.0, default=())

    def wake(self, node: str, sleeper: Callable[[], None]) -> None:
        """Once a node."""
        self._sleepers[node] = sleeper

    def _heard(self, node: str) -> None:
        if sleeper := self._sleepers.get(node):
            sleeper()

    def end(self) -> None:
        """Say bye to each, see them go, forget them. One on a node that is out of reach is found at the next start."""
        kept = self._kept
        self.close()
        if kept:
            with ThreadPoolExecutor(len(kept)) as pool:
                list(pool.map(self._send_away, kept))

    def _send_away(self, one: Kept) -> None:
        try:
            farewell(self._hosts[one.spec.node], one.spec.launch_id, one.spec.rank)
        except TwinfoldError as error:
            self._say(f"the guard of rank {one.spec.rank} may run on: {error}", "warning")

    def close(self) -> None:
        """Only stop hearing."""
        watches = list(self._watches.values())
        self._watches = {}
        stop_all(watches)

    @property
    def _kept(self) -> list[Kept]:
        return [one for watch in list(self._watches.values()) for one in watch.kept]

    def _spec(self, handle: RankHandle) -> GuardSpec | None:
        """None for a rank that is gone, and on a node that runs no guards of ours."""
        assert self._limits is not None
        if handle.node not in self._hosts:
            return None
        identity = self._hosts[handle.node].identity(handle)
        if identity is None:
            return None
        return GuardSpec(
            launch_id=handle.launch_id,
            rank=handle.rank,
            node=handle.node,
            pid=identity[0],
            start_ticks=identity[1],
            limits=self._limits,
            supervised=handle.rank == 0,
            lease=self._lease(handle.rank, handle.node),
        )
