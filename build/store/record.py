"""The record of a stored artefact: what it was made from and what it holds, one JSON file beside its path."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from build.errors import StoreDamaged
from build.graph import graph
from build.graph.graph import Artefact, Resolved
from build.store.hashing import Entry, tree_hash

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Input:
    """One input as it was: the store entry that was read, and its output hash."""

    entry: str
    output: str


@dataclass(frozen=True, slots=True)
class Made:
    """How an artefact was made, beside what it was made from and what came out."""

    artefact: Artefact
    key: str
    duration_s: float
    host: str
    outside: str


@dataclass(frozen=True, slots=True)
class Record:
    """``output`` is the tree hash over ``files``. ``outside``: for a reference artefact, the folder that holds the bytes its
    files only describe. ``host``: the platform that it was made on."""

    key: str
    name: str
    builder: str
    version: int
    params: Mapping[str, Any]
    inputs: Mapping[str, Input]
    files: tuple[Entry, ...]
    output: str
    duration_s: float = 0.0
    platform: str = ""
    host: str = ""
    outside: str = ""
    by_place: bool = False

    @property
    def entry(self) -> str:
        """The name of its path in the store."""
        return f"{self.key}-{self.name}"

    @property
    def size_bytes(self) -> int:
        """All of its files together."""
        return sum(f.size for f in self.files)


def artefact_of(record: Record) -> Artefact:
    """What the record's path was made as; ``inputs`` hold store entries in place of names."""
    return Artefact(
        name=record.name,
        builder=record.builder,
        version=record.version,
        params=record.params,
        inputs={role: i.entry for role, i in record.inputs.items()},
        known_output=record.output,
        by_place=record.by_place,
        platform=record.platform,
    )


def key_of(record: Record) -> str:
    """The key that the record's own content gives."""
    return graph.key(artefact_of(record), {role: (i.entry, i.output) for role, i in record.inputs.items()})


def record_of(job: Made, inputs: Mapping[str, Resolved], files: tuple[Entry, ...]) -> Record:
    """The record of a finished artefact."""
    a = job.artefact
    used = {role: Input(str(i.entry), str(i.output)) for role, i in sorted(inputs.items())}
    return Record(
        key=job.key,
        name=a.name,
        builder=a.builder,
        version=a.version,
        params=a.params,
        inputs=used,
        files=files,
        output=tree_hash(files),
        duration_s=round(job.duration_s, 3),
        platform=a.platform,
        host=job.host,
        outside=job.outside,
        by_place=a.by_place,
    )


def to_json(record: Record) -> bytes:
    """The record's file."""
    raw = {
        "format": FORMAT,
        "key": record.key,
        "name": record.name,
        "builder": record.builder,
        "version": record.version,
        "params": record.params,
        "inputs": {role: {"entry": i.entry, "output": i.output} for role, i in record.inputs.items()},
        "files": [[f.path, f.kind, f.size, f.sha256] for f in record.files],
        "output": record.output,
        "duration_s": record.duration_s,
        "platform": record.platform,
        "host": record.host,
        "outside": record.outside,
        "by_place": record.by_place,
    }
    return (json.dumps(raw, sort_keys=True) + "\n").encode()


def from_json(content: bytes, entry: str) -> Record:
    """Read a record; ``StoreDamaged`` where it is none, of another format, or of another path than ``entry``."""
    try:
        raw = json.loads(content)
        if raw["format"] != FORMAT:
            raise StoreDamaged(
                f"the record of {entry} has format {raw['format']}, wanted {FORMAT}: made by another version of twinfold"
            )
        record = Record(
            key=str(raw["key"]),
            name=str(raw["name"]),
            builder=str(raw["builder"]),
            version=int(raw["version"]),
            params=dict(raw["params"]),
            inputs={str(role): Input(i["entry"], i["output"]) for role, i in raw["inputs"].items()},
            files=tuple(Entry(path, kind, size, sha) for path, kind, size, sha in raw["files"]),
            output=str(raw["output"]),
            duration_s=float(raw["duration_s"]),
            platform=str(raw["platform"]),
            host=str(raw["host"]),
            outside=str(raw["outside"]),
            by_place=bool(raw["by_place"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        what = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise StoreDamaged(f"the record of {entry} is not readable ({what}): run `doit repair`") from None
    if record.entry != entry:
        raise StoreDamaged(f"the record of {entry} speaks of {record.entry}: run `doit repair`")
    return record
