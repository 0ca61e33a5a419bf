"""``df -PB1``: free space by file system, read by position, since its header comes in the user's language."""

from __future__ import annotations

import re
from collections.abc import Iterable
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


# File systems whose bytes come over a network: random reads over them are slow, and their locks and events unsure.
NETWORK_TYPES = ("nfs", "cifs", "smb", "fuse.sshfs", "ceph", "lustre", "glusterfs", "fuse.glusterfs", "9p", "afs", "beegfs")


@dataclass(frozen=True, slots=True)
class Place:
    """The file system that a path is on, or would be on. ``kind`` is its type, such as ext4 or nfs4."""

    path: str
    kind: str
    file_system: FileSystem

    @property
    def network(self) -> bool:
        """Whether it is served by another machine."""
        return self.kind.startswith(NETWORK_TYPES)


def places(lines: Iterable[str]) -> tuple[Place, ...]:
    """Read pairs of lines: ``@ PATH``, then that path's row of ``df -PTB1``."""
    found, path = [], ""
    for line in lines:
        if line.startswith("@ "):
            path = line[2:]
            continue
        match = re.match(r"^(.+?)\s+(\S+)\s+(\d+)\s+(\d+)\s+(-?\d+)\s+(?:\d+%|-)\s+(/.*)$", line)
        if match and path:
            found.append(Place(path, match[2], FileSystem(match[1], int(match[3]), int(match[4]), int(match[5]), match[6])))
    return tuple(found)
