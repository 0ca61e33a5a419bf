"""Files of the hub as a reference artefact: per-file hashes here, the bytes in the user's own cache, never copied.

The store's entry holds ``files.json`` alone, so its hash says what the files are and not where they lie. Every path of the store
that needs the bytes reaches them by links over ``outside/hub`` beside the store, which is a link to this node's cache: so the
same links hold on every node, and in a container that mounts the store at /store and the cache at /outside/hub.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from build.graph.builders import HUB
from build.graph.graph import Artefact, canonical
from build.hub import layout
from build.hub.files import HubFile, Proof, Snapshot
from build.hub.shelf import Shelf
from build.store import durable
from build.store.hashing import Entry, sha256_bytes, tree_hash
from build.store.outside import OUTSIDE

if TYPE_CHECKING:
    from build.graph.jobs import Job

BUILDER, VERSION = HUB
FILE = "files.json"


def artefact(name: str, snapshot: Snapshot) -> Artefact:
    """The files of a snapshot; its output is known from the lock alone."""
    files = {f.path: [f.size, f.proof.kind, f.proof.hex] for f in snapshot.files}
    params = {"repo": snapshot.repo, "revision": snapshot.revision, "files": files}
    known = tree_hash([Entry(FILE, "file", 0, sha256_bytes(_content(params)))])
    return Artefact(name, BUILDER, VERSION, params, known_output=known)


def fetch(job: Job) -> None:
    """Make the snapshot whole in the cache, and write down what it holds."""
    from build.hub import cache  # what fetches is not needed to say that all is there

    shelf, hub = job.tools.hub.shelf, job.tools.hub
    set_outside(job.tools.state, shelf.folder)
    snapshot, told = snapshot_of(job.artefact.params), cache.Told(hub.say, hub.show)
    if hub.xet:
        from build.hub import xet

        xet.fill(shelf, snapshot, hub.connect, told)
    cache.complete(shelf, snapshot, hub.connect, told, hub.patience)
    job.out.mkdir()
    (job.out / FILE).write_bytes(_content(job.artefact.params))


def snapshot_of(params: Mapping[str, Any]) -> Snapshot:
    """The snapshot that an artefact's params speak of."""
    files = tuple(HubFile(path, size, Proof(kind, found)) for path, (size, kind, found) in sorted(params["files"].items()))
    return Snapshot(str(params["repo"]), str(params["revision"]), files)


def problem(params: Mapping[str, Any], shelf: Shelf) -> str:
    """The first file that is not as locked; "" where all are, by ``shelf``'s way of hashing."""
    snapshot = snapshot_of(params)
    for state in shelf.look(snapshot):
        path = shelf.path(snapshot, state.file)
        if state.result != "ok" or not path.exists():
            return f"{path} is {state.result if state.result != 'ok' else 'missing'}"
    return ""


def link(path: str, params: Mapping[str, Any], depth: int) -> str:
    """What a link of the store says, ``depth`` folders below its entry, to reach a file of the snapshot."""
    place = layout.snapshot_folder(OUTSIDE, str(params["repo"]), str(params["revision"])) / path
    return "../" * (depth + 2) + str(place)


def set_outside(state_dir: Path, folder: Path) -> None:
    """Let ``outside/hub`` lead to a cache; atomic, and nothing where it does already."""
    name = state_dir / OUTSIDE
    with suppress(OSError):
        if str(name.readlink()) == str(folder):
            return
    name.parent.mkdir(parents=True, exist_ok=True)
    fresh = name.with_name(f".hub.{os.getpid()}.{threading.get_ident()}")
    with suppress(FileNotFoundError):
        fresh.unlink()
    fresh.symlink_to(folder)
    fresh.rename(name)
    durable.sync_folder(name.parent)


def leads_to(state_dir: Path, folder: Path) -> bool:
    """True where ``outside/hub`` leads to that cache."""
    try:
        return str((state_dir / OUTSIDE).readlink()) == str(folder)
    except OSError:
        return False


def _content(params: Mapping[str, Any]) -> bytes:
    return canonical({"files": params["files"]}) + b"\n"
