"""Records of process ranks on disk: ``run/ranks/<launch id>-rank<N>.json``, written before and after a start.

The first write, with pid 0, comes before the process exists: a supervisor that dies between the two leaves a record whose
process can be found by the marker in its environment. So no rank is ever unknown.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from build.store import durable
from supervisor.runners.procid import ProcessId


@dataclass(frozen=True, slots=True)
class RankRecord:
    """What is kept of one rank. ``pid`` 0 means that its start had begun. ``log`` is the file of its output."""

    launch_id: str
    rank: int
    world_size: int
    spec_hash: str
    bundle_entry: str
    context_tokens: int
    argv: tuple[str, ...]
    log: str
    pid: int = 0
    start_ticks: int = 0
    boot_id: str = ""

    @property
    def process(self) -> ProcessId:
        """The recorded process's identity."""
        return ProcessId(self.pid, self.start_ticks, self.boot_id)


def write_json(path: Path, content: object) -> None:
    """Replace a small JSON file so that a reader sees the old one or the new one, mode 0600."""
    path.parent.mkdir(parents=True, exist_ok=True)
    durable.replace_file(path, json.dumps(content, indent=1).encode(), 0o600)


class Records:
    """The folder of rank records."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, record: RankRecord) -> None:
        """Keep a record, in place of an earlier one of the same rank."""
        write_json(self._path(record.launch_id, record.rank), dataclasses.asdict(record))

    def read(self, launch_id: str, rank: int) -> RankRecord | None:
        """One record, or None."""
        return _parse(self._path(launch_id, rank))

    def all(self) -> tuple[RankRecord, ...]:
        """Every readable record, oldest launch first (launch ids sort by time)."""
        files = sorted(self._folder.glob("*.json")) if self._folder.is_dir() else []
        return tuple(record for record in map(_parse, files) if record)

    def forget(self, launch_id: str, rank: int) -> None:
        """Remove a record; nothing where there is none."""
        self._path(launch_id, rank).unlink(missing_ok=True)

    def _path(self, launch_id: str, rank: int) -> Path:
        return self._folder / f"{launch_id}-rank{rank}.json"


def _parse(path: Path) -> RankRecord | None:
    """A record from its file; a file that is none (half-written by a crash of the machine) counts as absent."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return RankRecord(**{**raw, "argv": tuple(raw["argv"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None
