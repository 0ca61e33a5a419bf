"""Missing files by the library's own way, which takes Xet where the hub offers it: an option beside our ranged download.

The library writes into the cache itself, and what it was killed in is fetched again from its start. What came is proven like
everything else, by :func:`build.hub.cache.complete`, which fetches anew what is not what the lock says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from build.errors import BuildFailed
from build.hub import layout, space
from build.hub.cache import Told
from build.hub.client import Connect
from build.hub.files import HubFile, Snapshot
from build.hub.progress import Progress
from build.hub.shelf import Shelf
from build.hub.source import Trouble

BLOCK_BYTES = 512  # of stat's st_blocks


def fill(shelf: Shelf, snapshot: Snapshot, connect: Connect, told: Told) -> None:
    """Fetch what is missing. ``BuildFailed`` where hf_xet cannot be used, or a file did not come."""
    missing = [s.file for s in shelf.look(snapshot) if s.result == "missing"]
    if not missing:
        return
    blobs = layout.repo_folder(shelf.folder, snapshot.repo) / "blobs"
    space.require(snapshot.repo, [space.Need(blobs, sum(f.size for f in missing))])
    hub = connect()
    told.show(_progress(blobs, missing))
    for file in missing:
        try:
            hub.download(snapshot.repo, snapshot.revision, file.path, shelf.folder)
        except Trouble as error:
            raise BuildFailed(
                f'{snapshot.repo}: {file.path} did not come by Xet ({error}): run `doit` again, or set hub_transport = "http"'
            ) from None


def _progress(blobs: Path, missing: Iterable[HubFile]) -> Callable[[], str]:
    """What has come, by what lies in the cache: the library tells nobody else."""
    wanted = tuple(missing)
    progress, seen = Progress(sum(f.size for f in wanted), 0, time.monotonic), 0

    def text() -> str:
        nonlocal seen
        have = min(_have(blobs, wanted), sum(f.size for f in wanted))
        progress.add(have - seen)
        seen = have
        return progress.text()

    return text


def _have(blobs: Path, wanted: Iterable[HubFile]) -> int:
    whole = sum(f.size for f in wanted if (blobs / f.proof.hex).exists())
    return whole + sum(p.stat().st_blocks * BLOCK_BYTES for p in blobs.glob("*.incomplete") if p.exists())
