"""What one guard is started with, as its command line; and what its causes mean to the gang. Pure.

An argument list never holds the lease's secret: a guard reads it from a private file.
"""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.guard.wire import GuardEvent, parse
from supervisor.machine import Reason

PROGRAM = "twinfold-node"
# What a guard that ended its rank says, and what the launch ended of
REASONS = {
    "hard": Reason.MEMORY_HARD,
    "slope": Reason.MEMORY_SLOPE,
    "peer": Reason.PEER_SILENT,
    "supervisor": Reason.SUPERVISOR_SILENT,
}


@dataclass(frozen=True, slots=True)
class Limits:
    """What every guard of a launch acts by. Bytes of MemAvailable; ``proc`` is the proc tree as the guard sees it."""

    hard_bytes: int
    soft_bytes: int
    horizon_s: float
    period_s: float
    proc: str
    orphan_s: int
    stop_timeout_s: int
    lease_timeout_s: float = 10.0
    linger_s: int = 120


@dataclass(frozen=True, slots=True)
class Lease:
    """One guard's part in the lease between nodes: addresses as ADDR:PORT. A follower hears, the head tells.

    ``sends`` are (to, from) pairs; an empty ``from`` leaves the choice to the kernel.
    """

    listens: tuple[str, ...] = ()
    sends: tuple[tuple[str, str], ...] = ()
    grace_s: float = 60.0

    def __bool__(self) -> bool:
        return bool(self.listens or self.sends)


@dataclass(frozen=True, slots=True)
class GuardSpec:
    """One rank's guard. ``supervised``: it hears the supervisor, and stops the rank in order when that is silent."""

    launch_id: str
    rank: int
    node: str
    pid: int
    start_ticks: int
    limits: Limits
    supervised: bool = False
    lease: Lease = Lease()


def ended_by_guard(log: bytes) -> Reason | None:
    """Why a guard ended its rank, from what it logged; None where it logged nothing."""
    first = parse(log.partition(b"\n")[0])
    return REASONS.get(first.cause or "") if isinstance(first, GuardEvent) else None


def name(rank: int) -> str:
    """The stem of a guard's files."""
    return f"guard{rank}"


def arguments(spec: GuardSpec, secret_file: str = "", owner: str = "", proc: str = "") -> list[str]:
    """Everything after the program's name. Files are relative to the folder that the guard is started in.

    ``owner`` is ``UID:GID`` of whoever may connect, where the guard runs as somebody else; ``proc`` the proc tree as this guard
    sees it, where that is another than the limits name.
    """
    limits, stem = spec.limits, name(spec.rank)
    given: list[tuple[str, object]] = [
        ("--pid", spec.pid),
        ("--start-ticks", spec.start_ticks),
        ("--proc", proc or limits.proc),
        ("--hard-bytes", max(1, limits.hard_bytes)),
        ("--soft-bytes", max(1, limits.soft_bytes)),
        ("--horizon-ms", round(limits.horizon_s * 1000)),
        ("--period-ms", round(limits.period_s * 1000)),
        ("--launch", spec.launch_id),
        ("--socket", f"{stem}.sock"),
        ("--log", f"{stem}.log"),
        ("--linger-s", limits.linger_s),
        ("--stop-timeout-s", limits.stop_timeout_s),
    ]
    words = ["guard", *(str(word) for pair in given for word in pair)]
    if owner:
        words += ["--socket-owner", owner]
    if spec.supervised:
        words += ["--supervised", "--orphan-s", str(limits.orphan_s)]
    return words + (_lease(spec, secret_file) if spec.lease else [])


def _lease(spec: GuardSpec, secret_file: str) -> list[str]:
    lease = spec.lease
    words = ["--secret-file", secret_file, "--lease-timeout-ms", str(round(spec.limits.lease_timeout_s * 1000))]
    words += ["--lease-grace-ms", str(round(lease.grace_s * 1000))]
    for address in lease.listens:
        words += ["--lease-listen", address]
    for to, source in lease.sends:
        words += ["--lease-send", to, *(["--lease-from", source] if source else [])]
    return words
