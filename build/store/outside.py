"""Where files that the store only links to are reached: ``outside/hub`` beside it, a link to this node's cache of the hub."""

from __future__ import annotations

import os
from pathlib import Path

OUTSIDE = Path("outside") / "hub"  # beside the store's folder
IN_CONTAINER = Path("/store")  # where a container sees the store


def leads_out(folder: Path) -> bool:
    """True where a served folder reaches its files over ``outside/hub``."""
    with os.scandir(folder) as found:
        return any(item.is_symlink() and str(OUTSIDE) in os.readlink(item.path) for item in found)  # noqa: PTH115
