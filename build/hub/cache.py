"""A snapshot in the hub's cache made whole: what is there is adopted, what is missing is fetched, all is proven by the lock.

An existing cache is used as it is, links that lead outside it too: nothing is copied, moved or chmodded there. A blob whose
content is not what the lock says is fetched again and replaced by one rename. A complete cache needs no network.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from build.hub import files, layout, space
from build.hub.files import GIT_BLOB, HubFile, Snapshot
from build.hub.patience import Patience
from build.store import durable
from build.store.hashing import FileHash

if TYPE_CHECKING:
    from build.hub.client import Connect

ADOPTERS = 2  # large files hashed at once
PATIENCE = Patience()


@dataclass(frozen=True, slots=True)
class State:
    """One wanted file as it is: ``result`` is ok, missing or damaged; ``found`` is the hash of a damaged one."""

    file: HubFile
    result: str
    found: str = ""


@dataclass(frozen=True, slots=True)
class Shelf:
    """One cache. ``sha256`` and ``git_blob`` are how contents are hashed; a cache of fingerprints may stand behind them."""

    folder: Path
    sha256: FileHash
    git_blob: FileHash = files.git_blob

    def path(self, snapshot: Snapshot, file: HubFile) -> Path:
        """A file's name in the snapshot."""
        return layout.snapshot_folder(self.folder, snapshot.repo, snapshot.revision) / file.path

    def blob(self, snapshot: Snapshot, file: HubFile) -> Path:
        """Where its content belongs."""
        return layout.repo_folder(self.folder, snapshot.repo) / "blobs" / file.proof.hex

    def look(self, snapshot: Snapshot) -> tuple[State, ...]:
        """Every wanted file, read and compared with what proves it (from the cache of fingerprints where untouched)."""
        with ThreadPoolExecutor(ADOPTERS) as pool:
            return tuple(pool.map(partial(self._look, snapshot), snapshot.files))

    def _look(self, snapshot: Snapshot, file: HubFile) -> State:
        path = self.path(snapshot, file)
        if not path.exists():
            path = self.blob(snapshot, file)  # a snapshot of another commit may have brought it
        return state(path, file, self)


def state(path: Path, file: HubFile, shelf: Shelf) -> State:
    """One file against what proves it."""
    try:
        if not path.is_file():
            return State(file, "missing")
        if path.stat().st_size != file.size:
            return State(file, "damaged", f"{path.stat().st_size} bytes, not {file.size}")
        found = shelf.git_blob(path) if file.proof.kind == GIT_BLOB else shelf.sha256(path)
    except FileNotFoundError:
        return State(file, "missing")
    return State(file, "ok") if found == file.proof.hex else State(file, "damaged", found)


@dataclass(frozen=True, slots=True)
class Told:
    """Where a person hears of it: whole lines, and a line of progress that is asked for while a fetch runs."""

    line: Callable[[str], None]
    show: Callable[[Callable[[], str]], None] = lambda _text: None


@dataclass(frozen=True, slots=True)
class Means:
    """What fetching needs beside the files."""

    connect: Connect
    told: Told
    patience: Patience


def complete(shelf: Shelf, snapshot: Snapshot, connect: Connect, told: Told, patience: Patience = PATIENCE) -> None:
    """Make a snapshot whole. ``BuildFailed`` says what a person has to do; ``OutputDiffers`` where the hub has other bytes."""
    states = shelf.look(snapshot)
    wanted = [s for s in states if s.result != "ok"]
    for s in wanted:
        if s.result == "damaged":
            told.line(f"note: {shelf.path(snapshot, s.file)} is not what the lock says ({s.found[:24]}): it is fetched again")
    if wanted:
        _fetch(shelf, snapshot, [s.file for s in wanted], Means(connect, told, patience))
    for s in states:
        with durable.told(snapshot.repo):
            _link(shelf, snapshot, s.file, again=s.result == "damaged")


def _fetch(shelf: Shelf, snapshot: Snapshot, wanted: list[HubFile], means: Means) -> None:
    from build.hub import transfer  # an HTTP client, which a build with nothing to fetch need not load
    from build.hub.progress import Progress

    patience = means.patience
    done = {f.path: transfer.done_bytes(shelf.blob(snapshot, f), f) for f in wanted}
    missing = sum(f.size - done[f.path] for f in wanted)
    space.require(snapshot.repo, [space.Need(layout.repo_folder(shelf.folder, snapshot.repo), missing)])
    hub = means.connect()
    progress = Progress(sum(f.size for f in wanted), sum(done.values()), time.monotonic)
    means.told.show(progress.text)
    stop = threading.Event()

    def one(file: HubFile) -> None:
        if not stop.is_set():
            locate = partial(hub.locate, snapshot.repo, snapshot.revision, file.path)
            transfer.fetch(file, shelf.blob(snapshot, file), transfer.Line(locate, progress.add, patience, stop))

    small = [f for f in wanted if f.size <= patience.piece_bytes]
    with durable.told(snapshot.repo):
        _together(one, small, patience.connections, stop)
        for file in (f for f in wanted if f.size > patience.piece_bytes):
            one(file)


def _together(work: Callable[[HubFile], None], some: list[HubFile], threads: int, stop: threading.Event) -> None:
    """Small files at once; the first failure ends them all."""
    with ThreadPoolExecutor(threads, "hub-file") as pool:
        jobs = [pool.submit(work, f) for f in some]
        try:
            for job in jobs:
                job.result()
        except BaseException:
            stop.set()
            raise


def _link(shelf: Shelf, snapshot: Snapshot, file: HubFile, *, again: bool) -> None:
    """The snapshot's name for a blob, as the hub's client would make it. One that is there and right stays as it is."""
    path, blob = shelf.path(snapshot, file), shelf.blob(snapshot, file)
    if os.path.lexists(path) and not again:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        fresh.unlink()
    fresh.symlink_to(layout.link_target(file.path, blob.name))
    fresh.rename(path)
    durable.sync_folder(path.parent)


def outside_roots(shelf: Shelf, snapshot: Snapshot) -> Iterator[Path]:
    """Folders beyond the cache that the snapshot's links end in: a container has to see these too."""
    top = shelf.folder.resolve()
    seen = set()
    for file in snapshot.files:
        real = shelf.path(snapshot, file).resolve()
        if not real.is_relative_to(top) and real.parent not in seen:
            seen.add(real.parent)
            yield real.parent
