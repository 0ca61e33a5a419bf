"""A node: the host that programs run on, this one or another over ssh. One protocol, so that what works here works there.

``run`` ends the command on the node at its deadline and never waits longer; statuses are exact; secrets go through standard input
only, as argument lists are seen by every user of a machine.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from build.nodes import ssh_link, ssh_run
from build.nodes.remote_shell import KILL_AFTER_S, Marks
from build.nodes.ssh_errors import CommandFailed, DeadlinePassed, SshUnusable, shown
from build.nodes.ssh_link import Destination, Link
from build.nodes.ssh_run import Order

DOCKER_SOCKET = "/var/run/docker.sock"
SESSIONS = 8  # sshd lets 10 sessions share a connection (MaxSessions)
FORWARD_S = 10.0
PUT = """umask 077; set -e
mkdir -p "${1%/*}"; cat > "$1.new"; chmod "$2" "$1.new"; sync "$1.new"; mv -f "$1.new" "$1"; sync "${1%/*}"
"""


@dataclass(frozen=True, slots=True)
class Result:
    """What a command printed and how it ended."""

    stdout: bytes
    stderr: bytes
    status: int
    duration_s: float

    @property
    def text(self) -> str:
        """Its standard output as text."""
        return self.stdout.decode(errors="replace")


class Node(Protocol):
    """A host that programs run on. ``store`` is its own store's path, as seen there."""

    @property
    def name(self) -> str:
        """Its name for messages and labels."""

    @property
    def store(self) -> PurePosixPath:
        """Its store, as seen there; absolute, or relative to the home of the user that commands run as."""

    def run(self, argv: Sequence[str], deadline_s: float, *, stdin: bytes | None = None, check: bool = True) -> Result:
        """Run a program there, in the home folder and without a shell, under ``LC_ALL=C``.

        It and its process group are ended at the deadline: ``DeadlinePassed``. A status other than 0 is ``CommandFailed`` where
        ``check`` is set. Every other trouble is a ``NodeError`` of its own class.
        """

    def docker_socket(self) -> Path:
        """A unix socket on this host that leads to the node's dockerd. Ask again before each connection: it may move."""

    def close(self) -> None:
        """Let go of what is held open."""


class LocalNode:
    """This host."""

    def __init__(self, name: str, store: Path, *, docker_socket: Path = Path(DOCKER_SOCKET)) -> None:
        self.name = name
        self.store = PurePosixPath(store)
        self._docker_socket = docker_socket

    def run(self, argv: Sequence[str], deadline_s: float, *, stdin: bytes | None = None, check: bool = True) -> Result:
        """See :class:`Node`."""
        began = time.monotonic()
        environ = {name: value for name, value in os.environ.items() if name != "LANGUAGE"} | {"LC_ALL": "C"}
        source = subprocess.DEVNULL if stdin is None else subprocess.PIPE
        try:
            program = subprocess.Popen(
                argv,
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environ,
                cwd=Path.home(),
                start_new_session=True,
            )
        except OSError as error:  # as a shell says it
            status = 127 if isinstance(error, FileNotFoundError) else 126
            return _checked(self.name, argv, Result(b"", f"{argv[0]}: {error.strerror}\n".encode(), status, 0.0), check)
        try:
            out, err = program.communicate(stdin, timeout=deadline_s)
        except BaseException as error:
            _end_group(program, polite=isinstance(error, subprocess.TimeoutExpired))
            if isinstance(error, subprocess.TimeoutExpired):
                raise DeadlinePassed(self.name, f"`{shown(argv)}` did not end within {deadline_s:g} s, and was killed") from None
            raise
        status = program.returncode if program.returncode >= 0 else 128 - program.returncode
        return _checked(self.name, argv, Result(out, err, status, time.monotonic() - began), check)

    def docker_socket(self) -> Path:
        """See :class:`Node`."""
        return self._docker_socket

    def close(self) -> None:
        """Nothing is held open."""


class SshNode:
    """Another host, over one shared ssh connection."""

    def __init__(self, destination: Destination, store: PurePosixPath, *, docker_socket: str = DOCKER_SOCKET) -> None:
        self.name = destination.name
        self.store = store
        self.destination = destination
        self._docker_socket = docker_socket
        self._link = Link(destination)
        self._sessions = threading.BoundedSemaphore(SESSIONS)

    def run(self, argv: Sequence[str], deadline_s: float, *, stdin: bytes | None = None, check: bool = True) -> Result:
        """See :class:`Node`. A connection that has to be made first is not counted to the deadline."""
        with self._sessions:
            began = time.monotonic()
            out, err, status = ssh_run.run(self._link, Order.of(argv, deadline_s), stdin)
            return _checked(self.name, argv, Result(out, err, status, time.monotonic() - began), check)

    def session(self, argv: Sequence[str], deadline_s: float) -> tuple[list[str], Marks]:
        """The ssh command that runs a program there over the connection, for callers that start it themselves, and what marks
        its answer on both of its streams. The program reads what the command is given to read."""
        order = Order.of(argv, deadline_s)
        return self.destination.argv(self._link.options(FORWARD_S), order.line(self.name)), order.marks

    def docker_socket(self) -> Path:
        """See :class:`Node`."""
        return self._link.forward(self._docker_socket, FORWARD_S)

    def forward(self, socket: str, within_s: float) -> Path:
        """A unix socket on this host that leads to one there. Ask again before each connection: it may move."""
        return self._link.forward(socket, within_s)

    def unforward(self, socket: str, within_s: float) -> None:
        """Take such a socket back; nothing where there is none."""
        self._link.unforward(socket, within_s)

    def close(self) -> None:
        """End the connection."""
        self._link.close()


def put(node: Node, content: bytes, path: PurePosixPath, *, mode: int = 0o644, deadline_s: float = 30.0) -> None:
    """Write a small file on a node so that it is wholly there or not at all, also after a crash; its folder is made."""
    node.run(["sh", "-c", PUT, "put", explicit(path), f"{mode:o}"], deadline_s, stdin=content)


def explicit(path: PurePosixPath) -> str:
    """A path with a folder in it and no dash in front, so that no program takes it for an option."""
    return str(path) if path.is_absolute() else f"./{path}"


def _checked(name: str, argv: Sequence[str], result: Result, check: bool) -> Result:
    if check and result.status:
        raise CommandFailed(name, argv, result.status, result.stderr)
    return result


def _end_group(program: subprocess.Popen[bytes], *, polite: bool) -> None:
    """End a program and all of its process group; pipes that others still hold are not waited for."""
    with suppress(ProcessLookupError):
        if polite:
            os.killpg(program.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                program.wait(KILL_AFTER_S)
        os.killpg(program.pid, signal.SIGKILL)
    ssh_link.end(program)


def probe_target(destination: Destination) -> str:
    """What ``ssh -G`` prints for a target: what ssh would do, without a connection. Its refusal is an error."""
    done = subprocess.run(
        destination.argv(["-G"]), capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=10, check=False
    )
    if done.returncode:
        raise SshUnusable(destination.name, f"ssh refuses `{shlex.quote(destination.target)}`: {done.stderr.strip()[:200]}")
    return done.stdout
