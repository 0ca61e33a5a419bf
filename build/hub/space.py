"""Disk need by what is missing, for each file system once: pure sums, and the one look at the disks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from build.errors import BuildFailed
from build.units import GIB

SPARE_BYTES = 1 << 30  # a file system that is filled to its last block fails others too


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that will be written below ``folder``."""

    folder: Path
    bytes: int


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system: its device number and what a user may still write."""

    device: int
    free_bytes: int


def shortages(needs: Iterable[Need], disks: Mapping[Path, Disk]) -> tuple[str, ...]:
    """One line for each file system that has too little; needs on one file system add up."""
    by_device: dict[int, list[Need]] = {}
    for need in needs:
        if need.bytes > 0:
            by_device.setdefault(disks[need.folder].device, []).append(need)
    lines = []
    for on_it in by_device.values():
        wanted, free = sum(n.bytes for n in on_it), disks[on_it[0].folder].free_bytes
        if wanted + SPARE_BYTES > free:
            where = ", ".join(sorted({str(n.folder) for n in on_it}))
            lacks = (wanted + SPARE_BYTES - free) / GIB
            lines.append(f"{where}: {wanted / GIB:.1f} GiB are missing, {free / GIB:.1f} GiB are free: free {lacks:.1f} GiB more")
    return tuple(lines)


def disk(folder: Path) -> Disk:
    """The file system that ``folder``, or its nearest parent that exists, lies on."""
    there = next(p for p in (folder, *folder.parents) if p.exists())
    found = os.statvfs(there)
    return Disk(there.stat().st_dev, found.f_bavail * found.f_frsize)


def require(what: str, needs: Iterable[Need]) -> None:
    """``BuildFailed`` where a disk has too little room."""
    asked = tuple(needs)
    lines = shortages(asked, {n.folder: disk(n.folder) for n in asked})
    if lines:
        raise BuildFailed(f"{what}: " + "; ".join(lines))
