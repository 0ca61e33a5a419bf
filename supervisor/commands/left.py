"""Ranks that have no supervisor: found on every node, told of, stopped, their logs read."""

from __future__ import annotations

import contextlib
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from build.errors import GaveUp, Refused
from supervisor import service
from supervisor.configuration import Configuration

if TYPE_CHECKING:
    from supervisor.fleet.fleet import Fleet
    from supervisor.runners.fleet import Found

FOLLOW_S = 0.1


@contextlib.contextmanager
def nodes_of(one: Configuration) -> Iterator[Fleet]:
    """The nodes, for as long as a command needs them."""
    from supervisor.fleet.fleet import fleet_for

    found = fleet_for(one, lambda line: print(line, file=sys.stderr))
    try:
        yield found
    finally:
        found.close()


def survey(one: Configuration, fleet: Fleet) -> Found:
    """What this state folder's gang has left on every node that answers; gangs beside it are told of."""
    from supervisor.gang import identity, leftovers

    found, owner = fleet.survey(), identity.read(one.state_dir)
    for line in leftovers.beside(found.leftovers, owner, identity.place(one.state_dir)):
        print(f"warning: {line}", file=sys.stderr)
    return replace(found, leftovers=leftovers.ours(found.leftovers, owner))


def tell(found: Found) -> None:
    """Say which nodes could not be asked."""
    for error in found.troubles.values():
        print(f"warning: {error}", file=sys.stderr)


def stop(one: Configuration, *, force: bool) -> int:
    """End them on every node. ``GaveUp`` where one cannot be ended, or a node cannot be reached."""
    from supervisor.gang import leftovers
    from supervisor.gang.launch import blueprint
    from supervisor.gang.saving import keeping
    from supervisor.guard.choice import forget_guards, hosts_for, told_by

    with service.only_one(one.run_dir), nodes_of(one) as fleet:
        found = survey(one, fleet)
        guards = hosts_for(one, fleet, lambda: blueprint(one))
        if found.leftovers:
            timeout_s = 0.0 if force else float(one.serve.stop_timeout)
            leftovers.stop(fleet.runner, found.leftovers, keeping(one), timeout_s, print, told=told_by(guards))
        forget_guards(guards)
        if found.troubles:
            tell(found)
            unreached = " and ".join(sorted(found.troubles))
            raise GaveUp(f"{unreached} cannot be reached, so a rank may run there still: `supervisor stop` again when it can be")
        service.release_other_roots(one.state_dir, "")
    print("stopped" if found.leftovers else "nothing runs")
    return 0


def logs(one: Configuration, args: Namespace) -> int:
    """Print what they logged. ``Refused`` where nothing runs."""
    from supervisor.gang.logs import is_poll, lines

    with nodes_of(one) as fleet:
        found = survey(one, fleet)
        tell(found)
        handles = [left.handle for left in found.leftovers if args.rank in (None, left.handle.rank)]
        if not handles:
            raise Refused(f"nothing runs; logs of ended launches are in {one.logs.folder(one.state_dir)}")

        def wait() -> bool:
            time.sleep(FOLLOW_S)
            return any(fleet.runner.poll(handle) is None for handle in handles)

        follow = args.follow and any(fleet.runner.poll(handle) is None for handle in handles)
        for rank, line in lines(fleet.runner, lambda: handles, follow=follow, wait=wait):
            if args.all or not is_poll(line):
                print(f"rank {rank} | {line}", flush=args.follow)
    return 0
