"""Source artefacts: files of the checkout, copied into the store so that a build reads exactly the bytes that were hashed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from build.errors import BuildFailed
from build.graph.graph import Artefact
from build.store.hashing import Entry, FileHash, sha256_bytes, tree_hash

if TYPE_CHECKING:
    from build.graph.jobs import Job

BUILDER, VERSION = "source", 1


def artefact(name: str, checkout: Path, base: str, files: Iterable[str], hash_file: FileHash) -> Artefact:
    """The files ``base``/``files`` of the checkout as they are now, kept under their paths relative to ``base``."""
    hashes = {rel: _hash(checkout / base / rel, hash_file) for rel in sorted(files)}
    if not hashes:
        raise BuildFailed(f"{name}: {base} holds no file of it")
    return Artefact(name, BUILDER, VERSION, {"base": base, "files": hashes}, known_output=tree_hash(_entries(hashes)))


def below(checkout: Path, base: str, suffix: str) -> list[str]:
    """Every file below ``base`` with that suffix, relative to it."""
    root = checkout / base
    return sorted(p.relative_to(root).as_posix() for p in root.rglob(f"*{suffix}") if p.is_file())


def copy(job: Job) -> None:
    """Copy the files; ``BuildFailed`` where one is not what was hashed a moment ago."""
    base = job.tools.checkout / str(job.artefact.params["base"])
    for rel, wanted in job.artefact.params["files"].items():
        content = (base / rel).read_bytes()
        if sha256_bytes(content) != wanted:
            raise BuildFailed(f"{job.artefact.name}: {base / rel} changed while it was being read: run `doit` again")
        target = job.out / rel
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def _hash(path: Path, hash_file: FileHash) -> str:
    try:
        return hash_file(path)
    except FileNotFoundError:
        raise BuildFailed(
            f"{path} is not there, though the target is made from it: restore it with `git checkout -- {path}`"
        ) from None


def _entries(hashes: dict[str, str]) -> list[Entry]:
    """The tree that the files make, folders included."""
    folders = {str(parent) for rel in hashes for parent in Path(rel).parents if str(parent) != "."}
    return [Entry(f, "folder", 0, "") for f in folders] + [Entry(rel, "file", 0, sha) for rel, sha in hashes.items()]
