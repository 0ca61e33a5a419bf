"""A node's memory, asked for over its connection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from build.errors import TwinfoldError
from build.facts.memory import Meminfo, meminfo
from build.nodes.node import Node

READ_S = 5.0


def far_meminfo(node: Node, proc: PurePosixPath) -> Meminfo:
    """``meminfo`` below the proc tree there. ``ValueError`` where it is none, a ``NodeError`` where it cannot be had."""
    return meminfo(node.run(["cat", "--", str(proc / "meminfo")], READ_S).text)


def available(nodes: Iterable[Node], proc: PurePosixPath) -> tuple[Mapping[str, int], Mapping[str, str]]:
    """What each node has available, by name; and why it was not read of the others."""
    read: dict[str, int] = {}
    troubles: dict[str, str] = {}
    for node in nodes:
        try:
            read[node.name] = far_meminfo(node, proc).available_bytes
        except (TwinfoldError, ValueError) as error:
            troubles[node.name] = str(error)
    return read, troubles
