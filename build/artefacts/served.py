"""The folder that the engine is given as a model or as its Engram: links to the hub's files, and what replaces some of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from build.artefacts import hub_files
from build.graph.graph import Artefact
from build.store import hashing

if TYPE_CHECKING:
    from build.graph.jobs import Job

BUILDER, VERSION = "served", 1
REPLACED = "replaced"


def artefact(
    name: str, files: Artefact, only: Collection[str] = (), replaced: str = "", unpacked: Collection[str] | None = None
) -> Artefact:
    """A folder over the files of a hub artefact: all, or ``only`` these. ``replaced``: an artefact whose files take the place
    of those that are called the same. ``unpacked``: the shards that ranks read beside their weight files; None: they read all.
    """
    params: dict[str, object] = {"only": sorted(only)}
    if unpacked is not None:
        params["unpacked"] = sorted(unpacked)
    inputs = {"files": files.name} | ({REPLACED: replaced} if replaced else {})
    return Artefact(name, BUILDER, VERSION, params, inputs)


def lay_out(job: Job) -> None:
    """Make the links. They are relative, over ``outside/hub`` and between the store's own entries, so they hold on every node."""
    files: Mapping[str, Any] = job.records["files"].params
    only = frozenset(job.artefact.params["only"])
    instead = _names(job.inputs[REPLACED]) if REPLACED in job.inputs else frozenset()
    for path in sorted(set(files["files"]) | instead):
        if only and path not in only:
            continue
        depth = path.count("/")
        target = job.out / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if path in instead:
            target.symlink_to("../" * (depth + 1) + f"{job.records[REPLACED].entry}/{path}")
        else:
            target.symlink_to(hub_files.link(path, files, depth))


def _names(folder: Path) -> frozenset[str]:
    return frozenset(rel for path, rel in hashing.walk(folder) if path.is_file())
