"""The kit of a real checkpoint: a folder of a git commit, and the files that its MANIFEST names and its own tools make.

Those are not in git and are not made here: their sha256 is in the MANIFEST, so they are taken from where the user keeps them
(setting ``kit_files``) and proven by it.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from build.errors import BuildFailed
from build.graph.graph import Artefact
from build.store import hashing

if TYPE_CHECKING:
    from build.graph.jobs import Job

BUILDER, VERSION = "kit", 1


def artefact(name: str, tree: str, folder: str, not_in_git: tuple[str, ...], window_tokens: int) -> Artefact:
    """The kit in ``folder`` of the git artefact ``tree``, whole."""
    params = {"folder": folder, "not_in_git": sorted(not_in_git), "window_tokens": window_tokens}
    return Artefact(name, BUILDER, VERSION, params, {"tree": tree})


def assemble(job: Job) -> None:
    """Copy, add what is not in git, and check every file against the MANIFEST, and the RoPE tables against the context."""
    from build.artefacts import inputs

    params = job.artefact.params
    source = job.inputs["tree"] / str(params["folder"])
    if not (source / "MANIFEST").is_file():
        raise BuildFailed(f"{job.artefact.name}: {params['folder']}/MANIFEST is not in that commit")
    shutil.copytree(source, job.out, symlinks=True)
    for folder, _, _ in os.walk(job.out):
        Path(folder).chmod(0o755)
    own = job.tools.kit_files
    lacks = [rel for rel in params["not_in_git"] if not (job.out / rel).exists() and not (own and (own / rel).is_file())]
    if lacks:
        where = f"not in {own}" if own else "set kit_files to the folder that has them"
        raise BuildFailed(f"{job.artefact.name}: {', '.join(lacks)} are made by the kit's own tools and {where}")
    for rel in params["not_in_git"]:
        if own and not (job.out / rel).exists():
            (job.out / rel).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(own / rel, job.out / rel)
    inputs.check_manifest(job.out)
    _covers(job.out / "rope.json", int(params["window_tokens"]), job.artefact.name)


def safe_names(root: Path, what: str) -> None:
    """``BuildFailed`` where a link of the tree leads out of it."""
    top = root.resolve()
    for path, rel in hashing.walk(root):
        if path.is_symlink() and not (path.parent / path.readlink()).resolve().is_relative_to(top):
            raise BuildFailed(f"{what}: {rel} is a link out of the tree")


def _covers(rope: Path, window_tokens: int, what: str) -> None:
    """The engine refuses a table that is shorter than its context (``ShortRopeTable``)."""
    try:
        rows = int(json.loads(rope.read_text(encoding="utf-8"))["rows"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BuildFailed(f"{what}: rope.json does not say how many rows its tables have: {error}") from None
    if rows < window_tokens:
        raise BuildFailed(f"{what}: its RoPE tables have {rows} rows, the context needs {window_tokens}")
