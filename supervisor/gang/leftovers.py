"""Ranks that an earlier supervisor left: adopted when they are a whole gang of the same spec, else ended and removed.

The same code stops and shows a gang that has no supervisor. Only ranks of the own state folder are adopted or ended; those of
another gang on the same Docker daemon are told of and left alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from build.errors import GaveUp
from supervisor.gang import logs
from supervisor.guard.spec import ended_by_guard
from supervisor.runners.docker_owner import SHOWN_HEX
from supervisor.runners.protocol import Leftover, Owner, RankExit, RankHandle, Runner, wait_until_ended

KILL_S = 10.0


@dataclass(frozen=True, slots=True)
class Decision:
    """``adopt`` is a whole living gang, rank 0 first, or nothing; everything in ``remove`` goes."""

    adopt: tuple[Leftover, ...]
    remove: tuple[Leftover, ...]


def ours(found: Sequence[Leftover], owner: Owner | None) -> tuple[Leftover, ...]:
    """Those of this state folder. ``owner`` is None where the folder has no id yet.

    A rank that does not say whose it is counts as ours: an earlier version made it, or its record lies in the folder itself.
    """
    return tuple(one for one in found if one.owner is None or (owner is not None and one.owner.id == owner.id))


def beside(found: Sequence[Leftover], owner: Owner | None, here: str) -> tuple[str, ...]:
    """A line for each other gang that lives on the same daemons: the ports and the memory that it takes are not there for us.

    ``here`` is where this state folder lies: a gang of the same place was launched before the folder was replaced, or moved away.
    """
    mine = ours(found, owner)
    others: dict[str, list[RankHandle]] = {}
    for one in found:
        if one.alive and one.owner and one not in mine:
            others.setdefault(one.owner.folder, []).append(one.handle)
    return tuple(_beside(folder, ranks, here) for folder, ranks in sorted(others.items()))


def _beside(folder: str, ranks: Sequence[RankHandle], here: str) -> str:
    named = ", ".join(map(str, ranks))
    if folder != here:
        return f"another gang runs beside this one, of {folder}: {named}: it is left alone; `supervisor stop` there ends it"
    by_hand = " ".join(rank.key[:SHOWN_HEX] for rank in ranks)
    return (
        f"a gang runs that was launched before {folder} was replaced or moved: {named}: it is left alone;"
        f" end its supervisor, or `docker rm -f {by_hand}`"
    )


def decide(found: Sequence[Leftover], spec_hash: str) -> Decision:
    """Adopt the newest launch that is whole, alive, of this spec and as it was launched.

    A lone rank, another spec, one that was edited by hand and the dead are removed.
    """
    launches: dict[str, list[Leftover]] = {}
    for one in found:
        launches.setdefault(one.handle.launch_id, []).append(one)
    whole = [name for name, ranks in launches.items() if _whole(ranks, spec_hash)]
    newest = max(whole, default="")
    adopt = sorted((one for one in found if one.handle.launch_id == newest), key=lambda one: one.handle.rank)
    return Decision(tuple(adopt), tuple(one for one in found if one.handle.launch_id != newest))


Told = Callable[[str, int], bytes]  # what the guard of (launch id, rank) logged of ending its rank


def _nothing(_launch_id: str, _rank: int) -> bytes:
    return b""


def remove(runner: Runner, found: Sequence[Leftover], keeping: logs.Keeping, reason: str, told: Told = _nothing) -> None:
    """Kill what lives, save the logs of each launch, remove its ranks. ``GaveUp`` where a rank cannot be ended.

    A launch that its guards ended is saved with their reason.
    """
    living = [one.handle for one in found if one.alive]
    for handle in living:
        runner.kill(handle)
    _must_end(runner, living, KILL_S)
    for launch_id in sorted({one.handle.launch_id for one in found}):
        handles = sorted((one.handle for one in found if one.handle.launch_id == launch_id), key=lambda handle: handle.rank)
        _save(runner, handles, keeping, reason, told)


def stop(
    runner: Runner,
    found: Sequence[Leftover],
    keeping: logs.Keeping,
    timeout_s: float,
    say: Callable[[str], None],
    *,
    told: Told = _nothing,
) -> None:
    """End a gang that has no supervisor: rank 0 first, which tells the others; then those that stay; then by force."""
    living = {one.handle.rank: one.handle for one in found if one.alive}
    deadline = time.monotonic() + timeout_s
    if 0 in living:
        say(f"stopping {living[0]}")
        runner.terminate(living[0])
        wait_until_ended(runner, [living[0]], timeout_s)
    left = [handle for handle in living.values() if runner.poll(handle) is None]
    for grace_s in (1.0, max(0.0, deadline - time.monotonic())):
        if wait_until_ended(runner, left, grace_s):
            break
        for handle in left:
            runner.terminate(handle)
    remove(runner, found, keeping, "stop", told)


def _whole(ranks: Sequence[Leftover], spec_hash: str) -> bool:
    wanted = set(range(ranks[0].world_size))
    same = all(one.alive and one.handle.spec_hash == spec_hash and not one.changed for one in ranks)
    return same and {one.handle.rank for one in ranks} == wanted


def _must_end(runner: Runner, living: Sequence[RankHandle], timeout_s: float) -> None:
    if wait_until_ended(runner, living, timeout_s):
        return
    stuck = ", ".join(str(handle) for handle in living if runner.poll(handle) is None)
    raise GaveUp(f"{stuck} could not be ended within {timeout_s:g} s: end it by hand, then try again")


def _save(runner: Runner, handles: Sequence[RankHandle], keeping: logs.Keeping, reason: str, told: Told) -> None:
    polled = {handle.rank: runner.poll(handle) for handle in handles}
    exits: dict[int, RankExit] = {rank: one for rank, one in polled.items() if one}
    evidence = {handle.rank: told(handle.launch_id, handle.rank) for handle in handles}
    guarded = next((found for found in map(ended_by_guard, evidence.values()) if found), None)
    why = guarded.value if guarded else reason
    ended = logs.Ended(handles[0].launch_id, why, "no supervisor watched it", datetime.now(UTC), exits)
    logs.save(runner, handles, ended, keeping, evidence)
    for handle in handles:
        runner.remove(handle)
