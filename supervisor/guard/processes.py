"""Guards as plain processes of this machine, beside ranks that are processes.

A guard belongs to nobody: it has a session of its own and outlives the supervisor that started it, as its rank does. Its record
(pid, start time, boot) lets the next supervisor know it. Below ``run/<launch id>/``: ``guard<rank>.sock``, ``.log``, ``.json``
and the launch's ``lease.secret``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from build.errors import LaunchFailed
from supervisor.guard import client, spec
from supervisor.guard.client import GuardClient
from supervisor.guard.host import GuardHost, RankGone
from supervisor.guard.spec import GuardSpec
from supervisor.runners import procid
from supervisor.runners.procid import ProcessId
from supervisor.runners.protocol import RankHandle
from supervisor.runners.records import write_json

START_S = 10.0
SECRET = "lease.secret"  # noqa: S105 - a file's name
NO_SUCH_RANK = 3  # the node tool's exit code
PARTS = ("sock", "log", "json")


class ProcessGuards:
    """A :class:`supervisor.guard.host.GuardHost` for this machine. ``program`` gives the node tool's binary."""

    silent_s = 5.0

    def __init__(self, program: Callable[[], Path], run_dir: Path) -> None:
        self._program, self._run_dir = program, run_dir
        self._children: dict[tuple[str, int], subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()

    def identity(self, handle: RankHandle) -> tuple[int, int] | None:
        """Of a child that nobody has waited for yet, or of one that a record knows: its pid is its own."""
        pid = int(handle.key)
        ticks = procid.start_ticks(pid)
        return None if ticks is None else (pid, ticks)

    def start(self, wanted: GuardSpec, secret: bytes) -> None:
        """Start the process and wait for its hello line."""
        folder = self._folder(wanted.launch_id)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if wanted.lease:
            write_private(folder / SECRET, secret)
        child = self._spawn(wanted, folder)
        if not _said_hello(child):
            why = _last_words(child)
            if child.returncode == NO_SUCH_RANK:
                raise RankGone(f"rank {wanted.rank} ended before its guard could take it")
            raise LaunchFailed(f"the guard of rank {wanted.rank} cannot be started on {wanted.node}: {why}")
        for stream in (child.stdout, child.stderr):
            if stream:
                stream.close()
        with self._lock:
            self._children[wanted.launch_id, wanted.rank] = child
        who = procid.identify(child.pid)
        if who:
            write_json(folder / f"{spec.name(wanted.rank)}.json", dataclasses.asdict(who))

    def running(self, launch_id: str, rank: int) -> bool:
        """A child is asked for its status, another supervisor's guard is looked for by its record."""
        with self._lock:
            child = self._children.get((launch_id, rank))
            if child:
                return child.poll() is None
        who = self._record(launch_id, rank)
        return who is not None and procid.runs(who)

    def connect(self, launch_id: str, rank: int) -> GuardClient | None:
        """Through its socket."""
        return client.connect(self._folder(launch_id), spec.name(rank))

    def kill(self, launch_id: str, rank: int) -> None:
        """SIGKILL, through a pidfd that was checked."""
        who = self._record(launch_id, rank)
        fd = procid.open_pidfd(who) if who else None
        if fd is None:
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        select.select([fd], [], [], 1.0)
        os.close(fd)

    def log(self, launch_id: str, rank: int) -> bytes:
        """Its log file."""
        try:
            return (self._folder(launch_id) / f"{spec.name(rank)}.log").read_bytes()
        except OSError:
            return b""

    def remove(self, launch_id: str, rank: int) -> None:
        """Its files; the launch's folder goes with the last of them."""
        with self._lock:
            child = self._children.pop((launch_id, rank), None)
        if child:
            child.poll()
        folder = self._folder(launch_id)
        for part in PARTS:
            (folder / f"{spec.name(rank)}.{part}").unlink(missing_ok=True)
        if not list(folder.glob("guard*.json")):
            (folder / SECRET).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # the ranks' logs still lie there
            folder.rmdir()

    def launches(self) -> tuple[tuple[str, int], ...]:
        """By the records."""
        return tuple(
            (path.parent.name, int(path.stem.removeprefix("guard"))) for path in sorted(self._run_dir.glob("*/guard[0-9]*.json"))
        )

    def _folder(self, launch_id: str) -> Path:
        return self._run_dir / launch_id

    def _record(self, launch_id: str, rank: int) -> ProcessId | None:
        try:
            raw = json.loads((self._folder(launch_id) / f"{spec.name(rank)}.json").read_text(encoding="utf-8"))
            return ProcessId(**raw)
        except (OSError, ValueError, TypeError):
            return None

    def _spawn(self, wanted: GuardSpec, folder: Path) -> subprocess.Popen[bytes]:
        program = self._program()
        try:
            return subprocess.Popen(
                [str(program), *spec.arguments(wanted, SECRET)],
                cwd=folder,
                env={},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise LaunchFailed(
                f"the guard of rank {wanted.rank} cannot be started: {program}: {error.strerror or error}: run `doit repair`"
            ) from None


def write_private(path: Path, content: bytes) -> None:
    """A file that only this user may read, from its first moment on; one that is there already stays."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    with os.fdopen(fd, "wb") as out:
        out.write(content)


def read_private(path: Path) -> bytes:
    """What is in it; empty where there is none."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _said_hello(child: subprocess.Popen[bytes]) -> bool:
    assert child.stdout is not None
    ready = select.select([child.stdout], [], [], START_S)[0]
    return bool(ready and child.stdout.read(1))


def _last_words(child: subprocess.Popen[bytes]) -> str:
    """Why it did not start; it is ended where it only hangs."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(0.5)
    hung = child.poll() is None
    if hung:
        child.kill()
    said = child.communicate()[1].decode(errors="replace").strip().splitlines()
    return f"it said nothing for {START_S:g} s" if hung else (said[-1] if said else f"exit {child.returncode}")


def farewell(host: GuardHost, launch_id: str, rank: int, timeout_s: float = 2.0) -> None:
    """Send away a guard whose rank has ended, and forget it."""
    connection = host.connect(launch_id, rank)
    if connection:
        connection.say(bye=True)
        end = time.monotonic() + timeout_s
        while host.running(launch_id, rank) and time.monotonic() < end:
            time.sleep(0.01)
        connection.close()
    host.kill(launch_id, rank)
    host.remove(launch_id, rank)
