"""Where files that the store only links to are reached: ``outside/hub`` beside it, a link to this node's cache of the hub."""

from __future__ import annotations

import os
from pathlib import Path

OUTSIDE = Path("outside") / "hub"  # beside the store's folder
IN_CONTAINER = Path("/store")  # where a container sees the store
ON_NODE = "node:"  # how a record says that its files lie in the store of another node, under the same name


def on_node(target: str, store: str) -> str:
    """What a record says of files that lie in another node's store: its ssh target, and the store as it is called there."""
    return f"{ON_NODE}{target} {store}"


def is_on_node(outside: str) -> bool:
    """True where a record's files are on another node, and nothing of them is here but an empty folder."""
    return outside.startswith(ON_NODE)


def leads_out(folder: Path) -> bool:
    """True where a served folder reaches its files over ``outside/hub``."""
    with os.scandir(folder) as found:
        return any(item.is_symlink() and str(OUTSIDE) in os.readlink(item.path) for item in found)  # noqa: PTH115
