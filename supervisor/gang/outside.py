"""What a launch needs beside the store's entries: the hub's cache in containers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from build.bundle import StoreRef
from build.replication.beside import beside
from build.store.hashing import walk
from build.store.outside import OUTSIDE, leads_out
from build.store.store import Store


def outside_mounts(store: Path, refs: Iterable[StoreRef], node_store: Path, *, shared: bool) -> tuple[tuple[Path, str], ...]:
    """(place on the node, place in the container): the hub's whole cache, and folders beyond it that its links end in.

    ``store`` is the head's, ``node_store`` that of the rank's node. A worker has what its ranks read as entries of its own; where
    it sees the head's store (``shared``), it sees the cache beside it.
    """
    refs = tuple(refs)
    out = [f for f in (ref.under(store) for ref in refs) if f.is_dir() and leads_out(f)]
    if not out:
        return ()
    if shared:
        return ((node_store.parent / OUTSIDE, f"/{OUTSIDE}"),)
    if node_store != store:
        return tuple((node_store / one.entry, str(one.inside)) for one in beside(Store(store), (ref.entry for ref in refs)))
    cache = (store.parent / OUTSIDE).resolve()
    ends = {path.resolve().parent for folder in out for path, _ in walk(folder) if path.is_symlink()}
    beyond = sorted(str(e) for e in ends if not e.is_relative_to(cache) and not e.is_relative_to(store.resolve()))
    return ((cache, f"/{OUTSIDE}"), *((Path(e), e) for e in beyond))
