"""Trials in a file, a JSON object a line, so that a matrix of hours can be made in parts and side by side."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.soak.fault import Fault
from bench.soak.trial import Outcome

# What is kept of an outcome beside its kind's name, and of which type; a time may be None, where the launch served on.
FIELDS: Mapping[str, tuple[type, ...]] = {
    "safe_s": (float, type(None)),
    "serving_s": (float, type(None)),
    "reason": (str,),
    "complaints": (list,),
    "load": (float,),
    "seed": (int,),
}


def append(path: Path, outcome: Outcome) -> None:
    """Add one, in one write, on a line of its own also behind half a line. The kind stands as its name."""
    known = {name: getattr(outcome, name) for name in FIELDS}
    with path.open("ab+") as file:
        file.seek(max(0, file.seek(0, io.SEEK_END) - 1))
        begin = b"" if file.read(1) in {b"", b"\n"} else b"\n"
        file.write(begin + json.dumps({"fault": outcome.fault.name} | known).encode() + b"\n")


def read(paths: Sequence[Path], kinds: Sequence[Fault]) -> list[Outcome]:
    """Every trial of these kinds; what is no line of :func:`append`, and a file not there yet, count for nothing. ``OSError``."""
    return [one for path in paths if path.exists() for one in _read(path, {one.name: one for one in kinds})]


def _read(path: Path, kinds: Mapping[str, Fault]) -> Iterator[Outcome]:
    for line in path.read_text(errors="replace").splitlines():
        found = _object(line)
        kind = kinds.get(str(found.pop("fault", "")))
        if kind and found.keys() == FIELDS.keys() and all(isinstance(found[name], FIELDS[name]) for name in FIELDS):
            yield Outcome(kind, **found)


def _object(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
