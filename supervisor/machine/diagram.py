"""Draws the machine from the code: every phase is stepped with every event, and each change of phase becomes an arrow.

``python -m supervisor.machine.diagram`` prints docs/machine.md, which a test holds to be current.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from supervisor.machine.step import step
from supervisor.machine.table import UNUSED
from supervisor.machine.types import (
    After,
    Begin,
    Collected,
    Event,
    GatePassed,
    GateRefused,
    GuardLost,
    HandoverAsked,
    IllegalEvent,
    MemoryBreach,
    Parity,
    Phase,
    Policy,
    PolicyChanged,
    RankExited,
    RankLoaded,
    RankStarted,
    Reason,
    RestartAsked,
    ServerReady,
    Smoke,
    Stalled,
    StartFailed,
    State,
    StopAsked,
    Tick,
)

LATE_S = 1e9
BOTH = frozenset({0, 1})
HEAD = """# The gang's states

Drawn from `supervisor/machine/` by `python -m supervisor.machine.diagram`; a test keeps it current. What each event does in each
phase is one table there: `supervisor/machine/table.py`.
A gang has every rank or none: whatever ends a launch leads through `clearing`, which kills every rank, and nothing starts again
before all of them are known to be gone.
"""


def transitions() -> dict[tuple[str, str], tuple[str, ...]]:
    """(from, to) to the events that lead there, in the order of the code."""
    found: dict[tuple[str, str], list[str]] = {}
    for before in _states():
        for label, event in EVENTS:
            try:
                after, _ = step(before, event)
            except IllegalEvent:
                continue
            if after.phase is not before.phase:
                labels = found.setdefault((before.phase.value, after.phase.value), [])
                if label not in labels:
                    labels.append(label)
    return {arrow: tuple(labels) for arrow, labels in found.items()}


def document() -> str:
    """The whole of docs/machine.md."""
    arrows = [f"    {a} --> {b}: {', '.join(labels)}" for (a, b), labels in transitions().items()]
    ends = [f"    {phase.value} --> [*]" for phase in (Phase.STOPPED, Phase.GAVE_UP, Phase.HANDED_OVER)]
    rows = [
        f"| {why} | {', '.join(phase.value for phase in phases)} | {', '.join(kind.__name__ for kind in kinds)} |"
        for why, phases, kinds in UNUSED
    ]
    table = ["## Events that change nothing", "", "| because | in these phases | these events |", "|---|---|---|", *rows]
    rest = (
        "An event with neither arrow nor row changes what the gang knows, and not its phase (a rank has loaded, other settings"
        " count), or is an error of the supervisor itself (`IllegalEvent`)."
    )
    return "\n".join(
        [HEAD, "```mermaid", "stateDiagram-v2", "    [*] --> stopped", *arrows, *ends, "```", "", *table, "", rest, ""]
    )


def _states() -> Iterator[State]:
    """Enough states of each phase that every way out of it is taken."""
    policy = Policy(world_size=2)
    yield State(policy)
    base = State(policy, launch=1, reason=Reason.STOP, launched=True, loaded=BOTH, ready_logged=True)
    yield replace(base, phase=Phase.GATING, launched=False)
    yield replace(base, phase=Phase.GATING)
    for phase in (Phase.LAUNCHING, Phase.PROBING, Phase.SERVING):
        yield replace(base, phase=phase, up=BOTH)
    yield replace(base, phase=Phase.DRAINING, up=frozenset({0}))
    for after in After:
        yield replace(base, phase=Phase.CLEARING, after=after, collecting=True)
    yield replace(base, phase=Phase.CLEARING, up=BOTH)
    yield replace(base, phase=Phase.PAUSING)


EVENTS: tuple[tuple[str, Event], ...] = (
    ("begin", Begin(0.0)),
    ("adopt", Begin(0.0, adopt=True)),
    ("gate passed", GatePassed(0.0, 1)),
    ("gate refused", GateRefused(0.0, 1, "")),
    ("rank started", RankStarted(0.0, 1, 1)),
    ("start failed", StartFailed(0.0, 1, 1, "")),
    ("rank loaded", RankLoaded(0.0, 1, 1)),
    ("server ready", ServerReady(0.0, 1)),
    ("all loaded and equal", Parity(0.0, 1)),
    ("settings differ", Parity(0.0, 1, ("x",))),
    ("smoke passed", Smoke(0.0, 1, passed=True)),
    ("smoke failed", Smoke(0.0, 1, passed=False)),
    ("rank exited", RankExited(0.0, 1, 0, "")),
    ("no progress", Stalled(0.0, 1, "")),
    ("memory soft", MemoryBreach(0.0, 1, hard=False, why="")),
    ("memory hard", MemoryBreach(0.0, 1, hard=True, why="")),
    ("guard lost", GuardLost(0.0, 1, "")),
    ("logs saved", Collected(0.0, 1)),
    ("stop", StopAsked(0.0)),
    ("stop by force", StopAsked(0.0, force=True)),
    ("handover", HandoverAsked(0.0)),
    ("restart", RestartAsked(0.0)),
    ("policy changed", PolicyChanged(0.0, Policy(world_size=2))),
    ("time is up", Tick(LATE_S)),
)


if __name__ == "__main__":
    print(document(), end="")
