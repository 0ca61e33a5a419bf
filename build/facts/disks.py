"""``df -PB1``: free space by file system, read by position, since its header comes in the user's language."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileSystem:
    """One file system in bytes. ``device`` and ``mount`` tell two of them apart."""

    device: str
    total_bytes: int
    used_bytes: int
    available_bytes: int
    mount: str


def file_systems(text: str) -> tuple[FileSystem, ...]:
    """Read ``df -P -B1``: device, three numbers, a percentage, the mount point, which may hold spaces."""
    found = (re.match(r"^(.+?)\s+(\d+)\s+(\d+)\s+(-?\d+)\s+(?:\d+%|-)\s+(/.*)$", line) for line in text.splitlines())
    return tuple(FileSystem(m[1], int(m[2]), int(m[3]), int(m[4]), m[5]) for m in found if m)
