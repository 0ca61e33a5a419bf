"""Namespaces, cables and addresses, through iproute2. Two hosts share veth pairs; more share bridges in one more namespace."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.testbed.layout import IPV6_PREFIX, NETWORKS, RAIL0, HostPlan, Layout, Network

NETNS = Path("/run/netns")


def commands(layout: Layout) -> list[str]:
    """The ``ip -batch`` lines that make all of it, in order. A function of the layout alone."""
    lines = [f"netns add {host.name}" for host in layout.hosts]
    cables = _bridged if layout.size > 2 else _paired
    return lines + cables(layout)


def inside(host: HostPlan) -> list[str]:
    """The ``ip -n HOST -batch`` lines that give one host its addresses and bring its ports up."""
    lines = ["link set lo up"]
    for network in NETWORKS:
        lines.append(f"address add {host.address(network)}/24 dev {network.device}")
        lines.append(f"link set {network.device} up")
    lines.append(f"address add {IPV6_PREFIX}{host.number}/64 dev {RAIL0.device} nodad")
    return lines


def _paired(layout: Layout) -> list[str]:
    a, b = layout.hosts
    return [
        f"link add {n.device} netns {a.name} mtu {n.mtu} type veth peer name {n.device} netns {b.name} mtu {n.mtu}"
        for n in NETWORKS
    ]


def _bridged(layout: Layout) -> list[str]:
    lines = [f"netns add {layout.switch}"]
    for network in NETWORKS:
        for host in layout.hosts:
            port = _port(network, host)
            lines.append(
                f"link add {network.device} netns {host.name} mtu {network.mtu} type veth "
                f"peer name {port} netns {layout.switch} mtu {network.mtu}"
            )
    return lines


def switch_inside(layout: Layout) -> list[str]:
    """The ``ip -n SWITCH -batch`` lines that make the bridges."""
    lines = []
    for network in NETWORKS:
        lines += [f"link add {network.name} type bridge", f"link set {network.name} up"]
        for host in layout.hosts:
            lines += [f"link set {_port(network, host)} master {network.name}", f"link set {_port(network, host)} up"]
    return lines


def _port(network: Network, host: HostPlan) -> str:
    return f"{network.name}-{host.number}"


def make(layout: Layout) -> None:
    """Make every namespace and cable; the namespaces must not exist."""
    _batch(commands(layout))
    for host in layout.hosts:
        in_namespace(host.name, ["sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/all/keep_addr_on_down"])
        _batch(inside(host), host.name)
    if layout.size > 2:
        _batch(switch_inside(layout), layout.switch)


def remove(layout: Layout) -> None:
    """Delete the namespaces that exist; their cables go with them."""
    for name in layout.namespaces:
        if (NETNS / name).exists():
            subprocess.run(["ip", "netns", "delete", name], check=True, capture_output=True)


def in_namespace(namespace: str, argv: list[str]) -> str:
    """Run a program in a namespace's network, and give what it printed. Raises with its words when it fails."""
    command = ["nsenter", f"--net={NETNS / namespace}", "--", *argv]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)} in {namespace}: {done.stderr.strip()}")
    return done.stdout


def members(namespace: str) -> tuple[int, ...]:
    """Pids of every process in a network namespace."""
    try:
        inode = (NETNS / namespace).stat().st_ino
    except FileNotFoundError:
        return ()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "ns/net").stat().st_ino == inode:
                    found.append(int(entry.name))
            except OSError:
                continue
    return tuple(found)


def _batch(lines: list[str], namespace: str = "") -> None:
    command = ["ip", *(["-n", namespace] if namespace else []), "-batch", "-"]
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip -batch {namespace}: {done.stderr.strip()}")
