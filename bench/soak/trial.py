"""One trial: a fault at a random moment under load, what it did to the gang, and whether all that must hold did."""

from __future__ import annotations

import gzip
import itertools
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bench.soak.fault import Expect, Fault, Heal, nothing
from bench.soak.rig import LaunchSeen, Rig, until

SETTLE_S = 90.0
ANSWER_S = 60.0
CLEAN_S = 20.0
LEAD_S = (0.2, 1.5)  # of undisturbed serving before the fault
BACK_LOOK_S = 0.1
LOOK_S = 0.005  # how closely the ranks' end is watched
# In the log: the supervisor's own faults, such as a worker thread's that nobody foresaw ("error: gate failed: KeyError: ...").
FAULTY = re.compile(r"Traceback \(most recent call last\)|should not have come|error: \w+ failed: ")


@dataclass(slots=True)
class Outcome:
    """What a trial came to. Times in seconds from the fault's beginning; ``serving_s`` from its end where that came later.

    ``reason`` is what the launch was saved under, "" where it serves on; ``load`` the machine's load average over a minute,
    ``seed`` what its random choices came from. A trial with complaints did not hold.
    """

    fault: Fault
    safe_s: float | None = None
    serving_s: float | None = None
    reason: str = ""
    complaints: list[str] = field(default_factory=list)
    load: float = 0.0
    seed: int = 0

    def __str__(self) -> str:
        safe = "" if self.safe_s is None else f", safe after {self.safe_s:.2f} s"
        serving = "" if self.serving_s is None else f", serving after {self.serving_s:.2f} s"
        said = f"{self.fault.name}: {self.reason or 'serves on'}{safe}{serving}"
        return said + "".join(f"\n    BUT {one}" for one in self.complaints)


class Injection:
    """The fault's making in a thread of its own, since some take long."""

    def __init__(self, fault: Fault, rig: Rig, hit: LaunchSeen) -> None:
        self.trouble = ""
        self.began_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, args=(fault, rig, hit), daemon=True)
        self._thread.start()

    def _run(self, fault: Fault, rig: Rig, hit: LaunchSeen) -> None:
        try:
            fault.inject(rig, hit)
        except Exception as error:  # told in the outcome
            self.trouble = f"the fault could not be made: {type(error).__name__}: {error}"

    def done(self) -> None:
        """Wait for it."""
        self._thread.join()


class Seen:
    """Looks from the fault's beginning on for the moment from which ``holds`` does."""

    def __init__(self, holds: Callable[[], bool], every_s: float) -> None:
        self.at_s: float | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(holds, every_s), daemon=True)
        self._thread.start()

    def _run(self, holds: Callable[[], bool], every_s: float) -> None:
        while not self._over.wait(every_s):
            if holds():
                self.at_s = time.monotonic()
                return

    def within(self, limit_s: float) -> float | None:
        """Monotonic seconds at which it was seen; None where it is not within so long from now."""
        self._thread.join(limit_s)
        return self.at_s

    def close(self) -> None:
        """Look no more."""
        self._over.set()


def trial(rig: Rig, fault: Fault) -> Outcome:
    """Raises only where the gang cannot be brought to serve before the trial."""
    settle(rig)
    time.sleep(rig.chance.uniform(*LEAD_S))
    hit, heard, runs = rig.launch(), len(rig.gang.err), rig.gang.runs
    made, outcome = Injection(fault, rig, hit), Outcome(fault)
    safe, back = Seen(lambda: not hit.runs, LOOK_S), Seen(lambda: rig.serving() not in ("", hit.launch_id), BACK_LOOK_S)
    held_until_s = made.began_s + rig.chance.uniform(*fault.hold_s)
    made.done()
    if fault.heal_at is not Heal.HELD:
        (safe if fault.heal_at is Heal.SAFE else back).within(fault.safe_limit_s)
    time.sleep(max(0.0, held_until_s - time.monotonic()))
    fault.heal(rig, hit)
    healed_s = made.began_s if fault.heal is nothing else time.monotonic()
    _come_back(rig, fault, hit, outcome)
    if rig.serving() != hit.launch_id and (safe_s := safe.within(1.0)) and (back_s := back.within(1.0)):
        outcome.safe_s = safe_s - made.began_s
        outcome.serving_s = back_s - (healed_s if back_s > healed_s else made.began_s)
    safe.close()
    back.close()
    outcome.complaints += [line for line in (made.trouble,) if line]
    outcome.complaints += _complaints(rig, fault, hit, made.began_s, outcome)
    said = rig.gang.err[heard if rig.gang.runs == runs else 0 :]
    outcome.complaints += own_faults(said)
    outcome.load, outcome.seed = os.getloadavg()[0], rig.seed
    return outcome


def own_faults(said: str) -> list[str]:
    """Faults of the supervisor's own in what it said: each a line, and of a traceback where it began and what it ended with."""
    found, lines = [], said.splitlines()
    for at, line in enumerate(lines):
        if not FAULTY.search(line):
            continue
        rest = lines[at + 1 :]
        inner = list(itertools.takewhile(lambda one: one.startswith(" "), rest)) if line.startswith("Traceback") else []
        ended = rest[len(inner)] if inner and len(inner) < len(rest) else ""
        found.append(" | ".join(part.strip() for part in (line, *inner[-2:], ended) if part.strip()))
    return found


def settle(rig: Rig) -> None:
    """Serving, with an answer to prove it; a supervisor that has ended is started again first."""
    if rig.gang.running.poll() is not None:
        rig.start_supervisor()
    began_s = time.monotonic()
    if until(lambda: rig.serving() and rig.load.finished_since(began_s), SETTLE_S, 0.05) is None:
        raise RuntimeError(f"the gang does not serve: {rig.status().get('state', 'no supervisor')}\n{rig.gang.err[-2000:]}")


def _come_back(rig: Rig, fault: Fault, hit: LaunchSeen, outcome: Outcome) -> None:
    """Until the launch that must serve does, and has answered a request that came after that."""
    anew = fault.expect is Expect.COMES_BACK
    if until(lambda: rig.serving() not in ("", hit.launch_id if anew else ""), fault.back_limit_s) is None:
        outcome.complaints.append(f"not back within {fault.back_limit_s:g} s: {rig.status().get('state', 'no supervisor')}")
        return
    began_s = time.monotonic()
    if until(lambda: rig.load.finished_since(began_s), ANSWER_S, 0.05) is None:
        outcome.complaints.append(f"it says that it serves, and no client was answered within {ANSWER_S:g} s")


def _complaints(rig: Rig, fault: Fault, hit: LaunchSeen, began_s: float, outcome: Outcome) -> Iterator[str]:
    ended = rig.serving() != hit.launch_id
    if fault.expect is Expect.SERVES_ON and ended:
        yield "the launch was ended, and should have served on"
    if fault.expect is Expect.SERVES_ON:
        disturbed = Counter(one.how for one in rig.load.ended_since(began_s) if one.how != "finish")
        yield from (f"{count} requests ended as {how}" for how, count in disturbed.items())
    if fault.expect is Expect.COMES_BACK and outcome.safe_s is None:
        yield "a rank of the launch that was hit runs on"
    if ended:
        yield from _saved(rig, fault, hit, outcome)
    if until(lambda: not rig.strangers(), CLEAN_S, 0.2) is None:
        yield from rig.strangers()
    yield from rig.load.hanging(began_s)
    if said := fault.check(rig, hit):
        yield said
    if rig.gang.running.poll() is not None:
        yield f"the supervisor has ended with {rig.gang.running.poll()}: {rig.gang.err.strip().splitlines()[-1:]}"


def _saved(rig: Rig, fault: Fault, hit: LaunchSeen, outcome: Outcome) -> Iterator[str]:
    """The launch's end and every rank's log must have been kept, and a guard's words where one acted."""
    until(lambda: rig.end_of(hit.launch_id), CLEAN_S, 0.1)
    end = rig.end_of(hit.launch_id)
    if end is None:
        yield "nothing was saved of how the launch ended"
        return
    outcome.reason = str(end["reason"])
    if fault.reasons and outcome.reason not in {one.value for one in fault.reasons}:
        yield f"ended as {outcome.reason!r} ({end['detail']})"
    files = {path.name.rpartition("-")[2]: path for path in rig.saved(hit.launch_id)}
    for rank in hit.ranks if fault.logs else ():
        path = files.get(f"rank{rank.rank}.log.gz")
        if path is None or not gzip.decompress(path.read_bytes()):
            yield f"the log of rank {rank.rank} is lost"
    if fault.evidence and not any(name.startswith("guard") for name in files):
        yield "no guard's words were kept"
