"""Where the ranks of different hosts meet: the head's IPv4 address on the way to its workers."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable, Sequence
from ipaddress import IPv4Network
from pathlib import Path

from build.errors import Refused, UsageError
from build.nodes.hosts import Host
from build.nodes.named import Target, judge, read_target
from build.nodes.node import probe_target
from build.nodes.ssh_link import Destination

ANYWHERE = (IPv4Network("0.0.0.0/0"),)
DISCARD_PORT = 9  # nothing is sent: a connected datagram socket only asks the kernel for the way


def fabric(host: Host, ssh_config: Path | None) -> str:
    """A worker's IPv4 address on the link: what was said of it, else what ssh takes its name for."""
    destination = Destination(host.name, host.target, config=ssh_config)
    target = Target(host.target, "", 22) if host.fabric else read_target(probe_target(destination), getpass.getuser())
    found = judge(target, host.fabric, ANYWHERE, lookup)
    if found.problem:
        raise UsageError(f"{host.name}: {found.problem}")
    return found.fabric


def paths(host: Host, ssh_config: Path | None) -> tuple[str, ...]:
    """Every IPv4 address by which a worker is known to be reached: on the link, and where ssh goes."""
    destination = Destination(host.name, host.target, config=ssh_config)
    read = read_target(probe_target(destination), getpass.getuser())
    found = (fabric(host, ssh_config), judge(read, "", ANYWHERE, lookup).fabric)
    return tuple(dict.fromkeys(address for address in found if address))


def master(workers: Sequence[Host], ssh_config: Path | None, way: Callable[[str], str] | None = None) -> str:
    """The head's own address towards all of the workers. ``Refused`` where there is none, or not one for all."""
    own = {host.name: (way or source_towards)(fabric(host, ssh_config)) for host in workers}
    if len(set(own.values())) > 1:
        shown = ", ".join(f"{address} towards {name}" for name, address in sorted(own.items()))
        raise Refused(
            f"the workers are reached from several addresses of this host ({shown}): set master_addr to one that all reach"
        )
    return next(iter(own.values()))


def source_towards(address: str) -> str:
    """Which of this host's addresses the kernel would speak from. ``Refused`` where it knows no way."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as asked:
        try:
            asked.connect((address, DISCARD_PORT))
        except OSError as error:
            raise Refused(f"there is no way to {address} ({error.strerror}): is the link up? `ip route get {address}`") from None
        return str(asked.getsockname()[0])


def lookup(name: str) -> str | None:
    """A host name's IPv4 address, or None."""
    try:
        return socket.gethostbyname(name)
    except (OSError, UnicodeError):  # the latter for a form that is no name at all, such as two dots in a row
        return None
