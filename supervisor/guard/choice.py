"""The guards that the settings ask for, beside the runner of the same name."""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection, Mapping
from pathlib import Path, PurePosixPath

from build.errors import Refused, TwinfoldError
from build.machine import platform_of
from build.nodes.hosts import HEAD
from supervisor.configuration import Configuration
from supervisor.fleet import address
from supervisor.fleet.fleet import Fleet
from supervisor.fleet.site import GuardPost
from supervisor.gang import identity
from supervisor.gang.launch import Blueprint
from supervisor.guard.containers import ContainerGuards
from supervisor.guard.guards import Guards, HostedGuards
from supervisor.guard.host import GuardHost
from supervisor.guard.leases import lease
from supervisor.guard.processes import ProcessGuards, farewell
from supervisor.guard.spec import Lease
from supervisor.machine import Event
from supervisor.status.view import NodeGuard


def tool(one: Blueprint) -> Path:
    """The node tool's binary for this machine, out of the bundle. ``Refused`` where it has none."""
    here = platform_of(platform.machine())
    if here not in one.bundle.node_tool:
        raise Refused(f"generation {one.generation} has no node tool for {here}, and no gang runs unguarded: run `doit`")
    return one.bundle.node_tool[here].program.under(one.store)


def hosts_for(one: Configuration, fleet: Fleet, current: Callable[[], Blueprint]) -> dict[str, GuardHost]:
    """What runs guards on each node. ``current`` gives the generation whose node tool is to be used."""
    if one.serve.runner != "docker":
        return {HEAD: ProcessGuards(lambda: tool(current()), one.run_dir)}
    there = PurePosixPath(one.links.worker_proc_root)
    here = PurePosixPath(one.memory.proc_root.absolute())
    owner = identity.own(one.state_dir).id  # as their ranks' containers carry it: it moves with the folder
    return {
        name: ContainerGuards(
            post.api,
            post.place,
            image=_image(name, post, current),
            user=_user(post),
            proc=here if name == HEAD else there,
            owner=owner,
        )
        for name, post in fleet.guard_posts.items()
    }


def guards_for(
    one: Configuration,
    hosts: Mapping[str, GuardHost],
    current: Callable[[], Blueprint],
    *,
    post: Callable[[Event], None],
    say: Callable[[str, str], None],
    show: Callable[[NodeGuard], None],
) -> Guards:
    """Guards over every rank of this supervisor's launches."""

    def part(rank: int, node: str) -> Lease:
        now = current()
        config = now.configuration.workers.ssh_config
        return lease(rank, node, now.hosts, lambda host: address.paths(host, config), now.configuration.links.lease_port)

    return HostedGuards(hosts, one.run_dir, post=post, say=say, show=show, lease=part)


def told_by(hosts: Mapping[str, GuardHost]) -> Callable[[str, int], bytes]:
    """What the guard of (launch id, rank) logged of ending its rank, wherever it was."""

    def told(launch_id: str, rank: int) -> bytes:
        return next((found for host in hosts.values() if (found := host.log(launch_id, rank))), b"")

    return told


def forget_guards(hosts: Mapping[str, GuardHost], keep: Collection[str] = ()) -> None:
    """Send away guards that an earlier supervisor left, whose ranks have ended by now. ``keep`` are launches that go on."""
    for host in hosts.values():
        try:
            for launch_id, rank in host.launches():
                if launch_id not in keep:
                    farewell(host, launch_id, rank)
        except TwinfoldError:  # out of reach: so are its ranks, and whoever asks has said so
            continue


def _image(name: str, post: GuardPost, current: Callable[[], Blueprint]) -> Callable[[], str]:
    def image() -> str:
        one, platform_ = current(), post.site().platform
        if platform_ not in one.bundle.node_tool:
            raise Refused(f"{name} is {platform_}, and generation {one.generation} has no node tool for it: run `doit`")
        return post.image_id(one.bundle.node_tool[platform_].image)

    return image


def _user(post: GuardPost) -> Callable[[], str]:
    return lambda: post.site().user
