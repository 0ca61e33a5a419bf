"""What a node's copy of a store entry must be, and what is known of it: all pure.

Three looks at a copy prove different things. A **listing** with its **fingerprints** (file system, inode, size, mtime and ctime
equal to those at the last full read) proves that nobody changed a file since it was hashed on that node; it does not see bits
that rot. A **hash** of the bytes proves the bytes. A record's hash proves that the copy was finished, as it is written last.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from build.store import durable
from build.store.fingerprints import RACY_NS
from build.store.hashing import Entry, sha256_bytes
from build.store.record import Record

CHUNK_BYTES = 64 << 20  # what is sent, acknowledged and resumed as one; a multiple of every block size
MODES = {"file": durable.FILE_MODE, "program": durable.PROGRAM_MODE, "folder": durable.FOLDER_MODE}


@dataclass(frozen=True, slots=True)
class Seen:
    """One name below a copy, as the node tool lists it; ``sha256`` of a link's target, or of a file's bytes if read."""

    path: str
    kind: str  # file, folder, link, other
    size: int
    mode: int
    identity: tuple[int, int, int, int]  # inode, size, mtime_ns, ctime_ns
    sha256: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """File identities at the last full read of an entry on a node, and the file system they are of."""

    file_system: str = ""
    files: Mapping[str, tuple[int, int, int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Held:
    """What a node holds of one entry. ``record_sha256`` is "" without a record, ``mode`` -1 without a folder."""

    entry: str
    mode: int = -1
    record_sha256: str = ""
    fingerprints: Fingerprints = Fingerprints()
    names: tuple[Seen, ...] = ()


@dataclass(frozen=True, slots=True)
class Wrong:
    """One name that is not as the record says. ``content`` is False where only a mode is wrong."""

    path: str
    what: str
    content: bool = True


@dataclass(frozen=True, slots=True)
class Finding:
    """What is to do for one entry on one node.

    ``absent``: nothing usable is there. ``wrong``: names that differ. ``suspects``: files whose bytes must be read before they
    count. ``record_ok``: the record is the head's own, byte for byte.
    """

    entry: str
    absent: bool = False
    wrong: tuple[Wrong, ...] = ()
    suspects: tuple[str, ...] = ()
    record_ok: bool = True

    @property
    def good(self) -> bool:
        """Nothing is to do."""
        return not self.absent and not self.wrong and not self.suspects and self.record_ok


@dataclass(frozen=True, slots=True)
class Chunk:
    """A range of one file of an entry, to be sent."""

    entry: str
    path: str
    offset: int
    length: int


def seen(line: str) -> Seen:
    """Read one line of ``twinfold-node hash --tree``. ``ValueError`` where it is none."""
    raw: dict[str, Any] = json.loads(line)
    try:
        kind, path = str(raw["type"]) if "type" in raw else "other", str(raw["path"])
        if "error" in raw:
            return Seen(path, kind, 0, 0, (0, 0, 0, 0), error=str(raw["error"]))
        size = int(raw.get("size", 0))
        sha = (
            sha256_bytes(str(raw["target"]).encode("utf-8", "surrogateescape")) if kind == "link" else str(raw.get("sha256", ""))
        )
        identity = (int(raw["ino"]), size, int(raw["mtime_ns"]), int(raw["ctime_ns"]))
        return Seen(path, kind, size, int(raw["mode"]), identity, sha)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a line of the node tool: {line[:80]!r} ({error})") from None


def take(file_system: str, read: Iterable[Seen], started_ns: int) -> Fingerprints:
    """Fingerprints of files just read; ``started_ns`` is the node's clock before.

    git's racy rule: what changed a moment before it was read could change again within the same tick and look the same, so it is
    not kept.
    """
    kept = {s.path: s.identity for s in read if s.sha256 and s.kind == "file" and max(s.identity[2:]) < started_ns - RACY_NS}
    return Fingerprints(file_system, kept)


def fingerprints_to_json(prints: Fingerprints) -> bytes:
    """The file that lies beside the entries on the node; one line."""
    return (json.dumps({"fs": prints.file_system, "files": prints.files}, sort_keys=True) + "\n").encode()


def fingerprints_from_json(content: str) -> Fingerprints:
    """Read them; what cannot be read counts as none, as they only save work."""
    try:
        raw = json.loads(content)
        files = {str(p): (int(i[0]), int(i[1]), int(i[2]), int(i[3])) for p, i in raw["files"].items()}
        return Fingerprints(str(raw["fs"]), files)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return Fingerprints()


def judge(record: Record, record_sha256: str, held: Held, file_system: str) -> Finding:
    """The quick look: what a listing and its fingerprints say of one entry."""
    if held.mode < 0 or not held.record_sha256:
        return Finding(record.entry, absent=True)
    wrong = tuple(differences(record.files, held))
    bad = {w.path for w in wrong if w.content}
    record_ok = held.record_sha256 == record_sha256
    # Fingerprints speak of files that were as the record beside them says: with another record they say nothing.
    known = held.fingerprints.files if record_ok and held.fingerprints.file_system == file_system else {}
    here = {s.path: s.identity for s in held.names}
    files = (f.path for f in record.files if f.kind in {"file", "program"} and f.path not in bad)
    suspects = tuple(path for path in files if known.get(path) != here.get(path))
    return Finding(record.entry, wrong=wrong, suspects=suspects, record_ok=record_ok)


def differences(files: Iterable[Entry], held: Held) -> Iterator[Wrong]:
    """Names, kinds, sizes, modes, links, and contents where they were read, against what they must be."""
    wanted, found = {f.path: f for f in files}, {s.path: s for s in held.names}
    for path in sorted(wanted.keys() | found.keys()):
        if path not in found:
            yield Wrong(path, "is missing")
        elif path not in wanted:
            yield Wrong(path, "does not belong there")
        elif difference := _difference(wanted[path], found[path]):
            yield difference
    if held.mode != durable.FOLDER_MODE:
        yield Wrong("", f"its folder has mode {held.mode:04o}", content=False)


def _difference(want: Entry, have: Seen) -> Wrong | None:
    kind = "file" if want.kind == "program" else want.kind
    if have.error:
        return Wrong(want.path, f"cannot be read ({have.error})")
    if kind != have.kind:
        return Wrong(want.path, f"is a {have.kind}, was a {kind}")
    if kind == "file" and want.size != have.size:
        return Wrong(want.path, f"has {have.size} bytes, had {want.size}")
    if have.sha256 and want.sha256 != have.sha256:
        return Wrong(want.path, "has other content")
    if kind != "link" and have.mode != MODES[want.kind]:
        return Wrong(want.path, f"has mode {have.mode:04o}, had {MODES[want.kind]:04o}", content=False)
    return None


def chunks(record: Record, done: frozenset[tuple[str, int, int]]) -> Iterator[Chunk]:
    """Ranges still to send, of files that have bytes. ``done``: (path, offset, length) that arrived, also of whole files."""
    for file in record.files:
        if file.kind in {"file", "program"} and (file.path, 0, file.size) not in done:
            for offset in range(0, file.size, CHUNK_BYTES):
                length = min(CHUNK_BYTES, file.size - offset)
                if (file.path, offset, length) not in done:
                    yield Chunk(record.entry, file.path, offset, length)


def unsendable(record: Record) -> str:
    """The first name that the line-by-line protocol cannot carry, or an empty string."""
    return next((f.path for f in record.files if any(c in f.path for c in "\n\t\r")), "")
