"""What a builder gets and what it may use: a job in, a tree at ``job.out``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from build.errors import BuildFailed
from build.graph.graph import Artefact
from build.graph.processes import Children, Finished
from build.hub.patience import Patience
from build.store import durable
from build.store.hashing import Entry, FileHash
from build.store.record import Record

if TYPE_CHECKING:
    from build.hub.client import Connect, Hub
    from build.hub.shelf import Shelf


def _library() -> Hub:
    from build.hub.client import LibraryHub

    return LibraryHub()


DOCKER_SOCKET = "/var/run/docker.sock"


@dataclass(frozen=True, slots=True)
class HubAccess:
    """The hub's cache on this machine, how to reach the hub, and where a person hears of it.

    ``xet``: what is missing comes by the library's own way.
    """

    shelf: Shelf
    connect: Connect = _library
    say: Callable[[str], None] = print
    show: Callable[[Callable[[], str]], None] = lambda _text: None
    patience: Patience = Patience()
    xet: bool = False


class Elsewhere(Protocol):
    """Another node on which an artefact is made, into that node's own store."""

    def pack(self, job: Job, need_bytes: int, read: Callable[[str], None]) -> tuple[Entry, ...]:
        """Make a rank cache of about that size there; what it holds. ``read`` is given what the packer printed."""

    def check(self, job: Job) -> str:
        """Run the checker on one that was made there; what it printed."""


@dataclass(frozen=True, slots=True)
class Toolbox:
    """What builders reach of the machine. ``wheels``: where the compiler's wheel is installed. ``cache``: may be deleted.
    ``state``: the folder that the store lies in. ``kit_files``: the user's folder of what the kit's own tools made.
    ``elsewhere``: the other node that an artefact is made on, None for this one."""

    checkout: Path
    wheels: Path
    cache: Path
    logs: Path
    children: Children
    hash_file: FileHash
    state: Path
    hub: HubAccess
    kit_files: Path | None = None
    docker_socket: str = DOCKER_SOCKET
    elsewhere: Callable[[Artefact], Elsewhere | None] = lambda _artefact: None


@dataclass(frozen=True, slots=True)
class Job:
    """One artefact to make. ``inputs`` and ``records`` are by role; ``scratch`` is an empty folder, gone afterwards.

    ``fresh``: nothing that is there already may stand in for what the builder makes.
    """

    artefact: Artefact
    entry: str
    inputs: Mapping[str, Path]
    records: Mapping[str, Record]
    out: Path
    scratch: Path
    tools: Toolbox
    fresh: bool = False

    @property
    def log(self) -> Path:
        """What the builder's programs say on stderr."""
        return self.tools.logs / f"{self.artefact.name}.log"

    def run(self, *argv: str, cwd: Path | None = None) -> Finished:
        """Run a program with nothing of the caller's environment; ``BuildFailed`` names the log where it fails."""
        env = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.scratch),
            "TMPDIR": str(self.scratch),
            "LC_ALL": "C.UTF-8",
        }
        return self.ended(argv[0], self.tools.children.run(argv, cwd=cwd or self.scratch, env=env, log=self.log))

    def ended(self, program: str, done: Finished) -> Finished:
        """A program's end as it is, where that is well; ``BuildFailed`` with its last words."""
        if done.code and done.disk_full():
            raise BuildFailed(f"{self.artefact.name}: {durable.DISK_FULL} (log: {done.log})")
        if done.code:
            how = f"{Path(program).name} {_ended(done.code)}: {done.last_words()} (log: {done.log})"
            raise BuildFailed(f"{self.artefact.name}: {how}")
        return done


Builder = Callable[[Job], tuple[Entry, ...] | None]  # what was made, where that is not at ``job.out``


def _ended(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
