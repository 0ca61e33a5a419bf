"""Where a guard in a container keeps its socket, log and secret: a folder of the node that it mounts."""

from __future__ import annotations

import contextlib
from pathlib import Path, PurePosixPath
from typing import Protocol

from build.errors import TwinfoldError
from build.nodes.node import SshNode
from build.nodes.ssh_errors import NodeError
from supervisor.guard import client, spec
from supervisor.guard.client import GuardClient
from supervisor.guard.processes import SECRET, read_private, write_private
from supervisor.runners import procid

ASK_S = 10.0
FORWARD_S = 5.0
# On a worker: short, as a socket's address holds 107 bytes, and made anew, so that nobody else can have made it first.
MAKE = 'umask 077; d=$(mktemp -d /tmp/twinfold-guard.XXXXXXXX) && { [ -z "$1" ] || cat > "$d/$1"; } && echo "$d"'
REMOVE = 'case "$1" in /tmp/twinfold-guard.????????) rm -rf -- "$1";; esac'
STAT = 'cat -- "/proc/$1/stat"'


class Place(Protocol):
    """A node's files for its guards. ``silent_s``: a guard that lives and is not heard for so long hangs."""

    @property
    def silent_s(self) -> float:
        """See above."""

    def make(self, launch_id: str, secret: bytes) -> str:
        """A folder for a guard, absolute as seen there, with the secret in it unless that is empty."""

    def start_ticks(self, pid: int) -> int | None:
        """When a process there started, or None where there is none."""

    def absolute(self, path: PurePosixPath) -> str:
        """A path there, which may be relative to the user's home."""

    def connect(self, folder: str, rank: int) -> GuardClient | None:
        """A client of the guard whose folder it is."""

    def read(self, folder: str, name: str) -> bytes:
        """A small file; empty where there is none, or the node does not answer."""

    def remove(self, folder: str, rank: int) -> None:
        """Forget a guard's files."""


class HeadPlace:
    """This host: the launch's folder below ``run/``, as for guards that are processes."""

    silent_s = 5.0

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir

    def make(self, launch_id: str, secret: bytes) -> str:
        """See :class:`Place`, as for all that follows."""
        folder = (self._run_dir / launch_id).absolute()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if secret:
            write_private(folder / SECRET, secret)
        return str(folder)

    def start_ticks(self, pid: int) -> int | None:
        """From /proc."""
        return procid.start_ticks(pid)

    def absolute(self, path: PurePosixPath) -> str:
        """Here, relative to the working folder."""
        return str(Path(path).absolute())

    def connect(self, folder: str, rank: int) -> GuardClient | None:
        """Through the socket itself."""
        return client.connect(Path(folder), spec.name(rank))

    def read(self, folder: str, name: str) -> bytes:
        """As it is."""
        return read_private(Path(folder) / name)

    def remove(self, folder: str, rank: int) -> None:
        """This guard's files; secret and folder go with the last guard's."""
        at = Path(folder)
        for part in ("sock", "log"):
            (at / f"{spec.name(rank)}.{part}").unlink(missing_ok=True)
        if not list(at.glob("guard*")):
            (at / SECRET).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            at.rmdir()


class FarPlace:
    """A worker, over its ssh connection. The guard's stream comes through a forwarded socket.

    A link that loses packets holds the stream up for seconds, which says nothing of the guard.
    """

    silent_s = 60.0

    def __init__(self, node: SshNode) -> None:
        self._node = node

    def make(self, launch_id: str, secret: bytes) -> str:  # noqa: ARG002
        """A folder of the guard's own. The secret goes through standard input."""
        argv = ["sh", "-c", MAKE, "make", SECRET if secret else ""]
        return self._node.run(argv, ASK_S, stdin=secret).text.strip()

    def start_ticks(self, pid: int) -> int | None:
        """Read there."""
        done = self._node.run(["sh", "-c", STAT, "stat", str(pid)], ASK_S, check=False)
        fields = done.text.rpartition(")")[2].split()
        return int(fields[19]) if done.status == 0 and len(fields) > 19 else None

    def absolute(self, path: PurePosixPath) -> str:
        """Commands run in the home folder."""
        return self._node.run(["readlink", "-m", "--", str(path)], ASK_S).text.rstrip("\n")

    def connect(self, folder: str, rank: int) -> GuardClient | None:
        """None too where the node does not answer."""
        try:
            local = self._node.forward(f"{folder}/{spec.name(rank)}.sock", FORWARD_S)
        except NodeError:
            return None
        return client.connect_to(local.parent, local.name)

    def read(self, folder: str, name: str) -> bytes:
        """Bounded: a guard's log is small."""
        try:
            done = self._node.run(["head", "-c", "1048576", "--", f"{folder}/{name}"], ASK_S, check=False)
        except TwinfoldError:
            return b""
        return done.stdout if done.status == 0 else b""

    def remove(self, folder: str, rank: int) -> None:
        """The whole folder, and the way to its socket."""
        self._node.unforward(f"{folder}/{spec.name(rank)}.sock", FORWARD_S)
        self._node.run(["sh", "-c", REMOVE, "remove", folder], ASK_S)
