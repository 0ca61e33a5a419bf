"""What a finding is, and what a run does about each level of it."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class Level(enum.Enum):
    """How bad it is: an error forbids a launch, a warning does not unless ``--strict`` is given, a note is only said."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Action(enum.Enum):
    """What ``supervisor run`` does about it."""

    REFUSE = "refuses"
    WAIT = "waits for it, then refuses"
    GO_ON = "goes on"
    DROP_RAIL = "drops the rail and goes on"
    USE_NEW = "uses the new one"
    TAKE_OVER = "adopts or removes them"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found. ``reason`` is its name for programs; ``command`` a line for a shell, "" where there is none.

    ``found`` says what was seen and where, ``means`` what follows from it, ``advice`` what to do.
    """

    reason: str
    level: Level
    node: str
    found: str
    means: str
    advice: str
    command: str = ""
    action: Action = Action.GO_ON

    @property
    def line(self) -> str:
        """All of it in one line, for a log or an error."""
        command = f": {self.command}" if self.command else ""
        return f"{self.found}: {self.means}; {self.advice}{command}"


def error(reason: str, node: str, found: str, means: str, advice: str, command: str = "") -> Finding:  # noqa: PLR0917 # a table's row
    """A finding that a run refuses."""
    return Finding(reason, Level.ERROR, node, found, means, advice, command, Action.REFUSE)


def warning(reason: str, node: str, found: str, means: str, advice: str, command: str = "") -> Finding:  # noqa: PLR0917 # a row
    """A finding that a run says, and goes on."""
    return Finding(reason, Level.WARNING, node, found, means, advice, command)


def note(  # noqa: PLR0917 # a table's row
    reason: str, node: str, found: str, means: str, advice: str, command: str = "", action: Action = Action.GO_ON
) -> Finding:
    """A finding worth a line."""
    return Finding(reason, Level.NOTE, node, found, means, advice, command, action)


def refusing(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those that a run refuses at once."""
    return tuple(one for one in findings if one.action is Action.REFUSE)


def warned(findings: Iterable[Finding]) -> bool:
    """Whether there is a warning among them."""
    return any(one.level is Level.WARNING for one in findings)
