"""What a listing of a repository's folder in the hub's cache holds of a snapshot, pure."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Name:
    """One name below a repository's folder: ``kind`` is f, d or l; ``target`` is a link's."""

    kind: str
    size: int
    path: str
    target: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """What a snapshot holds. ``inside`` and ``outside``: names whose content is in the folder, or beyond it at the given path;
    ``incomplete``: names whose blob is still partly fetched, or gone. ``copied_bytes``: what a copy of the folder would ship
    that does not follow links out of it."""

    revision_found: bool
    inside: tuple[str, ...] = ()
    outside: tuple[tuple[str, str], ...] = ()
    incomplete: tuple[str, ...] = ()
    copied_bytes: int = 0


def survey(folder: str, revision: str, names: Iterable[Name]) -> Found:
    """What the snapshot of ``revision`` holds, by a listing of the repository's ``folder``. refs are not asked: who downloads
    by commit leaves none."""
    listed = {n.path: n for n in names}
    prefix = f"snapshots/{revision}/"
    if prefix.rstrip("/") not in listed:
        return Found(revision_found=False)
    inside, outside, incomplete, copied = [], [], [], 0
    for name in sorted(p for p, n in listed.items() if p.startswith(prefix) and n.kind != "d"):
        short, end = name.removeprefix(prefix), _end(folder, listed, name)
        blob = listed.get(posixpath.relpath(end, folder)) if _within(end, folder) else None
        if not _within(end, folder):
            outside.append((short, end))
        elif blob is None or blob.kind != "f":
            incomplete.append(short)
        else:
            inside.append(short)
    copied = sum(n.size for n in listed.values() if n.kind == "f")
    return Found(True, tuple(inside), tuple(outside), tuple(incomplete), copied)


def _end(folder: str, listed: dict[str, Name], path: str) -> str:
    """Where a name leads, link by link, as an absolute path."""
    here = posixpath.join(folder, path)
    for _ in range(40):  # the kernel's own bound on links
        name = listed.get(posixpath.relpath(here, folder)) if _within(here, folder) else None
        if name is None or name.kind != "l":
            return here
        here = posixpath.normpath(posixpath.join(posixpath.dirname(here), name.target))
    return here


def _within(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")
