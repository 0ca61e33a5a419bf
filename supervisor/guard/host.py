"""What the supervisor asks of a way to run guards on a node, as runners are asked to run ranks."""

from __future__ import annotations

from typing import Protocol

from build.errors import LaunchFailed
from supervisor.guard.client import GuardClient
from supervisor.guard.spec import GuardSpec
from supervisor.runners.protocol import RankHandle


class RankGone(LaunchFailed):
    """The rank had ended before its guard could take it: its own end says why."""


class GuardHost(Protocol):
    """Guards of one node. Every call returns within a bounded time.

    ``silent_s``: a guard that lives and is not heard for so long hangs.
    """

    @property
    def silent_s(self) -> float:
        """See above."""

    def identity(self, handle: RankHandle) -> tuple[int, int] | None:
        """The rank's pid as the guard sees it, and its start time in clock ticks; None where it is gone."""

    def start(self, spec: GuardSpec, secret: bytes) -> None:
        """Start a guard; returns once it watches. ``RankGone``, or another ``LaunchFailed`` that says what hinders it."""

    def running(self, launch_id: str, rank: int) -> bool:
        """Whether the guard lives (which a stopped one does, and one that cannot be asked for may)."""

    def connect(self, launch_id: str, rank: int) -> GuardClient | None:
        """A client of its stream, or None where it does not listen."""

    def kill(self, launch_id: str, rank: int) -> None:
        """End the guard at once and leave the rank alone. Nothing where it has ended; ``Refused`` where nobody can be told."""

    def log(self, launch_id: str, rank: int) -> bytes:
        """What it wrote of why it ended its rank; empty where it did not."""

    def remove(self, launch_id: str, rank: int) -> None:
        """Forget an ended guard: its record, its log, its socket, the launch's secret."""

    def launches(self) -> tuple[tuple[str, int], ...]:
        """(launch id, rank) of every guard that left something here."""
