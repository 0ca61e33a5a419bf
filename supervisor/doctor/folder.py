"""A folder of captured outputs: one folder a node, one file a section, so that a user can send it and anyone can judge it.

``DIR/nodes.json`` holds what the files do not: the nodes in order, their troubles, the times they were read at, the exit
statuses that are not 0. A folder made by hand may leave it out: every folder in it is a node then, ``head`` first.
``DIR/probed.json`` holds what became of full-size packets, one row a rail and worker, where any were sent.
``DIR/owner`` is the id of the state folder that asked, by which its own containers are told from another gang's.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from build.errors import UsageError
from supervisor.doctor.collect import Raw
from supervisor.doctor.facts import Trouble
from supervisor.doctor.links import Probed
from supervisor.doctor.script import Section

INDEX = "nodes.json"
PROBED = "probed.json"
OWNER = "owner"
HEAD = "head"


def save(folder: Path, found: Mapping[str, Raw], probed: Iterable[Probed] = (), owner: str = "") -> None:
    """Write one. ``UsageError`` where it cannot be written."""
    try:
        for name, raw in found.items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            for section, one in raw.sections.items():
                (folder / name / section).write_text(one.text, encoding="utf-8")
        (folder / INDEX).write_text(json.dumps({name: _row(raw) for name, raw in found.items()}, indent=1) + "\n")
        (folder / PROBED).write_text(json.dumps([dataclasses.asdict(one) for one in probed], indent=1) + "\n")
        (folder / OWNER).write_text(owner + "\n")
    except OSError as error:
        raise UsageError(f"{folder} cannot be written ({error.strerror}): name another folder") from None


def load(folder: Path) -> dict[str, Raw]:
    """Read one. ``UsageError`` where there is none, or where it holds no node."""
    rows = _index(folder)
    names = list(rows) or sorted((one.name for one in _folders(folder)), key=lambda name: (name != HEAD, name))
    if HEAD not in names:
        raise UsageError(f"{folder} holds no folder `{HEAD}`: `supervisor doctor --save DIR` writes such a folder")
    return {name: _raw(folder / name, rows.get(name, {})) for name in names}


def load_probed(folder: Path) -> tuple[Probed, ...]:
    """What became of full-size packets; nothing where none were sent, or the folder was made by hand. ``UsageError``."""
    try:
        return tuple(Probed(**row) for row in json.loads((folder / PROBED).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"{folder / PROBED} cannot be read: {error}") from None


def load_owner(folder: Path) -> str | None:
    """The id of the state folder that asked, "" where it had none; None where the folder does not say. ``UsageError``."""
    try:
        return (folder / OWNER).read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder / OWNER} cannot be read: {error}") from None


def _row(raw: Raw) -> dict[str, Any]:
    row: dict[str, Any] = {"read_at_s": raw.read_at_s}
    if raw.trouble:
        row["trouble"] = [raw.trouble.kind, raw.trouble.message, raw.trouble.target]
    row["statuses"] = {name: one.status for name, one in raw.sections.items() if one.status}
    return row


def _index(folder: Path) -> dict[str, dict[str, Any]]:
    try:
        found = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder / INDEX} cannot be read: {error}") from None
    if not isinstance(found, dict) or not all(isinstance(row, dict) for row in found.values()):
        raise UsageError(f"{folder / INDEX} is no table of nodes")
    return found


def _folders(folder: Path) -> list[Path]:
    try:
        return [one for one in folder.iterdir() if one.is_dir()]
    except OSError as error:
        raise UsageError(f"{folder} cannot be read ({error.strerror}): name a folder of captured outputs") from None


def _raw(folder: Path, row: Mapping[str, Any]) -> Raw:
    statuses = row.get("statuses") or {}
    files = sorted(one for one in folder.iterdir() if one.is_file()) if folder.is_dir() else []
    found = {
        one.name: Section(one.read_text(encoding="utf-8", errors="replace"), int(statuses.get(one.name, 0))) for one in files
    }
    trouble = row.get("trouble")
    return Raw(found, row.get("read_at_s"), Trouble(*map(str, trouble)) if trouble else None)
