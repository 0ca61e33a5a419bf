"""The guards that the settings ask for, beside the runner of the same name."""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection
from pathlib import Path

from build.errors import Refused
from build.nodes.hosts import HEAD
from supervisor.configuration import Configuration
from supervisor.gang.launch import Blueprint
from supervisor.guard.guards import Guards, HostedGuards, NoGuards
from supervisor.guard.processes import ProcessGuards, farewell
from supervisor.machine import Event
from supervisor.status.view import NodeGuard

PLATFORMS = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}


def tool(one: Blueprint) -> Path:
    """The node tool's binary for this machine, out of the bundle. ``Refused`` where it has none."""
    here = PLATFORMS.get(platform.machine(), platform.machine())
    if here not in one.bundle.node_tool:
        raise Refused(f"generation {one.generation} has no node tool for {here}, and no gang runs unguarded: run `doit`")
    return one.bundle.node_tool[here].program.under(one.store)


def guards_for(
    one: Configuration,
    current: Callable[[], Blueprint],
    *,
    post: Callable[[Event], None],
    say: Callable[[str, str], None],
    show: Callable[[NodeGuard], None],
) -> Guards:
    """Guards over every rank of this node's launches. ``current`` gives the generation whose node tool is to be used."""
    if one.serve.runner != "process":
        return NoGuards()
    return HostedGuards({HEAD: ProcessGuards(lambda: tool(current()), one.run_dir)}, one.run_dir, post=post, say=say, show=show)


def left_guards(one: Configuration) -> ProcessGuards:
    """Guards that an earlier supervisor left here: to be asked and forgotten, never to start one."""
    return ProcessGuards(Path, one.run_dir)


def forget_guards(one: Configuration, keep: Collection[str] = ()) -> None:
    """Send away guards that an earlier supervisor left, whose ranks have ended by now. ``keep`` are launches that go on."""
    host = left_guards(one)
    for launch_id, rank in host.launches():
        if launch_id not in keep:
            farewell(host, launch_id, rank)
