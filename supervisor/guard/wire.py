"""The lines of a guard's stream, read; and when its samples were taken by our clock. Pure.

The format is the node tool's (``twinfold-node guard --help``): JSON lines, ``t_ms`` the guard's CLOCK_MONOTONIC. A line that is
none of those known says nothing: a later guard may say more.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# A guard's clock and ours drift apart by less than this share of the time.
DRIFT = 0.001


@dataclass(frozen=True, slots=True)
class Hello:
    """A guard's first line: what it guards, and which protections it could take (``locked``: its memory is)."""

    version: str
    guard_pid: int
    rank_pid: int
    launch_id: str
    phase: str
    cause: str | None
    locked: bool
    oom_score_adj: int
    scheduling: str
    lease_listen: tuple[str, ...] = ()

    @property
    def refused(self) -> tuple[str, ...]:
        """What can still happen to the guard, for want of a protection that the kernel did not allow it; for a person."""
        missing = [] if self.locked else ["be swapped out (its memory is not locked)"]
        if self.oom_score_adj > -1000:
            missing.append(f"be killed by the kernel when memory runs out (its OOM score is {self.oom_score_adj}, not -1000)")
        if self.scheduling == "normal":
            missing.append("be held up by busy programs (its priority is an ordinary one)")
        return tuple(missing)


@dataclass(frozen=True, slots=True)
class GuardSample:
    """One reading of the node's memory; ages are None where that lease is not held, or was never heard."""

    number: int
    t_ms: int
    available_bytes: int
    free_bytes: int
    psi_some_avg10: float | None = None
    psi_full_avg10: float | None = None
    supervisor_age_ms: int | None = None
    lease_age_ms: int | None = None
    lease_path_age_ms: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class GuardEvent:
    """Something happened: kill, term, dead, soft, recovered, … ``cause`` is why the rank was ended, if the guard did it."""

    name: str
    t_ms: int
    cause: str | None = None
    told: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Missed:
    """So many lines were not sent, because we read too slowly."""

    count: int


Line = Hello | GuardSample | GuardEvent | Missed


def parse(line: bytes) -> Line | None:
    """A line of the stream; None for one that says nothing to us."""
    try:
        raw = json.loads(line)
        if not isinstance(raw, dict):
            return None
        if "hello" in raw:
            return _hello(raw["hello"])
        if "sample" in raw:
            return _sample(raw)
        if "event" in raw:
            return GuardEvent(str(raw["event"]), int(raw.get("t_ms", 0)), raw.get("cause"), raw)
        return Missed(int(raw["missed"])) if "missed" in raw else None
    except (ValueError, KeyError, TypeError):
        return None


def _hello(raw: Mapping[str, Any]) -> Hello:
    return Hello(
        version=str(raw["version"]),
        guard_pid=int(raw["guard_pid"]),
        rank_pid=int(raw["pid"]),
        launch_id=str(raw["launch"]),
        phase=str(raw["phase"]),
        cause=raw["cause"],
        locked=bool(raw["locked"]),
        oom_score_adj=int(raw["oom_score_adj"]),
        scheduling=str(raw["scheduling"]),
        lease_listen=tuple(raw.get("lease_listen", ())),
    )


def _sample(raw: Mapping[str, Any]) -> GuardSample:
    return GuardSample(
        number=int(raw["sample"]),
        t_ms=int(raw["t_ms"]),
        available_bytes=int(raw["available_bytes"]),
        free_bytes=int(raw["free_bytes"]),
        psi_some_avg10=raw.get("psi_some_avg10"),
        psi_full_avg10=raw.get("psi_full_avg10"),
        supervisor_age_ms=raw.get("supervisor_age_ms"),
        lease_age_ms=raw.get("lease_age_ms"),
        lease_path_age_ms=tuple(raw.get("lease_path_age_ms", ())),
    )


@dataclass(frozen=True, slots=True)
class SenderClock:
    """From a sender's clock to ours, by the quickest line so far.

    A line that was held up on its way (a slow link, a stopped reader) is as old as it is, however late it comes: a stale
    sample must be seen as one.
    """

    quickest_s: float = math.inf
    seen_s: float = 0.0

    def hear(self, sent_s: float, now_s: float) -> tuple[SenderClock, float]:
        """With one more line, sent at ``sent_s`` of its clock and here at ``now_s`` of ours; and when it was sent by ours."""
        apart = now_s - sent_s
        quickest = min(apart, self.quickest_s + (now_s - self.seen_s) * DRIFT)
        return SenderClock(quickest, now_s), sent_s + quickest
