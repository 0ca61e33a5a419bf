"""Files that are wholly there after a crash, or not at all: fsync, atomic replacement, removal of read-only trees."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from build.errors import BuildFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
NO_WRITE = {errno.EROFS, errno.EACCES, errno.EPERM}
FILE_MODE, PROGRAM_MODE, FOLDER_MODE = 0o444, 0o555, 0o555
DISK_FULL = "the disk is full: free space or run `doit gc`, then `doit` again"
MTIME_S = 1  # every stored file's time of change: a copy of a path is then the same wherever and whenever it was made


def sync_folder(folder: Path) -> None:
    """Make the folder's names durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def replacing(target: Path, mode: int = FILE_MODE, scratch: Path | None = None) -> Iterator[BinaryIO]:
    """A file to write that becomes ``target`` at the end, atomically and durably; an exception leaves ``target`` as it was.

    ``scratch`` is a name on the same file system, gone afterwards; without one it is a hidden name beside the target, which
    no other thread or process uses.
    """
    scratch = scratch or _beside(target)
    fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with _renamed(scratch, target), os.fdopen(fd, "wb") as file:
        yield file
        file.flush()
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())


def replace_file(target: Path, content: bytes, mode: int = FILE_MODE, scratch: Path | None = None) -> None:
    """Write a small file as :func:`replacing` does."""
    with replacing(target, mode, scratch) as file:
        file.write(content)


def replace_link(link: Path, leads_to: str | Path) -> None:
    """Make or change a symbolic link, atomically and durably."""
    scratch = _beside(link)
    scratch.unlink(missing_ok=True)
    with _renamed(scratch, link):
        scratch.symlink_to(leads_to)


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}")


@contextmanager
def _renamed(scratch: Path, target: Path) -> Iterator[None]:
    """Put ``scratch`` in the target's place after the block; remove it where the block or the renaming fails."""
    try:
        yield
        scratch.rename(target)
    except BaseException:
        with suppress(OSError):
            scratch.unlink()
        raise
    sync_folder(target.parent)


def seal(tree: Path) -> None:
    """Make a finished tree read-only, with one fixed time, and durable; the top folder's own mode is left to :func:`seal_top`.

    Without root, a folder that moves to another parent must be writable itself (its ``..`` changes), so the top comes last.
    """
    for folder, folders, files in os.walk(tree, topdown=False):
        here = Path(folder)
        for name in files:
            _seal_file(here / name)
        for name in folders:
            if not (here / name).is_symlink():
                (here / name).chmod(FOLDER_MODE)
        sync_folder(here)


def _seal_file(path: Path) -> None:
    if path.is_symlink():
        return
    program = path.stat().st_mode & 0o100
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchmod(fd, PROGRAM_MODE if program else FILE_MODE)
        os.utime(fd, (MTIME_S, MTIME_S))
        os.fsync(fd)
    finally:
        os.close(fd)


def seal_top(folder: Path) -> None:
    """Make the top folder itself read-only and durable; nothing to do for an entry that is one file."""
    if folder.is_dir():
        folder.chmod(FOLDER_MODE)
        sync_folder(folder)


def remove_tree(path: Path) -> None:
    """Remove a file or a tree, read-only folders too. What is not there, or goes meanwhile, is fine."""
    with suppress(FileNotFoundError):
        if path.is_symlink() or not path.is_dir():
            path.unlink()
            return
        path.chmod(0o700)
        for child in list(path.iterdir()):
            remove_tree(child)
        path.rmdir()


@contextmanager
def told(what: str) -> Iterator[None]:
    """Turn the file system's refusals into one line: ``what`` says what was being made, e.g. an artefact's name."""
    try:
        yield
    except OSError as error:
        raise BuildFailed(f"{what}: {reason(error)}") from None


def reason(error: OSError) -> str:
    """What happened, where, and what to do, for a person."""
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in NO_ROOM:
        return f"{DISK_FULL}{where}"
    if error.errno in NO_WRITE:
        return f"{os.strerror(error.errno or 0).lower()}{where}: the store must be writable by this user"
    return f"{error.strerror or error}{where}"
