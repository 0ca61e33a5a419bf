"""The mixed soak: a fault every few seconds, whatever the gang is doing just then, and then it must serve with nothing left.

Faults come before the last one is over, so that no single expectation holds but the last: the gang serves again, no rank of an
earlier launch lives, no container, guard, process or client is left, every launch's end was saved.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from bench.soak import page
from bench.soak.fault import Fault, Heal
from bench.soak.rig import LaunchSeen, Rig, say, until
from bench.soak.trial import own_faults
from build.errors import TwinfoldError

BACK_S = 300.0
CLEAN_S = 60.0
NONE = LaunchSeen("", ())


@dataclass(slots=True)
class Course:
    """What has happened so far."""

    faults: Counter[str] = field(default_factory=Counter)
    launches: set[str] = field(default_factory=set)
    supervisors: int = 1
    ended: Counter[int] = field(default_factory=Counter)


def soak(rig: Rig, kinds: list[Fault], for_s: float, every_s: float, to: Path | None) -> int:
    """Faults for so long, then the reckoning; 1 where something is left or the gang does not serve."""
    course, began_s = Course(), time.monotonic()
    while time.monotonic() - began_s < for_s:
        _one(rig, rig.chance.choice(kinds), course, began_s)
        time.sleep(rig.chance.uniform(0.5, 1.5) * every_s)
    lasted_s = time.monotonic() - began_s
    rig.bed.heal()
    back_s = until(lambda: _have_supervisor(rig, course) or rig.serving(), BACK_S)
    complaints = _reckon(rig, back_s, began_s)
    text = _told(rig, course, lasted_s, back_s, complaints)
    say(text)
    if to:
        page.replace_part(to, "soak", text)
    return 1 if complaints else 0


def _one(rig: Rig, fault: Fault, course: Course, soak_began_s: float) -> None:
    """Make the fault on whatever is there, hold it, heal it. Between launches those that need a rank come to nothing."""
    _have_supervisor(rig, course)
    hit = _seen(rig)
    began_s = time.monotonic()
    runs = rig.gang.runs
    try:
        fault.inject(rig, hit)
        course.faults[fault.name] += 1
        hold_s = rig.chance.uniform(*fault.hold_s)
        if fault.heal_at is not Heal.HELD:
            until(lambda: not hit.runs, 30.0)
        time.sleep(max(0.0, began_s + hold_s - time.monotonic()))
    except (
        TwinfoldError,
        OSError,
        RuntimeError,
        LookupError,
        ValueError,
    ) as error:  # the gang is in the middle of something else
        say(f"{fault.name}: {type(error).__name__}: {error}")
    finally:
        fault.heal(rig, hit)
    course.supervisors += rig.gang.runs - runs
    course.launches |= {hit.launch_id} - {""}
    span = f"{began_s - soak_began_s:.1f} to {time.monotonic() - soak_began_s:.1f} s"
    say(f"{span}: {fault.name}; {rig.status().get('state', 'no supervisor')}")


def _have_supervisor(rig: Rig, course: Course) -> bool:
    """Another one where the last has ended, as a service manager does it (3: its first gate was refused). False."""
    code = rig.gang.running.poll()
    if code is not None:
        course.ended[code] += 1
        rig.start_supervisor()
        course.supervisors += 1
    return False


def _seen(rig: Rig) -> LaunchSeen:
    """The launch that serves; one without ranks where none does."""
    try:
        return rig.launch() if rig.serving() else NONE
    except (TwinfoldError, OSError, RuntimeError, LookupError, ValueError):
        return NONE


def _reckon(rig: Rig, back_s: float | None, began_s: float) -> list[str]:
    found = []
    if back_s is None:
        found.append(f"the gang does not serve: {rig.status().get('state', 'no supervisor')}")
    asked_s = time.monotonic()
    if until(lambda: rig.load.finished_since(asked_s), CLEAN_S, 0.1) is None:
        found.append("no client is answered")
    if until(lambda: not rig.strangers(), CLEAN_S, 0.5) is None:
        found += rig.strangers()
    found += rig.load.hanging(began_s)
    for run in range(1, rig.gang.runs + 1):
        found += own_faults((rig.folder / f"err{run}").read_text())
    return found


def _told(rig: Rig, course: Course, lasted_s: float, back_s: float | None, complaints: list[str]) -> str:
    faults = sum(course.faults.values())
    clients = ", ".join(f"{count} {how}" for how, count in rig.load.counts.most_common())
    kinds = ", ".join(f"{name} ({count})" for name, count in course.faults.most_common())
    end = "it does not serve" if back_s is None else f"it serves {back_s:.1f} s after the last"
    every_s = lasted_s / max(1, faults)
    course_told = (
        f"{lasted_s / 60:.1f} minutes, {faults} faults of {len(course.faults)} kinds, one every {every_s:.1f} s;"
        f" {len(course.launches)} launches were hit, {course.supervisors} supervisors ran; {end}."
    )
    lines = [
        course_told,
        f"Requests: {clients}.",
        f"Faults: {kinds}.",
        "Supervisors that ended by themselves, by exit code: "
        + (", ".join(f"{code} ({count})" for code, count in course.ended.most_common()) or "none")
        + ".",
        *([f"- {one}" for one in complaints] or ["Nothing was left behind."]),
    ]
    return "\n\n".join(lines)
