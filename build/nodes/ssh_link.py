"""One long-lived ssh connection to a node, that commands and forwarded sockets share (OpenSSH's ControlMaster).

The master's own remote command reads our pipe until it ends, so the connection ends with this process, also when it is killed.
Its socket is in a private folder with a short path, as a unix socket's path may have 107 bytes. A connection that breaks is made
anew by the next user, no more often than the back-off allows.
"""

from __future__ import annotations

import os
import random
import select
import shutil
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from build.nodes import remote_shell, workers
from build.nodes.remote_shell import Marks
from build.nodes.ssh_errors import NoAnswer, NodeError, SshUnusable, Unreachable, classify

CONNECT_S = 5
OPTIONS = {
    "BatchMode": "yes",
    "ConnectTimeout": str(CONNECT_S),
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "3",
    "LogLevel": "ERROR",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "ClearAllForwardings": "yes",
    "PermitLocalCommand": "no",
    "RequestTTY": "no",
    "RemoteCommand": "none",
    "EscapeChar": "none",
}
LOGIN_S = 20.0  # a login shell may be slow to start
PAUSE_FIRST_S, PAUSE_MAX_S = 0.5, 30.0
DAY_S = 86400.0


def pause_s(failures: int, jitter: float) -> float:
    """How long to wait after so many failures in a row; ``jitter`` from 0 to 1 shortens it by up to a quarter."""
    if failures == 0:
        return 0.0
    return float(min(PAUSE_MAX_S, PAUSE_FIRST_S * 2.0 ** min(failures - 1, 16))) * (1.0 - jitter / 4.0)


@dataclass(frozen=True, slots=True)
class Destination:
    """Where to: ``name`` for messages, ``target`` for ssh, and the words that start ssh (in tests with others in front)."""

    name: str
    target: str
    program: tuple[str, ...] = ("ssh",)
    config: Path | None = None

    def __post_init__(self) -> None:
        if problem := workers.unsafe(self.target):
            raise SshUnusable(self.name, f"the ssh target {self.target!r} {problem}")

    def argv(self, options: Sequence[str], *command: str) -> list[str]:
        """An ssh command line."""
        config = ["-F", str(self.config)] if self.config else []
        fixed = [f"-o{key}={value}" for key, value in OPTIONS.items()]
        return [*self.program, *config, *options, *fixed, "--", self.target, *command]


def start(argv: Sequence[str], *, stdin: int | IO[bytes], stdout: int, stderr: int) -> subprocess.Popen[bytes]:
    """Start ssh, untranslated. ``FileNotFoundError`` where it is not installed."""
    from plumbum import CommandNotFound, local

    try:
        command = local[argv[0]][list(argv[1:])]
    except CommandNotFound:
        raise FileNotFoundError(argv[0]) from None
    return cast(
        "subprocess.Popen[bytes]", command.popen(stdin=stdin, stdout=stdout, stderr=stderr, env={"LC_ALL": "C"}, new_session=True)
    )


class Link:
    """The connection. Safe to use from threads."""

    def __init__(
        self,
        destination: Destination,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.destination = destination
        self._clock, self._sleep = clock, sleep
        self._guard = threading.Lock()
        self._folder: Path | None = None
        self._master: subprocess.Popen[bytes] | None = None
        self._forwarded: dict[str, Path] = {}
        self._made = 0  # forwarded sockets so far: each has a name of its own
        self._failures = 0
        self._retry_at = 0.0
        self._last: NodeError | None = None

    def options(self, within_s: float) -> list[str]:
        """ssh options that make a command use the connection, which is made first where there is none.

        Waits for the back-off's end where that is less than ``within_s`` away, else raises the last failure again.
        """
        with self._guard:
            if not self._alive():
                self._connect(within_s)
            # The command below never connects by itself: where the connection has just gone, it fails at once and says so.
            return [f"-oControlPath={self._socket}", "-oControlMaster=no", "-oProxyCommand=false"]

    def forward(self, remote: str, within_s: float) -> Path:
        """A local unix socket that leads to the node's ``remote``. Ask again before each use: a new connection has new ones."""
        options = self.options(within_s)
        with self._guard:
            if remote not in self._forwarded:
                self._made += 1
                local = self._socket.with_name(f"s{self._made}")
                local.unlink(missing_ok=True)
                done = self._order(options, "forward", f"{local}:{remote}", within_s + CONNECT_S)
                if done.returncode:
                    raise SshUnusable(
                        self.destination.name, f"cannot forward {remote}: {done.stderr.decode(errors='replace').strip()}"
                    )
                self._forwarded[remote] = local
            return self._forwarded[remote]

    def unforward(self, remote: str, within_s: float) -> None:
        """Take a forwarded socket back; nothing where there is none. A connection that has gone has taken it along."""
        with self._guard:
            local = self._forwarded.pop(remote, None)
            if local is None or not self._alive():
                return
            options = [f"-oControlPath={self._socket}", "-oControlMaster=no", "-oProxyCommand=false"]
            with suppress(subprocess.TimeoutExpired):
                self._order(options, "cancel", f"{local}:{remote}", within_s)
            local.unlink(missing_ok=True)

    def _order(self, options: Sequence[str], verb: str, pair: str, within_s: float) -> subprocess.CompletedProcess[bytes]:
        argv = self.destination.argv([*options, "-O", verb, "-oClearAllForwardings=no", "-L", pair])
        return subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, timeout=within_s, check=False)

    def close(self) -> None:
        """End the connection and remove its folder."""
        with self._guard:
            self._drop()
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None

    @property
    def _socket(self) -> Path:
        if self._folder is None:
            self._folder = private_folder()
        return self._folder / "c"

    def _alive(self) -> bool:
        return self._master is not None and self._master.poll() is None and self._socket.exists()

    def _connect(self, within_s: float) -> None:
        wait_s = self._retry_at - self._clock()
        if wait_s > 0:
            if wait_s > within_s and self._last is not None:
                raise self._last
            self._sleep(wait_s)
        self._drop()
        try:
            self._open()
        except NodeError as error:
            self._failures += 1
            self._retry_at = self._clock() + pause_s(self._failures, random.random())  # noqa: S311 # spreads attempts, hides nothing
            self._last = error
            self._drop()
            raise
        self._failures, self._last = 0, None

    def _open(self) -> None:
        marks = Marks.of(uuid.uuid4().hex[:12])
        command = remote_shell.line(["sh", "-c", f"echo; echo '{marks.end}' 0; exec cat >/dev/null"], marks, DAY_S * 3650)
        options = ["-M", f"-oControlPath={self._socket}", "-oControlPersist=no"]
        options += ["-oStreamLocalBindUnlink=yes", "-oStreamLocalBindMask=0177"]
        self._socket.unlink(missing_ok=True)
        with tempfile.TemporaryFile() as words:
            argv = self.destination.argv(options, command)
            try:
                self._master = start(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=words.fileno())
            except FileNotFoundError:
                raise SshUnusable(self.destination.name, f"{argv[0]} is not installed: apt-get install openssh-client") from None
            printed = self._greeting(self._master, marks)
            if printed is None:
                words.seek(0)
                raise self._why_not(words.read(), self._master.poll() is not None)

    def _greeting(self, master: subprocess.Popen[bytes], marks: Marks) -> bytes | None:
        """What the login printed until our command ran; None where it never did."""
        assert master.stdout is not None
        printed, until = b"", self._clock() + CONNECT_S + LOGIN_S
        while (left_s := until - self._clock()) > 0:
            if not select.select([master.stdout], [], [], left_s)[0]:
                break
            piece = os.read(master.stdout.fileno(), 65536)
            if not piece:
                with suppress(subprocess.TimeoutExpired):
                    master.wait(2.0)
                break
            printed += piece
            found = remote_shell.answer(printed, marks)
            if found is not None and found.status == 0:
                return printed
        return None

    def _why_not(self, words: bytes, ended: bool) -> NodeError:
        here = self.destination
        if not ended:
            return Unreachable(
                here.name, f"the login was not done after {CONNECT_S + LOGIN_S:g} s: what does its shell start-up wait for?"
            )
        if self._master is not None and self._master.returncode != 255:
            return NoAnswer(
                here.name, "the login works, but the account's shell ended before our command ran: see its start-up files"
            )
        return classify(here.name, here.target, words)

    def _drop(self) -> None:
        """End what is left of the connection."""
        self._forwarded.clear()
        if self._master is not None:
            end(self._master)
            self._master = None


def end(program: subprocess.Popen[bytes]) -> None:
    """Let a program of ours go, without waiting for those that still hold its pipes."""
    for pipe in (program.stdin, program.stdout, program.stderr):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
    with suppress(ProcessLookupError):
        program.kill()
    program.wait()


def private_folder() -> Path:
    """A new folder for sockets, mode 0700; where the usual place for temporary files has too long a path, in /tmp."""
    for parent in (os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp"):  # noqa: S108 # mkdtemp makes it private
        if parent and len(os.fsencode(parent)) <= 60 and os.access(parent, os.W_OK):
            return Path(tempfile.mkdtemp(prefix="tf-", dir=parent))
    raise SshUnusable("this host", "no writable folder with a short path for the connection's socket: set TMPDIR to one")
