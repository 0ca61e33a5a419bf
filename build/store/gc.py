"""Garbage collection: what no root reaches goes. First its generation, then its record, then its path, then its bytes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from build.store import durable, generations, roots
from build.store.generations import Generation
from build.store.roots import Root
from build.store.store import Store


@dataclass(frozen=True, slots=True)
class Plan:
    """What would go."""

    entries: tuple[str, ...]
    generations: tuple[Generation, ...]
    bytes: int


def plan(store: Store, state_dir: Path, keep: int, more: tuple[Root, ...]) -> Plan:
    """Decide; nothing is changed. ``more``: further roots, e.g. what the present graph would use."""
    every = roots.every(state_dir, keep)
    stay = roots.reached(store, every, strict=True) | roots.reached(store, more, strict=False)
    go = tuple(e for e in store.entries() if e not in stay)
    return Plan(go, roots.kept(state_dir, keep)[1], sum(_size(store.path(e)) for e in go))


def carry_out(store: Store, state_dir: Path, keep: int, more: tuple[Root, ...]) -> Plan:
    """Decide again with the store to itself, and remove."""
    with store.exclusive():
        decided = plan(store, state_dir, keep, more)
        for generation in decided.generations:
            generations.remove(state_dir, generation)
        away = [store.discard(entry) for entry in decided.entries]
    for path in away:
        if path is not None:
            durable.remove_tree(path.parent)
    return decided


def _size(path: Path) -> int:
    if not path.is_dir():
        return path.lstat().st_size if os.path.lexists(path) else 0
    return sum((Path(folder) / name).lstat().st_size for folder, _, files in os.walk(path) for name in files)
