"""What must stay: roots, and everything that they reach.

Roots are the bundles of the newest generations and of ``current``, the bundles of running launches
(``run/roots/<launch>.json``, written by whoever launches), and explicit ones: links in ``roots/`` to paths of the store.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from build import machine
from build.errors import StoreDamaged, UsageError
from build.store import durable, generations
from build.store.generations import BUNDLE_FILE, Generation
from build.store.store import ENTRY, Store

boot_id = machine.boot_id  # a running launch is a root of this boot only


@dataclass(frozen=True, slots=True)
class Root:
    """An entry that must stay, and why, for a person."""

    entry: str
    why: str


def hold(state_dir: Path, launch: str, bundle_entry: str, pid: int, start: int) -> Path:
    """Make a launch's bundle a root; ``start`` is the process's start time. The file is the caller's to remove."""
    folder = state_dir / "run" / "roots"
    folder.mkdir(parents=True, exist_ok=True)
    raw = {"bundle": bundle_entry, "pid": pid, "start": start, "boot_id": boot_id()}
    file = folder / f"{launch}.json"
    durable.replace_file(file, (json.dumps(raw) + "\n").encode(), 0o644)
    return file


def launches(state_dir: Path, boot: str) -> tuple[Root, ...]:
    """Bundles of launches of this boot. A dead supervisor's ranks may live on, so its file counts until someone removes it."""
    found = []
    for file in sorted((state_dir / "run" / "roots").glob("*.json")):
        try:
            raw = json.loads(file.read_text(encoding="utf-8"))
            if raw.get("boot_id", boot) == boot:
                found.append(Root(str(raw["bundle"]), f"launch {file.stem}"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, AttributeError) as error:
            raise StoreDamaged(f"{file} is no readable root ({error}): remove it if no gang of that launch runs") from None
    return tuple(found)


def explicit(state_dir: Path) -> tuple[Root, ...]:
    """Entries that links in ``roots/`` point at."""
    folder = state_dir / "roots"
    links = sorted(p for p in folder.iterdir() if p.is_symlink()) if folder.is_dir() else []
    named = [(link, next((part for part in reversed(link.readlink().parts) if ENTRY.fullmatch(part)), None)) for link in links]
    return tuple(Root(entry, f"roots/{link.name}") for link, entry in named if entry is not None)


def kept(state_dir: Path, keep: int) -> tuple[tuple[Generation, ...], tuple[Generation, ...]]:
    """Generations to keep (the newest ``keep`` of each target, and the current one), and those to forget."""
    if keep < 1:
        raise UsageError(f"keep = {keep}: at least the newest generation stays")
    stay: list[Generation] = []
    go: list[Generation] = []
    for target in generations.targets(state_dir):
        here = generations.current_or_none(state_dir, target)
        made = generations.every(state_dir, target)
        newest = {g.number for g in made[-keep:]} | ({here.number} if here else set())
        stay += [g for g in made if g.number in newest]
        go += [g for g in made if g.number not in newest]
    return tuple(stay), tuple(go)


def every(state_dir: Path, keep: int) -> tuple[Root, ...]:
    """All roots of a state folder."""
    stay, _ = kept(state_dir, keep)
    made = tuple(Root(g.bundle_entry, f"generation {g.number} of {g.target}") for g in stay)
    return (*made, *launches(state_dir, boot_id()), *explicit(state_dir))


def reached(store: Store, roots: Iterable[Root], *, strict: bool) -> frozenset[str]:
    """Every entry that the roots reach. ``strict``: ``StoreDamaged`` where a record is missing or unreadable, which hides what
    it reaches; else what can still be read of it counts."""
    found: set[str] = set()
    waiting = [(r.entry, r.why) for r in roots]
    while waiting:
        entry, why = waiting.pop()
        if entry in found:
            continue
        found.add(entry)
        there = store.find(entry)
        if there is None and strict:
            raise StoreDamaged(f"{entry}, which {why} needs, is not whole: run `doit repair` first")
        waiting += [(name, why) for name in ([i.entry for i in there.inputs.values()] if there else _mentioned(store, entry))]
    return frozenset(found)


def _mentioned(store: Store, entry: str) -> list[str]:
    """Paths of the store that an unreadable record, or the bundle that it spoke of, still names."""
    names: set[str] = set()
    for file in (store.record_path(entry), store.path(entry) / BUNDLE_FILE):
        with suppress(OSError):
            names |= set(ENTRY.findall(file.read_text(encoding="utf-8", errors="replace")))
    return sorted(name for name in names if store.path(name).exists())
