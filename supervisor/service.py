"""The supervisor as the one server of a state folder: one at a time, and what it serves known to ``doit gc``."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from build.errors import Refused
from build.store import roots
from supervisor.runners import procid


@contextlib.contextmanager
def only_one(run_dir: Path) -> Iterator[None]:
    """Hold the folder's supervisor lock. ``Refused`` where another holds it, naming its pid.

    The lock is the kernel's (flock), so it ends with its holder however that ends; the pid in the file is for people.
    """
    run_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    fd = os.open(run_dir / "supervisor.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _locked(fd):
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
            raise Refused(
                f"a supervisor already serves from {run_dir.parent} (pid {holder}): `supervisor status` shows it,"
                " `supervisor stop` ends it"
            )
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(fd)


def _locked(fd: int) -> bool:
    """Take the lock; :func:`alive` holds it for an instant, so a few tries are made."""
    for _ in range(5):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
        else:
            return True
    return False


def alive(run_dir: Path) -> int | None:
    """The pid of the supervisor that holds the lock, or None."""
    try:
        fd = os.open(run_dir / "supervisor.lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 32, 0).decode(errors="replace").strip()
        return int(holder) if holder.isdigit() else 0
    else:
        return None
    finally:
        os.close(fd)


def hold_root(state_dir: Path, launch_id: str, bundle_entry: str) -> None:
    """Keep a running launch's bundle from ``doit gc``."""
    who = procid.identify(os.getpid())
    roots.hold(state_dir, launch_id, bundle_entry, os.getpid(), who.start_ticks if who else 0)


def release_root(state_dir: Path, launch_id: str) -> None:
    """Give the launch's bundle up to ``doit gc``; nothing where it was not held."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # where there can be none, none is held
        (state_dir / "run" / "roots" / f"{launch_id}.json").unlink()


def release_other_roots(state_dir: Path, launch_id: str) -> None:
    """Give up what earlier supervisors held, but for one launch. The caller holds the lock and knows that nothing else runs."""
    for file in (state_dir / "run" / "roots").glob("*.json"):
        if file.stem != launch_id:
            file.unlink(missing_ok=True)
