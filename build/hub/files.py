"""What a hub repository holds, pure: files with the hash that proves each, read from the hub's own listing.

A file in LFS is proven by sha256, ``lfs.oid`` of the listing; its ``oid`` is the id of the pointer and says nothing of the
content, nor does ``xetHash``. A plain file is proven by its git blob id: sha1 over ``blob <size>\\0`` and the content. One type
for each, so that a sha1 never equals a sha256. (https://huggingface.co/docs/hub/api, ``/api/models/ID/tree/REVISION``)
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from build.errors import BuildFailed

BLOCK_BYTES = 1 << 20
SHA256, GIT_BLOB = "sha256", "git_blob"
HEX = {SHA256: 64, GIT_BLOB: 40}
COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Proof:
    """The hash that proves a content: ``kind`` is sha256 or git_blob."""

    kind: str
    hex: str


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a repository: ``path`` inside it, ``size`` in bytes."""

    path: str
    size: int
    proof: Proof


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Files of one repository at one commit."""

    repo: str
    revision: str
    files: tuple[HubFile, ...]

    @property
    def size_bytes(self) -> int:
        """All files together."""
        return sum(f.size for f in self.files)


def from_tree(listing: Iterable[Mapping[str, Any]]) -> tuple[HubFile, ...]:
    """The files of a recursive listing; folders are no files. ``BuildFailed`` for an entry that proves nothing."""
    return tuple(sorted((_file(entry) for entry in listing if entry.get("type") == "file"), key=lambda f: f.path))


def _file(entry: Mapping[str, Any]) -> HubFile:
    lfs = entry.get("lfs") or None
    proof = Proof(SHA256, str(lfs["oid"])) if lfs else Proof(GIT_BLOB, str(entry["oid"]))
    path, size = str(entry["path"]), int(lfs["size"] if lfs else entry["size"])
    if not re.fullmatch(f"[0-9a-f]{{{HEX[proof.kind]}}}", proof.hex) or not inside(path) or size < 0:
        raise BuildFailed(f"the hub lists {path!r} with {proof.kind} {proof.hex!r} and {size} bytes: that is no file")
    return HubFile(path, size, proof)


def inside(path: str) -> bool:
    """True for a relative path that stays in its folder."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and "\0" not in path


def git_blob(path: Path) -> str:
    """Hex git blob id of a file, read now."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb", buffering=0) as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def hasher(file: HubFile) -> hashlib._Hash:
    """A running hash of the file's kind, to be fed its content."""
    if file.proof.kind == SHA256:
        return hashlib.sha256()
    return hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)
