"""How ranks are started, watched and ended: the narrow protocol that process and container runners fulfil.

A runner knows nothing of gangs, readiness or restarts. It starts one rank, says when it has exited and how, signals it,
reads its log, and finds what an earlier supervisor left behind. Calls come from several threads.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from build.errors import LaunchFailed

if TYPE_CHECKING:
    from build.bundle import ImageRef, Needs
    from supervisor.engine.contract import RankCommand

OOM_SCORE_ADJ = 1000  # ranks go first when the kernel must choose: a node that lives can tell why
MARKER = "TWINFOLD_RANK"  # in every rank's environment: "<launch id>/<rank>", by which one without a record is found


class StartRefused(LaunchFailed):
    """A rank could not be started, and trying again would not help: no such binary, a stranger's container of our name."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A host folder as a container sees it. Runners of processes need none: there ``target`` equals ``source``.

    ``volume``: ``source`` is a Docker volume's name, and no path.
    """

    source: Path
    target: str
    read_only: bool = True
    volume: bool = False


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose a rank is: ``id`` is kept in the gang's state folder and moves with it; ``folder`` (host:path) is for people."""

    id: str
    folder: str


@dataclass(frozen=True, slots=True)
class RankSpec:
    """One rank of one launch. ``spec_hash`` is the same for every launch of the same canonical spec; ``node`` is a name.

    ``context_tokens`` is what this launch serves, which the hash leaves out where it was found and not asked for.
    ``image``, ``container_name``, ``user`` (``uid:gid``; "" is the image's own) and ``owner`` are for runners of containers and
    None or empty elsewhere.
    """

    launch_id: str
    rank: int
    world_size: int
    node: str
    command: RankCommand
    spec_hash: str
    bundle_entry: str
    context_tokens: int
    mounts: tuple[Mount, ...] = ()
    image: ImageRef | None = None
    needs: Needs | None = None
    container_name: str = ""
    user: str = ""
    oom_score_adj: int = OOM_SCORE_ADJ
    owner: Owner | None = None


@dataclass(frozen=True, slots=True)
class RankHandle:
    """A started rank. ``key`` is the runner's own name for it: a pid, or a container id."""

    launch_id: str
    rank: int
    node: str
    key: str
    spec_hash: str

    def __str__(self) -> str:
        return f"rank {self.rank} of launch {self.launch_id} on {self.node} ({self.key})"


@dataclass(frozen=True, slots=True)
class RankExit:
    """How a rank ended.

    ``code`` is the exit status, 128 + signal where a signal ended it, None where it cannot be known (a rank that an earlier
    supervisor started). ``out_of_memory`` is yes, no or unknown: 137 alone proves nothing.
    """

    launch_id: str
    rank: int
    code: int | None
    signal: int = 0
    out_of_memory: str = "unknown"

    @property
    def described(self) -> str:
        """For a log line: ``exit 1``, ``signal 9`` or ``exit unknown``."""
        if self.signal:
            return f"signal {self.signal}" + (", out of memory" if self.out_of_memory == "yes" else "")
        return "exit unknown" if self.code is None else f"exit {self.code}"


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Bytes of a rank's output since a cursor, and the cursor to go on from. Cursors are the runner's own; "" is the start."""

    data: bytes
    cursor: str


@dataclass(frozen=True, slots=True)
class Leftover:
    """A rank that an earlier supervisor started. ``alive`` says whether it runs; ``detail`` holds what was recorded of it.

    ``changed`` says what about it is not as it was launched, "" where nothing is. ``owner`` is None where nothing tells it.
    """

    handle: RankHandle
    alive: bool
    world_size: int
    bundle_entry: str
    context_tokens: int
    detail: Mapping[str, str] = field(default_factory=dict)
    changed: str = ""
    owner: Owner | None = None


class Runner(Protocol):
    """What the supervisor asks of a way to run ranks. Every call returns within a bounded time."""

    def start(self, spec: RankSpec) -> RankHandle:
        """Start a rank; ``StartRefused`` where it is hopeless, another ``LaunchFailed`` where a later try may work."""

    def poll(self, handle: RankHandle) -> RankExit | None:
        """How it ended, or None while it runs. A rank that nobody knows any more counts as ended, its code unknown."""

    def wait(self, handles: Sequence[RankHandle], timeout_s: float) -> tuple[RankExit, ...]:
        """Those that have ended; returns at the first end, and after ``timeout_s`` (at most 50 ms late) with none."""

    def terminate(self, handle: RankHandle) -> None:
        """Ask for an orderly end (SIGTERM). Nothing where it has ended."""

    def kill(self, handle: RankHandle) -> None:
        """End it at once (SIGKILL). Nothing where it has ended."""

    def read_log(self, handle: RankHandle, cursor: str = "") -> LogChunk:
        """Output since the cursor, at most 1 MiB a call. Works until :meth:`remove`; also for ranks found as leftovers."""

    def pass_log(self, handle: RankHandle, cursor: str) -> str:
        """Let the output since the cursor go by unread, and give the cursor to go on from; logs stay within their bounds."""

    def whole_log(self, handle: RankHandle) -> Iterator[bytes]:
        """All output that was kept, in order, in pieces of at most 1 MiB."""

    def leftovers(self) -> tuple[Leftover, ...]:
        """Every rank that is recorded or labelled, dead or alive, oldest launch first; on a shared daemon of other owners too."""

    def remove(self, handle: RankHandle) -> None:
        """Forget an ended rank: its record, its log, its container. Refuses one that runs (``LaunchFailed``)."""


def wait_until_ended(runner: Runner, handles: Sequence[RankHandle], timeout_s: float) -> bool:
    """Whether all have ended within the time."""
    deadline = time.monotonic() + timeout_s
    left = list(handles)
    while left and time.monotonic() < deadline:
        runner.wait(left, max(0.0, deadline - time.monotonic()))
        left = [handle for handle in left if runner.poll(handle) is None]
    return not left
