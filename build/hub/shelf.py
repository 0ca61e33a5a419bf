"""A cache of the hub as it is: which of a snapshot's files are there, and are what proves them. Nothing here writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from build.hub import files, layout
from build.hub.files import GIT_BLOB, HubFile, Snapshot
from build.store.hashing import FileHash

ADOPTERS = 2  # large files hashed at once


@dataclass(frozen=True, slots=True)
class State:
    """One wanted file as it is: ``result`` is ok, missing or damaged; ``found`` is the hash of a damaged one."""

    file: HubFile
    result: str
    found: str = ""


@dataclass(frozen=True, slots=True)
class Shelf:
    """One cache. ``sha256`` and ``git_blob`` are how contents are hashed; a cache of fingerprints may stand behind them.

    ``at_hand``: a file's hash of a kind where it takes no reading to speak of, else None.
    """

    folder: Path
    sha256: FileHash
    git_blob: FileHash = files.git_blob
    at_hand: Callable[[Path, str], str | None] = lambda _path, _kind: None

    def path(self, snapshot: Snapshot, file: HubFile) -> Path:
        """A file's name in the snapshot."""
        return layout.snapshot_folder(self.folder, snapshot.repo, snapshot.revision) / file.path

    def blob(self, snapshot: Snapshot, file: HubFile) -> Path:
        """Where its content belongs."""
        return layout.repo_folder(self.folder, snapshot.repo) / "blobs" / file.proof.hex

    def look(self, snapshot: Snapshot) -> tuple[State, ...]:
        """Every wanted file, read and compared with what proves it (from the cache of fingerprints where untouched)."""
        known = {file: self._known(snapshot, file) for file in snapshot.files}
        unread = [file for file, found in known.items() if found is None]
        if unread:
            from concurrent.futures import ThreadPoolExecutor  # where all is known there is no work to share out

            with ThreadPoolExecutor(ADOPTERS) as pool:
                known.update(zip(unread, pool.map(partial(self._look, snapshot), unread), strict=True))
        return tuple(found for file in snapshot.files if (found := known[file]) is not None)

    def _known(self, snapshot: Snapshot, file: HubFile) -> State | None:
        """A file that is right, where that takes no reading."""
        path = self.path(snapshot, file)
        try:
            right = path.stat().st_size == file.size and self.at_hand(path, file.proof.kind) == file.proof.hex
        except OSError:
            return None
        return State(file, "ok") if right else None

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
