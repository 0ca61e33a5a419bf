"""What a launch needs beside the store's entries: the hub's cache in containers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from build.bundle import StoreRef
from build.store.hashing import walk
from build.store.outside import OUTSIDE, leads_out


def outside_mounts(store: Path, refs: Iterable[StoreRef], node_store: Path) -> tuple[tuple[Path, str], ...]:
    """(place on the node, place in the container): the hub's whole cache, and folders beyond it that its links end in.

    ``store`` is the head's, ``node_store`` that of the rank's node. Beyond its cache only the head's links can be followed here.
    """
    folders = [ref.under(store) for ref in refs]
    out = [f for f in folders if f.is_dir() and leads_out(f)]
    if not out:
        return ()
    if node_store != store:
        return ((node_store.parent / OUTSIDE, f"/{OUTSIDE}"),)
    cache = (store.parent / OUTSIDE).resolve()
    ends = {path.resolve().parent for folder in out for path, _ in walk(folder) if path.is_symlink()}
    beyond = sorted(str(e) for e in ends if not e.is_relative_to(cache) and not e.is_relative_to(store.resolve()))
    return ((cache, f"/{OUTSIDE}"), *((Path(e), e) for e in beyond))
