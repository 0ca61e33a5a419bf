"""What a builder gets and what it may use: a job in, a tree at ``job.out``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from build.errors import BuildFailed
from build.graph.graph import Artefact
from build.graph.processes import Children, Finished
from build.hub.patience import Patience
from build.store import durable
from build.store.hashing import FileHash
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


@dataclass(frozen=True, slots=True)
class Toolbox:
    """What builders reach of the machine. ``wheels``: where the compiler's wheel is installed. ``cache``: may be deleted.
    ``state``: the folder that the store lies in. ``kit_files``: the user's folder of what the kit's own tools made."""

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


@dataclass(frozen=True, slots=True)
class Job:
    """One artefact to make. ``inputs`` and ``records`` are by role; ``scratch`` is an empty folder, gone afterwards."""

    artefact: Artefact
    entry: str
    inputs: Mapping[str, Path]
    records: Mapping[str, Record]
    out: Path
    scratch: Path
    tools: Toolbox

    def run(self, *argv: str, cwd: Path | None = None) -> Finished:
        """Run a program with nothing of the caller's environment; ``BuildFailed`` names the log where it fails."""
        env = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.scratch),
            "TMPDIR": str(self.scratch),
            "LC_ALL": "C.UTF-8",
        }
        log = self.tools.logs / f"{self.artefact.name}.log"
        done = self.tools.children.run(argv, cwd=cwd or self.scratch, env=env, log=log)
        if done.code and done.disk_full():
            raise BuildFailed(f"{self.artefact.name}: {durable.DISK_FULL} (log: {log})")
        if done.code:
            raise BuildFailed(f"{self.artefact.name}: {Path(argv[0]).name} {_ended(done.code)}: {done.last_words()} (log: {log})")
        return done


Builder = Callable[[Job], None]


def _ended(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
