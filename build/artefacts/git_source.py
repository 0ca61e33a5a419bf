"""Source trees of git: one commit fetched exactly and checked, a patch series tried before it is applied, only files kept.

Times and owners are the store's own, so the same commit and patches give the same tree everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from build.artefacts.kits import safe_names
from build.errors import BuildFailed, OutputDiffers
from build.graph.graph import Artefact
from build.locks.pins import GitPin, PatchPin
from build.store import durable
from build.store.hashing import sha256_file

if TYPE_CHECKING:
    from build.graph.jobs import Job

BUILDER, VERSION = "git", 1
# never a question to a person, never a hook or a filter of this user's
GIT = (
    "/usr/bin/env",
    "GIT_TERMINAL_PROMPT=0",
    "GIT_CONFIG_GLOBAL=/dev/null",
    "GIT_CONFIG_NOSYSTEM=1",
    "GIT_LFS_SKIP_SMUDGE=1",
    "git",
)


def artefact(name: str, pin: GitPin, patches: Sequence[PatchPin] = (), series: str = "", folder: str = "") -> Artefact:
    """The tree of a commit. ``patches``: applied in this order, from ``folder`` of the git artefact ``series``."""
    listed = [[p.file, p.sha256] for p in patches]
    params = {"repo": pin.repo, "commit": pin.commit, "patches": listed, "folder": folder}
    return Artefact(name, BUILDER, VERSION, params, {"patches": series} if patches else {})


def fetch(job: Job) -> None:
    """Fetch, check, patch."""
    params = job.artefact.params
    repo, commit = str(params["repo"]), str(params["commit"])
    job.out.mkdir()
    job.run(*GIT, "init", "-q", cwd=job.out)
    try:
        job.run(*GIT, "fetch", "-q", "--depth", "1", "--no-tags", repo, commit, cwd=job.out)
    except BuildFailed:  # not every server gives a commit by its name
        job.run(*GIT, "fetch", "-q", "--no-tags", repo, "+refs/*:refs/fetched/*", cwd=job.out)
    found = job.run(*GIT, "rev-parse", f"{commit}^{{commit}}", cwd=job.out).stdout.strip()
    if found != commit:
        raise OutputDiffers(f"{job.artefact.name}: {repo} gave commit {found[:12]}, the lock has {commit[:12]}")
    job.run(*GIT, "-c", "core.autocrlf=false", "-c", "advice.detachedHead=false", "checkout", "-q", commit, cwd=job.out)
    for patch in _series(job):
        job.run(*GIT, "apply", "--check", str(patch), cwd=job.out)
        job.run(*GIT, "apply", str(patch), cwd=job.out)
    durable.remove_tree(job.out / ".git")
    safe_names(job.out, job.artefact.name)


def _series(job: Job) -> list[Path]:
    """The patches, each with the content that the lock has."""
    listed: list[list[str]] = job.artefact.params["patches"]
    folder = job.inputs["patches"] / str(job.artefact.params["folder"]) if listed else job.scratch
    paths = [folder / name for name, _ in listed]
    for path, (name, wanted) in zip(paths, listed, strict=True):
        found = sha256_file(path) if path.is_file() else "nothing"
        if found != wanted:
            raise OutputDiffers(f"{job.artefact.name}: patch {name} is {found[:12]}, the lock has {wanted[:12]}")
    return paths
