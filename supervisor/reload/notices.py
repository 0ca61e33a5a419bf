"""Hints that a folder's files change, from the kernel by way of watchdog. A hint may be lost or idle: its hearer looks again."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

QUIET = frozenset({"opened", "closed_no_write"})  # readings, ours among them


@contextlib.contextmanager
def hints(files: Iterable[Path], hint: Callable[[], None]) -> Iterator[bool]:
    """Call ``hint`` from another thread when one of the files may have changed; its folder is watched, so that one which is
    replaced is seen too. Yields False where the kernel gives no watches (their number is bounded): then there are no hints.
    """
    from watchdog.events import FileSystemEvent, FileSystemEventHandler
    from watchdog.observers import Observer

    wanted = {str(path) for path in files}

    class Handler(FileSystemEventHandler):
        def on_any_event(self, event: FileSystemEvent) -> None:
            if event.event_type not in QUIET and wanted & {os.fsdecode(event.src_path), os.fsdecode(event.dest_path)}:
                hint()

    observer, began = Observer(), False
    try:
        with contextlib.suppress(OSError):
            for folder in sorted({path.parent for path in map(Path, wanted) if path.parent.is_dir()}):
                observer.schedule(Handler(), str(folder))
            observer.start()
            began = True
        yield began
    finally:
        if began:
            observer.stop()
            observer.join()
