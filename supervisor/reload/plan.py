"""What a change of the settings means for a supervisor that runs: which count at once, and which wait. Pure."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from build.errors import Refused
from build.settings import Change, Places
from supervisor.configuration import Changed, Configuration, changes, values
from supervisor.settings import GROUPS

WHEN: dict[str, Change] = {
    item.name: item.metadata["change"] for group in (Places, *GROUPS) for item in dataclasses.fields(group)
}


@dataclass(frozen=True, slots=True)
class Plan:
    """``taken`` is the running configuration with the ``live`` changes in it; those of ``restart`` wait for a new launch."""

    taken: Configuration
    live: tuple[Changed, ...]
    restart: tuple[Changed, ...]


def plan(now: Configuration, wanted: Configuration) -> Plan:
    """From the running configuration to a wanted one. ``Refused`` where the supervisor itself would have to be another."""
    same_place(now, wanted)
    differ = changes(now, wanted)
    live = tuple(one for one in differ if WHEN.get(one.name) is Change.LIVE)
    rest = tuple(one for one in differ if one not in live)
    return Plan(_with(now, wanted, {one.name for one in live}), live, rest)


def same_place(now: Configuration, wanted: Configuration) -> None:
    """What this process itself was started with cannot change while it runs."""
    before, after = values(now), values(wanted)
    differ = [name for name, when in WHEN.items() if when is Change.RUN and before[name] != after[name]]
    differ += ["state_dir"] if now.state_dir != wanted.state_dir else []
    if differ:
        raise Refused(f"{', '.join(differ)} cannot change while the supervisor runs: `supervisor stop`, then `supervisor run`")


def _with(now: Configuration, wanted: Configuration, names: set[str]) -> Configuration:
    """``now`` with the named settings, and where they came from, of ``wanted``."""
    groups: dict[str, Any] = {}
    for item in dataclasses.fields(Configuration):
        old, new = getattr(now, item.name), getattr(wanted, item.name)
        if dataclasses.is_dataclass(old) and not isinstance(old, type):
            taken = {one.name: getattr(new, one.name) for one in dataclasses.fields(old) if one.name in names}
            groups[item.name] = dataclasses.replace(old, **taken)
    origins = {name: (wanted if name in names else now).origins[name] for name in now.origins}
    return dataclasses.replace(now, **groups, origins=origins)
