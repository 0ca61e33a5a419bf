"""A snapshot in the hub's cache made whole: what is there is adopted, what is missing is fetched, all is proven by the lock.

An existing cache is used as it is, links that lead outside it too: nothing is copied, moved or chmodded there. A blob whose
content is not what the lock says is fetched again and replaced by one rename. A complete cache needs no network.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from build.hub import layout, space
from build.hub.files import HubFile, Snapshot
from build.hub.patience import Patience
from build.hub.shelf import Shelf
from build.store import durable

if TYPE_CHECKING:
    from build.hub.client import Connect

PATIENCE = Patience()


@dataclass(frozen=True, slots=True)
class Told:
    """Where a person hears of it: whole lines, and a line of progress that is asked for while a fetch runs."""

    line: Callable[[str], None]
    show: Callable[[Callable[[], str]], None] = lambda _text: None


@dataclass(frozen=True, slots=True)
class Means:
    """What fetching needs beside the files."""

    connect: Connect
    told: Told
    patience: Patience


def complete(shelf: Shelf, snapshot: Snapshot, connect: Connect, told: Told, patience: Patience = PATIENCE) -> None:
    """Make a snapshot whole. ``BuildFailed`` says what a person has to do; ``OutputDiffers`` where the hub has other bytes."""
    states = shelf.look(snapshot)
    wanted = [s for s in states if s.result != "ok"]
    for s in wanted:
        if s.result == "damaged":
            told.line(f"note: {shelf.path(snapshot, s.file)} is not what the lock says ({s.found[:24]}): it is fetched again")
    if wanted:
        _fetch(shelf, snapshot, [s.file for s in wanted], Means(connect, told, patience))
    for s in states:
        with durable.told(snapshot.repo):
            _link(shelf, snapshot, s.file, again=s.result == "damaged")


def _fetch(shelf: Shelf, snapshot: Snapshot, wanted: list[HubFile], means: Means) -> None:
    from build.hub import transfer  # an HTTP client, which a build with nothing to fetch need not load
    from build.hub.progress import Progress

    patience = means.patience
    done = {f.path: transfer.done_bytes(shelf.blob(snapshot, f), f) for f in wanted}
    missing = sum(f.size - done[f.path] for f in wanted)
    space.require(snapshot.repo, [space.Need(layout.repo_folder(shelf.folder, snapshot.repo), missing)])
    hub = means.connect()
    progress = Progress(sum(f.size for f in wanted), sum(done.values()), time.monotonic)
    means.told.show(progress.text)
    stop = threading.Event()

    def one(file: HubFile) -> None:
        if not stop.is_set():
            locate = partial(hub.locate, snapshot.repo, snapshot.revision, file.path)
            transfer.fetch(file, shelf.blob(snapshot, file), transfer.Line(locate, progress.add, patience, stop))

    small = [f for f in wanted if f.size <= patience.piece_bytes]
    with durable.told(snapshot.repo):
        _together(one, small, patience.connections, stop)
        for file in (f for f in wanted if f.size > patience.piece_bytes):
            one(file)


def _together(work: Callable[[HubFile], None], some: list[HubFile], threads: int, stop: threading.Event) -> None:
    """Small files at once; the first failure ends them all."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(threads, "hub-file") as pool:
        jobs = [pool.submit(work, f) for f in some]
        try:
            for job in jobs:
                job.result()
        except BaseException:
            stop.set()
            raise


def _link(shelf: Shelf, snapshot: Snapshot, file: HubFile, *, again: bool) -> None:
    """The snapshot's name for a blob, as the hub's client would make it. One that is there and right stays as it is."""
    path, blob = shelf.path(snapshot, file), shelf.blob(snapshot, file)
    if os.path.lexists(path) and not again:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    durable.replace_link(path, layout.link_target(file.path, blob.name))
