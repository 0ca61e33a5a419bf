"""Commands on the nodes before anything runs: what they are, what fits them, and the first config.toml."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import PurePosixPath

from build.errors import Refused
from build.nodes.hosts import HEAD
from build.settings import Sources
from supervisor.configuration import Configuration, configure


def doctor(args: Namespace, sources: Sources) -> int:
    """``supervisor doctor``: 3 where something forbids a launch, 1 on warnings where they count."""
    from supervisor.doctor.command import doctor as examine

    return examine(configure(sources), args)


def plan(args: Namespace, sources: Sources) -> int:
    """``supervisor plan``: what memory a launch needs on each node, and what the answer rests on; 3 where it does not fit."""
    from supervisor.gang import gate
    from supervisor.gang.launch import blueprint
    from supervisor.memory import report
    from supervisor.memory.needs import reserve_differs

    one = configure(sources)
    planned = blueprint(one)
    read, unread = _workers_memory(one)
    available = {HEAD: gate.available_bytes(one.memory), **read, **dict.fromkeys(unread, 0)}
    rests_on = ("context", "parallel", "min_avail_gib", "launch_gate_gib", "context_bytes_per_token", "target", "state_dir")
    shown = tuple((name, str(_value(one, name)), one.origins[name].where) for name in rests_on)
    notes = tuple(filter(None, [reserve_differs(one)]))
    window, memory = planned.bundle.window_tokens, one.memory
    asked = report.Asked(one.serve.context, window, memory.floor_bytes, memory.min_avail_gib, shown, notes)
    nodes = {node: available[node] for node in dict.fromkeys(planned.nodes)}
    found = report.report(asked, lambda at: planned.plans_at(nodes, at), unread, planned.needs.measured_at)
    print(json.dumps(found, indent=1) if args.json else report.as_text(found))
    if found["refused"]:
        raise Refused(found["refused"])
    return 0


def _workers_memory(one: Configuration) -> tuple[Mapping[str, int], Mapping[str, str]]:
    """What each worker has available, by name; and why it was not read of the others."""
    from supervisor.doctor.inquiry import inquire
    from supervisor.fleet import memory

    nodes = inquire(one).open()
    try:
        workers = [node for name, node in nodes.items() if name != HEAD]
        return memory.available(workers, PurePosixPath(one.links.worker_proc_root))
    finally:
        for node in nodes.values():
            node.close()


def _value(one: Configuration, name: str) -> object:
    """A setting's value; of the state folder, where it is, since its own may be empty."""
    if name == "state_dir":
        return one.state_dir
    return next(getattr(group, name) for group in (one.serve, one.memory, one.places) if hasattr(group, name))


def init(args: Namespace, sources: Sources) -> int:
    """``supervisor init``: asks only where a person sits at a terminal."""
    from supervisor.doctor.init import init as begin

    return begin(args, sources, input if sys.stdin.isatty() else None)
