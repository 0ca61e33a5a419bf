"""What is made of a worker's name: the ssh target, and the worker's IPv4 address on the link. Pure.

The target goes to ssh as it is; ``ssh -G`` says what ssh makes of it, so that aliases, users, ports and IPv6 are never cut out by
hand. The engine takes IPv4 addresses only, on the link, so an address that is not on it is asked for.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

Lookup = Callable[[str], str | None]  # a host name -> its IPv4 address, or None


@dataclass(frozen=True, slots=True)
class Target:
    """What ``ssh -G`` says of a target. ``user`` is empty where it is the one who asks."""

    host: str
    user: str
    port: int


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker as it was named. ``fabric``: its IPv4 address on the link, "" if not known; ``problem``: "" if all is well."""

    target: Target
    fabric: str
    problem: str


NOTHING = Target("", "", 0)


def read_target(printed: str, local_user: str) -> Target:
    """Read the output of ``ssh -G``: one ``keyword value`` a line. ``ValueError`` where host or port is missing."""
    table = dict(line.split(" ", 1) for line in printed.splitlines() if " " in line)
    try:
        user = table.get("user", "")
        return Target(table["hostname"], "" if user == local_user else user, int(table["port"]))
    except KeyError as error:
        raise ValueError(f"ssh -G does not say {error}") from None


def judge(target: Target, fabric_peer: str, link: Iterable[IPv4Network], lookup: Lookup) -> Worker:
    """Find the worker's address on the link. ``link``: networks of the head's link ports; ``lookup`` resolves a name to IPv4."""
    form = _form_problem(target.host)
    if form:
        return Worker(target, "", form)
    if fabric_peer:
        return _given(target, fabric_peer, lookup)
    return _found(target, tuple(link), lookup)


def _form_problem(host: str) -> str:
    """Forms that ssh takes for a name although an address was meant."""
    if "[" in host or "]" in host:
        return (
            f"ssh keeps the brackets of {host} as part of the name: write the address without them, or ssh://user@[address]:port"
        )
    name, colon, port = host.rpartition(":")
    if colon and ":" not in name and port.isdigit():
        return (
            f"ssh takes :{port} for a part of the name {host}: write ssh://user@{name}:{port}, or give the port in ~/.ssh/config"
        )
    return ""


def _given(target: Target, fabric_peer: str, lookup: Lookup) -> Worker:
    if "/" in fabric_peer:
        return Worker(
            target, "", f"FABRIC_PEER={fabric_peer} is a network, and an address is wanted: leave out the prefix length"
        )
    found = _ipv4(fabric_peer) or lookup(fabric_peer)
    if found is None:
        return Worker(
            target,
            "",
            f"FABRIC_PEER={fabric_peer} does not resolve to an IPv4 address: the engine takes no other; give the address",
        )
    return Worker(target, found, "")


def _found(target: Target, link: tuple[IPv4Network, ...], lookup: Lookup) -> Worker:
    ask = "set FABRIC_PEER to the worker's IPv4 address on the link"
    if ":" in target.host:
        return Worker(target, "", f"{target.host} is IPv6, which ssh can use and the link cannot: {ask}")
    address = _ipv4(target.host) or lookup(target.host)
    if address is None:
        return Worker(target, "", f"{target.host} does not resolve to an IPv4 address: {ask}")
    if not any(IPv4Address(address) in network for network in link):
        return Worker(target, "", f"{target.host} ({address}) is an address off the link: {ask}")
    return Worker(target, address, "")


def _ipv4(word: str) -> str | None:
    try:
        return str(ipaddress.IPv4Address(word))
    except ValueError:
        return None
