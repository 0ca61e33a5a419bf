"""The hub's cache as it lies on disk, pure: where files belong.

``models--OWNER--NAME/{blobs,refs,snapshots}``: a snapshot is a folder of links to blobs, and a blob is called like the hash that
proves it (https://huggingface.co/docs/huggingface_hub/guides/manage-cache). Links may lead out of the repository's folder, into
a store shared by all models or to another disk: users do that, and so do other tools.
"""

from __future__ import annotations

from pathlib import Path


def repo_folder(cache: Path, repo: str) -> Path:
    """The folder of a model repository."""
    return cache / f"models--{repo.replace('/', '--')}"


def snapshot_folder(cache: Path, repo: str, revision: str) -> Path:
    """The folder of one commit's links."""
    return repo_folder(cache, repo) / "snapshots" / revision


def link_target(path: str, blob: str) -> str:
    """What the link of a snapshot's file says, as the hub's own client writes it."""
    return "../" * (path.count("/") + 2) + f"blobs/{blob}"
