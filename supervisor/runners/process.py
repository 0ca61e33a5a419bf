"""Ranks as plain processes of this machine: each in a session of its own, writing to a file, known beyond its pid.

A rank outlives a supervisor that crashes: nothing ties it to its parent, and its record lets the next supervisor find it.
Signals go through a pidfd that was checked against the recorded start time, never to a bare number.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from build.errors import LaunchFailed
from supervisor.runners import procid
from supervisor.runners.protocol import MARKER, Leftover, LogChunk, RankExit, RankHandle, RankSpec, StartRefused
from supervisor.runners.records import RankRecord, Records

CHUNK_BYTES = 1 << 20
LOST = b"[the log of this rank was removed while it ran]\n"
LOG_CAP_BYTES = 64 << 20  # a file of output that grows beyond it is set aside; the first and the last such file are kept
BASE_ENVIRONMENT = ("PATH", "HOME", "LANG", "TZ", "TMPDIR")  # a rank gets these, its command's own variables, and no others


@dataclass(slots=True)
class _Rank:
    """A rank in this supervisor's hands. ``fd`` is its pidfd, None once it is known to be gone."""

    record: RankRecord
    fd: int | None
    ended: RankExit | None = None


class ProcessRunner:
    """Runs ranks as child processes; logs and records lie under ``run_dir`` (state_dir/run)."""

    def __init__(self, run_dir: Path, node: str = "head", log_cap_bytes: int = LOG_CAP_BYTES) -> None:
        self._run_dir = run_dir
        self._node = node
        self._log_cap_bytes = log_cap_bytes
        self._records = Records(run_dir / "ranks")
        self._ranks: dict[tuple[str, int], _Rank] = {}
        self._lock = threading.RLock()

    def start(self, spec: RankSpec) -> RankHandle:
        """Start the rank's process and record it."""
        log = self._run_dir / spec.launch_id / f"rank{spec.rank}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        argv = tuple(spec.command.argv)
        record = _record(spec, argv, log)
        self._records.write(record)
        try:
            pid = _spawn(spec, log)
        except OSError as error:
            self._records.forget(spec.launch_id, spec.rank)
            kind = StartRefused if isinstance(error, (FileNotFoundError, PermissionError)) else LaunchFailed
            raise kind(f"rank {spec.rank} cannot be started: {argv[0]}: {error.strerror or error}") from None
        with contextlib.suppress(OSError):  # it may have ended already
            Path(f"/proc/{pid}/oom_score_adj").write_text(str(spec.oom_score_adj))
        # A child stays a zombie until it is waited for, so its pid is its own until then.
        record = replace(record, pid=pid, start_ticks=procid.start_ticks(pid) or 0, boot_id=procid.boot_id())
        self._records.write(record)
        with self._lock:
            self._ranks[spec.launch_id, spec.rank] = _Rank(record, os.pidfd_open(pid))
        return _handle(record, self._node)

    def poll(self, handle: RankHandle) -> RankExit | None:
        """How the rank ended, or None while it runs."""
        with self._lock:
            rank = self._find(handle)
            if rank is None:
                return RankExit(handle.launch_id, handle.rank, None)
            if rank.ended is None and _readable(rank.fd, 0):
                rank.ended = _reap(rank)
            return rank.ended

    def wait(self, handles: Sequence[RankHandle], timeout_s: float) -> tuple[RankExit, ...]:
        """Those that ended; sleeps in poll(2) on their pidfds, so an end is seen at once."""
        ended = self._ended(handles)
        if ended:
            return ended
        with self._lock:
            fds = [rank.fd for rank in map(self._find, handles) if rank and rank.fd is not None]
        poller = select.poll()
        for fd in fds:
            poller.register(fd, select.POLLIN)
        poller.poll(timeout_s * 1000)
        return self._ended(handles)

    def terminate(self, handle: RankHandle) -> None:
        """SIGTERM to the rank."""
        self._signal(handle, signal.SIGTERM)

    def kill(self, handle: RankHandle) -> None:
        """SIGKILL to the rank and to what it started."""
        with self._lock:
            rank = self._find(handle)
            if rank and rank.ended is None and not _readable(rank.fd, 0):
                _kill_session(rank.record.pid)
        self._signal(handle, signal.SIGKILL)

    def read_log(self, handle: RankHandle, cursor: str = "") -> LogChunk:
        """Output since the cursor (``<file number>:<offset>``). Sets a file aside that has grown beyond the cap."""
        log = self._log(handle)
        generation, _, offset = cursor.partition(":")
        current = _set_aside_count(log)
        at = int(offset) if cursor and int(generation) == current else 0
        data = _read(log, at)
        at += len(data)
        if len(data) < CHUNK_BYTES and at > self._log_cap_bytes:
            _set_aside(log, current)
            return LogChunk(data, f"{current + 1}:0")
        return LogChunk(data, f"{current}:{at}")

    def pass_log(self, handle: RankHandle, cursor: str) -> str:  # noqa: ARG002 - the end is the same from anywhere
        """Only the file's size is looked at; one beyond the cap is set aside."""
        log = self._log(handle)
        current, size = _set_aside_count(log), log.stat().st_size if log.exists() else 0
        if size > self._log_cap_bytes:
            _set_aside(log, current)
            return f"{current + 1}:0"
        return f"{current}:{size}"

    def whole_log(self, handle: RankHandle) -> Iterator[bytes]:
        """The first file, the last one set aside, and the current one; a word in their place where somebody else removed them."""
        log = self._log(handle)
        with self._lock:
            known = self._find(handle) is not None
        if known and not log.exists():
            yield LOST
        for part in (*_kept_parts(log), log):
            at = 0
            while data := _read(part, at):
                yield data
                at += len(data)

    def leftovers(self) -> tuple[Leftover, ...]:
        """Every recorded rank; one whose start had only begun is looked for by its marker."""
        return tuple(self._leftover(record) for record in self._records.all())

    def remove(self, handle: RankHandle) -> None:
        """Forget an ended rank and delete its output."""
        if self.poll(handle) is None:
            raise LaunchFailed(f"{handle} still runs: it must end before it is removed")
        with self._lock:
            rank = self._ranks.pop((handle.launch_id, handle.rank), None)
            if rank and rank.fd is not None:
                os.close(rank.fd)
        log = self._log(handle)
        for part in (*log.parent.glob(log.name + ".*"), log):
            part.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # the launch's other ranks still lie there
            log.parent.rmdir()
        self._records.forget(handle.launch_id, handle.rank)

    def _ended(self, handles: Sequence[RankHandle]) -> tuple[RankExit, ...]:
        return tuple(exit_ for exit_ in map(self.poll, handles) if exit_)

    def _find(self, handle: RankHandle) -> _Rank | None:
        """The rank, taken over from its record where another supervisor started it. The lock is held."""
        key = (handle.launch_id, handle.rank)
        if key not in self._ranks:
            record = self._records.read(*key)
            if record is None or str(record.pid) != handle.key:
                return None
            self._ranks[key] = _Rank(record, procid.open_pidfd(record.process))
        return self._ranks[key]

    def _signal(self, handle: RankHandle, number: int) -> None:
        with self._lock:
            rank = self._find(handle)
            if rank is None or rank.fd is None or rank.ended:
                return
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(rank.fd, number)

    def _leftover(self, record: RankRecord) -> Leftover:
        if record.pid == 0:
            found = procid.with_environment(f"{MARKER}={record.launch_id}/{record.rank}")
            who = procid.identify(found[0]) if found else None
            if who:
                record = replace(record, pid=who.pid, start_ticks=who.start_ticks, boot_id=who.boot_id)
                self._records.write(record)
        alive = record.pid != 0 and procid.runs(record.process)
        detail = {"pid": str(record.pid), "log": record.log}
        handle = _handle(record, self._node)
        return Leftover(handle, alive, record.world_size, record.bundle_entry, record.context_tokens, detail)

    def _log(self, handle: RankHandle) -> Path:
        return self._run_dir / handle.launch_id / f"rank{handle.rank}.log"


def _handle(record: RankRecord, node: str) -> RankHandle:
    return RankHandle(record.launch_id, record.rank, node, str(record.pid), record.spec_hash)


def _record(spec: RankSpec, argv: tuple[str, ...], log: Path) -> RankRecord:
    return RankRecord(
        spec.launch_id,
        spec.rank,
        spec.world_size,
        spec.spec_hash,
        spec.bundle_entry,
        spec.context_tokens,
        argv,
        str(log),
    )


def _spawn(spec: RankSpec, log: Path) -> int:
    """The pid of a new process: own session, output appended to the log, default signals, no descriptor of ours."""
    own = {name: os.environ[name] for name in BASE_ENVIRONMENT if name in os.environ}
    env = {**own, **dict(spec.command.env), MARKER: f"{spec.launch_id}/{spec.rank}"}
    program = spec.command.argv[0]
    if "/" not in program:
        program = shutil.which(program) or program
    return os.posix_spawn(
        program,
        list(spec.command.argv),
        env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ),
    )


def _readable(fd: int | None, timeout_s: float) -> bool:
    """A pidfd is readable once its process has ended; no pidfd means that it had before we looked."""
    if fd is None:
        return True
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(timeout_s * 1000))


def _reap(rank: _Rank) -> RankExit:
    """Collect a child's status; another supervisor's child has none for us. What it started ends with it."""
    launch_id, number = rank.record.launch_id, rank.record.rank
    if rank.fd is None:
        return RankExit(launch_id, number, None)
    try:
        os.waitid(os.P_PIDFD, rank.fd, os.WEXITED | os.WNOWAIT)
        _kill_session(rank.record.pid)  # before the reaping: until then the number is this session's
        status = os.waitid(os.P_PIDFD, rank.fd, os.WEXITED)
    except ChildProcessError:
        return RankExit(launch_id, number, None)
    assert status is not None
    if status.si_code == os.CLD_EXITED:
        return RankExit(launch_id, number, status.si_status, out_of_memory="no" if status.si_status in (0, 2) else "unknown")
    return RankExit(launch_id, number, 128 + status.si_status, status.si_status, _oom_guess(status.si_status))


def _oom_guess(number: int) -> str:
    """Only SIGKILL can be the kernel's out-of-memory killer, and nothing here tells whether it was."""
    return "unknown" if number == signal.SIGKILL else "no"


def _kill_session(pid: int) -> None:
    """SIGKILL to the process group that a rank leads. Its leader, alive or a zombie, keeps the number from being reused."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)


def _read(path: Path, at: int) -> bytes:
    try:
        with path.open("rb") as log:
            log.seek(at)
            return log.read(CHUNK_BYTES)
    except FileNotFoundError:
        return b""


def _kept_parts(log: Path) -> tuple[Path, ...]:
    return tuple(sorted(log.parent.glob(f"{log.name}.[0-9]*")))


def _set_aside_count(log: Path) -> int:
    """How many files were set aside so far; the newest one's number says it."""
    parts = _kept_parts(log)
    return int(parts[-1].suffix[1:]) + 1 if parts else 0


def _set_aside(log: Path, number: int) -> None:
    """Copy and truncate: the rank goes on writing to the same file (it appends). The first and the newest copy stay.

    What the rank writes between the copy and the truncation is lost; a flood loses a few lines of its millions.
    """
    shutil.copyfile(log, log.with_name(f"{log.name}.{number:06d}"))
    os.truncate(log, 0)
    for part in _kept_parts(log)[1:-1]:
        part.unlink(missing_ok=True)
