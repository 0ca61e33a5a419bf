"""The hub of a build that must not reach for the network: it has nothing, and says what was wanted."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from build.errors import BuildFailed
from build.hub.client import Hub
from build.hub.files import Snapshot
from build.hub.source import Place


class Offline:
    """A :class:`build.hub.client.Hub` that is not there."""

    def locate(self, repo: str, revision: str, path: str) -> Place:
        """``BuildFailed``."""
        _refuse(repo, f"{path} at {revision[:12]} is not in the cache")

    def snapshot(self, repo: str, ref: str) -> Snapshot:
        """``BuildFailed``."""
        _refuse(repo, f"its files at {ref} are to be listed")

    def download(self, repo: str, revision: str, path: str, cache: Path) -> None:
        """``BuildFailed``."""
        _refuse(repo, f"{path} at {revision[:12]} is not in {cache}")


def connect() -> Hub:
    """In place of the hub."""
    return Offline()


def _refuse(repo: str, what: str) -> NoReturn:
    raise BuildFailed(f"{repo}: {what}, and hf_hub_offline is set: unset it, or bring the files into hf_cache")
