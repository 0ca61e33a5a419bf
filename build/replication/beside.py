"""Files that a worker's ranks read and that the head's store only links to: the hub's, and shards rewritten in their place.

Weight files hold what the shards hold, so of a checkpoint's shards a worker needs only the ``unpacked`` ones; of other folders,
such as the Engram's, it needs every file. On a worker they are entries of their own, made here, each of which a container sees
where the links of the served folder lead.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from build.artefacts import hub_files, served
from build.hub import layout
from build.hub.files import SHA256
from build.replication.replicate import Want
from build.store import hashing
from build.store.hashing import Entry, FileHash, sha256_bytes, tree_hash
from build.store.outside import IN_CONTAINER, OUTSIDE
from build.store.record import Record, to_json
from build.store.store import Store

SHARD = ".safetensors"
BUILDER = "beside"


@dataclass(frozen=True, slots=True)
class Beside:
    """Files of one place: ``source`` on the head, ``inside`` in a container. ``origin`` is the artefact that they are of."""

    origin: Record
    source: Path
    inside: PurePosixPath
    sizes: tuple[tuple[str, int], ...]  # by path, sorted
    snapshot: str = ""  # where the hub's files lie below a cache of it

    @property
    def entry(self) -> str:
        """Its name in a worker's store, another one for other files."""
        return f"{self.origin.key}-{self._name}"

    @property
    def size_bytes(self) -> int:
        """All files together."""
        return sum(size for _, size in self.sizes)

    @property
    def _name(self) -> str:
        return f"{self.origin.name}-read-{sha256_bytes(chr(0).join(path for path, _ in self.sizes).encode())[:8]}"

    def want(self, hash_file: FileHash = hashing.sha256_file) -> Want:
        """What the worker is to hold. ``hash_file`` is asked for files that are locked by a git hash alone."""
        known = {f.path: f.sha256 for f in self.origin.files}
        if self.origin.builder == hub_files.BUILDER:
            known = {f.path: f.proof.hex for f in hub_files.snapshot_of(self.origin.params).files if f.proof.kind == SHA256}
        folders = {str(parent) for path, _ in self.sizes for parent in PurePosixPath(path).parents} - {"."}
        files = [Entry(path, "folder", 0, "") for path in folders]
        files += [Entry(p, "file", size, known.get(p) or hash_file(self.source / p)) for p, size in self.sizes]
        found = tuple(sorted(files, key=lambda one: one.path))
        record = Record(self.origin.key, self._name, BUILDER, 1, {}, {}, found, tree_hash(found))
        return Want(record, to_json(record), self.source, self.snapshot)


def beside(store: Store, entries: Iterable[str]) -> tuple[Beside, ...]:
    """What ranks that read these entries of the head's store read beside them; nothing where no entry is a served folder."""
    return _found(store, entries, packed=False)


def packed(store: Store, entries: Iterable[str]) -> tuple[Beside, ...]:
    """All else that such folders lead to: the shards that weight files hold, which only a packer reads."""
    return _found(store, entries, packed=True)


def _found(store: Store, entries: Iterable[str], *, packed: bool) -> tuple[Beside, ...]:
    found: dict[str, tuple[Record, dict[str, int]]] = {}
    for entry in sorted(set(entries)):
        record = store.need(entry)
        if record.builder == served.BUILDER:
            for origin, path, size in _read(store, record, packed=packed):
                found.setdefault(origin.entry, (origin, {}))[1][path] = size
    return tuple(_beside(store, origin, sizes) for origin, sizes in found.values())


def _read(store: Store, folder: Record, *, packed: bool) -> Iterator[tuple[Record, str, int]]:
    """(origin, path, bytes) of each file that a rank reads through the links of a served folder, or of each that it does not."""
    hub = store.need(folder.inputs["files"].entry)
    sizes = {file.path: file.size for file in hub_files.snapshot_of(hub.params).files}
    unpacked = folder.params.get("unpacked")
    replaced = folder.inputs.get(served.REPLACED)
    for link in folder.files:
        in_weights = unpacked is not None and link.path.endswith(SHARD) and link.path not in unpacked
        if link.kind != "link" or in_weights != packed:
            continue
        if str(OUTSIDE) in os.readlink(store.path(folder.entry) / link.path):  # noqa: PTH115 # its text
            yield hub, link.path, sizes[link.path]
        elif replaced:
            origin = store.need(replaced.entry)
            yield origin, link.path, next(f.size for f in origin.files if f.path == link.path)


def _beside(store: Store, origin: Record, sizes: dict[str, int]) -> Beside:
    if origin.builder != hub_files.BUILDER:
        return Beside(origin, store.path(origin.entry), PurePosixPath(IN_CONTAINER / origin.entry), tuple(sorted(sizes.items())))
    place = layout.snapshot_folder(OUTSIDE, str(origin.params["repo"]), str(origin.params["revision"]))
    return Beside(
        origin,
        store.root.parent / place,
        PurePosixPath(IN_CONTAINER.parent / place),
        tuple(sorted(sizes.items())),
        str(place.relative_to(OUTSIDE)),
    )
