"""The state file of a testbed: which processes make which host, and whether a person wants it kept."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from supervisor.runners import procid
from supervisor.runners.procid import ProcessId
from tests.testbed import readings


@dataclass(frozen=True, slots=True)
class Running:
    """The processes that make a host."""

    holder: ProcessId
    sshd: ProcessId
    dockerd: ProcessId

    def all(self) -> tuple[ProcessId, ...]:
        """All of them."""
        return self.holder, self.sshd, self.dockerd


@dataclass(frozen=True, slots=True)
class State:
    """``keep``: it stays up until someone takes it down; else it belongs to one test run."""

    keep: bool
    hosts: dict[str, Running]

    def alive(self) -> bool:
        """Whether every host still has its name spaces."""
        return bool(self.hosts) and all(procid.runs(running.holder) for running in self.hosts.values())


def write(folder: Path, state: State) -> None:
    """Replace the state file."""
    readings.replace(folder / "state.json", json.dumps(dataclasses.asdict(state), indent=1) + "\n")


def read(folder: Path) -> State:
    """The state, or an empty one where no file is or it cannot be read: ``down`` finds the rest by name space."""
    try:
        raw = json.loads((folder / "state.json").read_text())
        hosts = {name: Running(**{role: ProcessId(**who) for role, who in roles.items()}) for name, roles in raw["hosts"].items()}
        return State(bool(raw["keep"]), hosts)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return State(False, {})
