"""What a launch needs beside the store's entries: the hub's cache in containers, and the generation of the variant asked for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from build.artefacts import served
from build.artefacts.hub_files import OUTSIDE
from build.bundle import StoreRef
from build.errors import Refused
from build.store import generations
from build.store.generations import Generation
from build.store.hashing import walk
from supervisor.configuration import Configuration

VARIANTS = {False: "base", True: "ablit"}  # by the setting ablit


def outside_mounts(store: Path, refs: Iterable[StoreRef], node_store: Path) -> tuple[tuple[Path, str], ...]:
    """(place on the node, place in the container): the hub's whole cache, and folders beyond it that its links end in.

    ``store`` is the head's, ``node_store`` that of the rank's node. Beyond its cache only the head's links can be followed here.
    """
    folders = [ref.under(store) for ref in refs]
    out = [f for f in folders if f.is_dir() and served.leads_out(f)]
    if not out:
        return ()
    if node_store != store:
        return ((node_store.parent / OUTSIDE, f"/{OUTSIDE}"),)
    cache = (store.parent / OUTSIDE).resolve()
    ends = {path.resolve().parent for folder in out for path, _ in walk(folder) if path.is_symlink()}
    beyond = sorted(str(e) for e in ends if not e.is_relative_to(cache) and not e.is_relative_to(store.resolve()))
    return ((cache, f"/{OUTSIDE}"), *((Path(e), e) for e in beyond))


def of_variant(configuration: Configuration) -> Generation:
    """The current generation; where that is of the other variant than the settings ask for, the newest of theirs."""
    state, target = configuration.state_dir, configuration.places.target
    wanted = VARIANTS[configuration.places.ablit]
    here = generations.current(state, target)
    if here.bundle.variant == wanted:
        return here
    found = [g for g in generations.every(state, target) if g.bundle.variant == wanted]
    if not found:
        said = f"ablit={int(configuration.places.ablit)}"
        raise Refused(f"target {target} has no generation of its {wanted} variant: run `doit target={target} {said}`")
    return found[-1]
