"""Trials in a file, a JSON object a line, so that a matrix of hours can be made in parts and side by side."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.soak.fault import Fault
from bench.soak.trial import Outcome


def append(path: Path, outcome: Outcome) -> None:
    """Add one, in one write, on a line of its own also behind half a line. The kind stands as its name."""
    known = {name: getattr(outcome, name) for name in ("safe_s", "serving_s", "reason", "complaints", "load", "seed")}
    with path.open("ab+") as file:
        file.seek(max(0, file.seek(0, io.SEEK_END) - 1))
        begin = b"" if file.read(1) in {b"", b"\n"} else b"\n"
        file.write(begin + json.dumps({"fault": outcome.fault.name} | known).encode() + b"\n")


def read(paths: Sequence[Path], kinds: Sequence[Fault]) -> list[Outcome]:
    """Every trial of these kinds; half a line of a killed run, and a file not there yet, count for nothing."""
    return [one for path in paths if path.exists() for one in _read(path, {one.name: one for one in kinds})]


def _read(path: Path, kinds: dict[str, Fault]) -> Iterator[Outcome]:
    for line in path.read_text().splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if kind := kinds.get(found.pop("fault")):
            yield Outcome(kind, **found)
