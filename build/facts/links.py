"""What ``ip -j addr`` and ``ip -j route get`` print: network devices with their addresses and MTU, and the way to a peer."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv4Network
from typing import Any

VIRTUAL = ("lo", "docker", "br-", "veth", "virbr", "tailscale", "wg", "tun", "tap", "cni", "flannel")


@dataclass(frozen=True, slots=True)
class Netdev:
    """One network device. ``up``: it is on and sees a carrier; ``inet`` are its IPv4 addresses with their networks."""

    name: str
    mtu: int
    up: bool
    inet: tuple[IPv4Interface, ...]

    @property
    def physical(self) -> bool:
        """Whether it looks like a port of the machine, and not like a bridge or a tunnel made by software."""
        return not self.name.startswith(VIRTUAL)

    def networks(self) -> tuple[IPv4Network, ...]:
        """The networks of its addresses, without link-local ones."""
        return tuple(own.network for own in self.inet if not own.is_link_local)


@dataclass(frozen=True, slots=True)
class Route:
    """The way to a peer: through which device, from which address, over which gateway ("" for a direct one)."""

    peer: str
    device: str
    source: str
    gateway: str = ""


def netdevs(text: str) -> tuple[Netdev, ...]:
    """Read ``ip -j addr``. ``ValueError`` where it is not that."""
    return tuple(_netdev(row) for row in _rows(text, "ip -j addr"))


def route(text: str) -> Route:
    """Read ``ip -j route get ADDRESS``. ``ValueError`` where it names no route: an empty answer is a failed call."""
    rows = _rows(text, "ip -j route get")
    if not rows:
        raise ValueError("ip -j route get names no route")
    one = rows[0]
    try:
        return Route(str(one["dst"]), str(one["dev"]), str(one.get("prefsrc", "")), str(one.get("gateway", "")))
    except KeyError as error:
        raise ValueError(f"ip -j route get does not say {error}") from None


def routes(lines: Iterable[str]) -> tuple[Route, ...]:
    """Read several answers, one a line; those that name no route are left out."""
    found = []
    for line in lines:
        try:
            found.append(route(line))
        except ValueError:
            continue
    return tuple(found)


def _rows(text: str, command: str) -> list[dict[str, Any]]:
    try:
        rows = json.loads(text)
    except ValueError:
        raise ValueError(f"{command} gave no JSON: {text.strip()[:80]!r}") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{command} gave no list of objects")
    return [row for row in rows if row]


def _netdev(row: dict[str, Any]) -> Netdev:
    flags = row.get("flags") or []
    carrier = "LOWER_UP" in flags and "NO-CARRIER" not in flags
    inet = (one for one in row.get("addr_info") or [] if one.get("family") == "inet" and "local" in one)
    try:
        addresses = tuple(IPv4Interface(f"{one['local']}/{one.get('prefixlen', 32)}") for one in inet)
        return Netdev(str(row["ifname"]), int(row["mtu"]), "UP" in flags and carrier, addresses)
    except (KeyError, ValueError) as error:
        raise ValueError(f"ip -j addr has a device that cannot be read: {error}") from None
