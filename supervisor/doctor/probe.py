"""Full-size packets over every rail, never fragmented, both ways: the node tool's echo where both ends have it, else ping.

An echo comes back at full size, so one exchange proves both directions. Without the node tool each end pings the other, as a
kernel's answer may be fragmented. Where neither is there nothing is proven, and nothing is said.
"""

from __future__ import annotations

import contextlib
import json
import random
import shlex
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from build.nodes.hosts import HEAD
from build.nodes.node import Node
from build.nodes.ssh_errors import NodeError
from supervisor.doctor.facts import NodeFacts
from supervisor.doctor.links import Links, Probed
from supervisor.doctor.rails import End

DEADLINE_S = 8.0
HEADERS_BYTES = 28  # IPv4 and UDP, or IPv4 and ICMP
COUNT = 5
PORTS = range(20000, 30000)
IDLE_MS = 400
# Each line: ADDRESS PORT DEVICE. All listeners end by themselves.
LISTEN = 'cd "$1"; while read a p d; do "$2" probe listen "$a" "$p" --idle-ms "$3" --max-ms 4000 >/dev/null & done; wait'
# Each line: KEY ADDRESS PORT FROM DEVICE SIZE. The listener may be late: what is refused is tried again.
SEND = """cd "$1"; while read k a p f d s; do (
  for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    o=$("$2" probe send "$a" "$p" --size "$s" --count "$3" --timeout-ms 300 --from "$f" --device "$d")
    case "$o" in *'"refused":0'*) break ;; esac; sleep 0.05
  done; echo "$k $o") & done; wait"""
# Each line: KEY ADDRESS FROM SIZE.
PING = """while read k a f s; do (
  ping -q -M do -c 2 -i 0.2 -W 1 -s "$s" -I "$f" "$a" >/dev/null 2>&1; echo "$k $?") & done; wait"""


@dataclass(frozen=True, slots=True)
class _Way:
    """One rail between the head and one worker."""

    key: str
    rail: int
    own: End
    there: End
    port: int

    @property
    def size(self) -> int:
        return min(self.own.netdev.mtu, self.there.netdev.mtu) - HEADERS_BYTES


def probe(opened: Mapping[str, Node], facts: Mapping[str, NodeFacts], links: Links) -> tuple[Probed, ...]:
    """What became of full-size packets on each rail in use; nothing for those that nobody could send."""
    ways = [
        _Way(f"{rail.number}/{end.node}", rail.number, rail.ends[0], end, random.choice(PORTS))  # noqa: S311 # spreads ports, hides nothing
        for rail in links.rails
        for end in rail.ends[1:]
        if len({one.netdev.mtu for one in rail.ends}) == 1  # a known difference needs no proof
    ]
    by_tool = [way for way in ways if facts[HEAD].tool and facts[way.there.node].tool]
    by_ping = [way for way in ways if way not in by_tool and facts[HEAD].ping and facts[way.there.node].ping]
    return (*_echo(opened, facts, by_tool), *_ping(opened, by_ping))


def _echo(opened: Mapping[str, Node], facts: Mapping[str, NodeFacts], ways: Sequence[_Way]) -> tuple[Probed, ...]:
    if not ways:
        return ()
    for name in sorted({way.there.node for way in ways}):
        lines = "".join(f"{w.there.address} {w.port} {w.there.netdev.name}\n" for w in ways if w.there.node == name)
        listen = _shell(LISTEN, opened[name], facts[name].tool, IDLE_MS)
        # it ends by itself once nothing comes any more, and nobody has to wait for that
        threading.Thread(target=_listen, args=(opened[name], listen, lines), name=f"listen-{name}", daemon=True).start()
    lines = "".join(f"{w.key} {w.there.address} {w.port} {w.own.address} {w.own.netdev.name} {w.size}\n" for w in ways)
    printed = _quiet(opened[HEAD], _shell(SEND, opened[HEAD], facts[HEAD].tool, COUNT), lines)
    said = dict(line.split(" ", 1) for line in printed.splitlines() if " " in line)
    return tuple(Probed(way.rail, way.there.node, way.size, outcome(said.get(way.key, ""))) for way in ways)


def _ping(opened: Mapping[str, Node], ways: Sequence[_Way]) -> tuple[Probed, ...]:
    if not ways:
        return ()
    lines = {HEAD: "".join(f"{w.key} {w.there.address} {w.own.address} {w.size}\n" for w in ways)}
    for way in ways:
        lines[way.there.node] = lines.get(way.there.node, "") + f"{way.key} {way.own.address} {way.there.address} {way.size}\n"
    with ThreadPoolExecutor(len(lines)) as pool:
        printed = dict(
            zip(lines, pool.map(lambda name: _quiet(opened[name], ["sh", "-c", PING], lines[name]), lines), strict=True)
        )
    statuses = {
        name: dict(line.split() for line in text.splitlines() if len(line.split()) == 2) for name, text in printed.items()
    }
    found = []
    for way in ways:
        said = [statuses[name].get(way.key) for name in (HEAD, way.there.node)]
        if None not in said:
            outcome = "ok" if said == ["0", "0"] else "lost " + ("on the way there" if said[0] != "0" else "on the way back")
            found.append(Probed(way.rail, way.there.node, way.size, outcome))
    return tuple(found)


def _shell(script: str, node: Node, tool: str, *more: object) -> list[str]:
    return ["sh", "-c", script, "probe", str(node.store), f"./{tool}", *map(str, more)]


def _quiet(node: Node, argv: Sequence[str], lines: str) -> str:
    try:
        return node.run(argv, DEADLINE_S, stdin=lines.encode(), check=False).text
    except NodeError:
        return ""


def _listen(node: Node, argv: Sequence[str], lines: str) -> None:
    """Whoever asked may have closed the node by now, in whatever moment."""
    with contextlib.suppress(Exception):
        _quiet(node, argv, lines)


def outcome(printed: str) -> str:
    """The node tool's line as a word or two; "ok" where full-size packets come through.

    One that comes back proves the path: where it is too narrow none does. A packet lost on a busy machine is no reason to refuse.
    """
    try:
        said = json.loads(printed)
        if said["received"] > 0 and not said["too_big"]:
            return "ok"
        return (
            ", ".join(f"{said[name]} {name}" for name in ("lost", "too_big", "refused", "unreachable") if said.get(name))
            or "lost"
        )
    except (ValueError, KeyError, TypeError):
        return f"no answer {shlex.quote(printed.strip()[:60])}" if printed.strip() else "no answer"
