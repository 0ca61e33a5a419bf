"""Store paths of the head on another node: what is there, what is missing, and the copy that is proven before it counts.

``check`` is the quick look before every launch: one command lists a node's copies, and only files that are not as they were at
their last full read are read again. It finds every change that was made through the file system, a flipped byte included, as a
change moves ctime; it does not find rot below the file system. ``verify`` reads every byte.

A copy that was cut off stays in the node's ``tmp/<entry>`` and goes on from there. Where the node's disk gets full in the middle,
the copy is removed: a full disk hurts the node more than sending again does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from build.errors import Refused, StoreDamaged, UsageError
from build.replication import replica
from build.replication.bulk import DiskFull, Sender
from build.replication.far_store import FarStore, Read, Survey
from build.replication.replica import Chunk, Finding, Fingerprints, Held, Wrong
from build.store import hashing
from build.store.hashing import sha256_bytes
from build.store.outside import ON_NODE, is_on_node
from build.store.record import Record
from build.store.store import Store
from build.units import GIB

SPARE_BYTES = 64 << 20  # left free beside what is copied
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Want:
    """An entry that a node is to hold: its record, the record's very bytes, and where it lies on the head.

    ``snapshot``: where its files lie below any cache of the hub; "" for files of no snapshot.
    """

    record: Record
    content: bytes
    source: Path
    snapshot: str = ""

    @property
    def entry(self) -> str:
        """The entry's name."""
        return self.record.entry

    @property
    def made_there(self) -> bool:
        """True where only the node has its bytes."""
        return is_on_node(self.record.outside)

    @property
    def content_sha256(self) -> str:
        """sha256 of the record's file."""
        return sha256_bytes(self.content)


@dataclass(frozen=True, slots=True)
class Report:
    """What one replication did. ``sent_bytes`` went over the wire; ``check_s`` is the part of ``took_s`` spent on looking."""

    node: str
    copied: tuple[str, ...]
    mended: tuple[str, ...]
    sent_bytes: int
    check_s: float
    took_s: float


def told_report(report: Report) -> str:
    """What was brought, or that nothing was missing and how long looking took, for a person."""
    parts = [f"{len(names)} {word}" for names, word in ((report.copied, "copied"), (report.mended, "mended")) if names]
    if not parts:
        return f"{report.node}: has all files that its ranks need (checked in {report.check_s:.1f} s)"
    return f"{report.node}: {', '.join(parts)}, {report.sent_bytes / 2**20:.1f} MiB sent in {report.took_s:.1f} s"


def wants(store: Store, entries: Iterable[str], *, there: bool = False) -> tuple[Want, ...]:
    """What is to be held, from the head's store. Refused where an entry only points at bytes outside the store.

    ``there``: rank caches that were packed on a node count too; that node has them, and no other can be given them.
    """
    found = []
    for entry in sorted(set(entries)):
        record = store.need(entry)
        if is_on_node(record.outside) and not there:
            where = record.outside.removeprefix(ON_NODE)
            raise Refused(f'{entry} was packed on {where} and lies there alone: set pack_rank_caches = "head" and run `doit`')
        if record.outside and not is_on_node(record.outside):
            raise Refused(f"{entry} points at {record.outside}, outside the store: it cannot be copied to a node")
        if name := replica.unsendable(record):
            raise UsageError(f"{entry} holds the name {name!r}: tabs and line breaks cannot be copied to a node")
        found.append(Want(record, store.record_path(entry).read_bytes(), store.path(entry)))
    return tuple(found)


def check(far: FarStore, wanted: Sequence[Want]) -> tuple[Finding, ...]:
    """The quick look. Files that may have changed are read on the node, so no finding has suspects left."""
    survey = far.survey([w.entry for w in wanted])
    return tuple(_settled(far, want, survey) for want in wanted)


def _settled(far: FarStore, want: Want, survey: Survey) -> Finding:
    held = survey.held[want.entry]
    finding = replica.judge(want.record, want.content_sha256, held, survey.file_system)
    if not finding.suspects:
        return finding
    suspects = set(finding.suspects)
    size_bytes = sum(f.size for f in want.record.files if f.path in suspects)
    read = far.hash_files(want.entry, finding.suspects, size_bytes)
    wrong = _contents(want.record, read, suspects)
    fresh = replica.take(survey.file_system, (s for s in read.names if s.path not in {w.path for w in wrong}), read.started_ns)
    kept = _still_true(held, survey.file_system, suspects) if finding.record_ok else {}
    far.keep_fingerprints(want.entry, Fingerprints(survey.file_system, {**kept, **fresh.files}))
    return replace(finding, suspects=(), wrong=(*finding.wrong, *wrong))


def _contents(record: Record, read: Read, paths: set[str]) -> tuple[Wrong, ...]:
    """Those of the files just read whose bytes are not the record's; one that was not read is wrong too."""
    held = Held(record.entry, 0o555, names=read.names)
    return tuple(w for w in replica.differences((f for f in record.files if f.path in paths), held) if w.content)


def _still_true(held: Held, file_system: str, suspects: set[str]) -> Mapping[str, tuple[int, int, int, int]]:
    if held.fingerprints.file_system != file_system:
        return {}
    return {path: identity for path, identity in held.fingerprints.files.items() if path not in suspects}


def verify(far: FarStore, wanted: Sequence[Want]) -> tuple[Finding, ...]:
    """The full look: every byte is read on the node. What is right is remembered, so that the next check is quick."""
    survey = far.survey([w.entry for w in wanted])
    return tuple(_verified(far, want, survey) for want in wanted)


def _verified(far: FarStore, want: Want, survey: Survey) -> Finding:
    held = survey.held[want.entry]
    finding = replica.judge(want.record, want.content_sha256, held, survey.file_system)
    if finding.absent:
        return finding
    read = far.hash_tree(want.entry, want.record.size_bytes)
    wrong = tuple(replica.differences(want.record.files, replace(held, names=read.names)))
    bad = {w.path for w in wrong}
    far.keep_fingerprints(
        want.entry, replica.take(survey.file_system, (s for s in read.names if s.path not in bad), read.started_ns)
    )
    return replace(finding, wrong=wrong, suspects=())


def require(node: str, findings: Iterable[Finding]) -> None:
    """Refuse where anything is missing or wrong: for launches that must not copy (``PREPARE=0``)."""
    bad = [finding for finding in findings if not finding.good]
    if bad:
        first = bad[0]
        what = "is not there" if first.absent else told(first)
        more = f", and {len(bad) - 1} more" if len(bad) > 1 else ""
        raise Refused(f"{node}: {first.entry} {what}{more}: run `doit replicate`")


def told(finding: Finding) -> str:
    """What is wrong with an entry, for a person."""
    if finding.wrong:
        return ", ".join(f"{w.path or 'folder'} {w.what}" for w in finding.wrong[:3])
    return "has another record" if not finding.record_ok else "is whole"


def lost(finding: Finding) -> bool:
    """True where bytes are missing or wrong."""
    return finding.absent or any(wrong.content for wrong in finding.wrong)


class Replication:
    """Brings what is wanted to one node. ``alone`` keeps others from that store while something is brought.

    ``cache``: the hub's cache on that node, "" for none. A file of a snapshot that is whole there is copied on the node.
    """

    def __init__(
        self,
        far: FarStore,
        sender: Sender,
        say: Say = lambda _line: None,
        alone: Callable[[], AbstractContextManager[None]] = nullcontext,
        cache: str = "",
    ) -> None:
        self._far, self._sender, self._say, self._alone, self._cache = far, sender, say, alone, cache

    def run(self, wanted: Sequence[Want], *, thorough: bool = False) -> Report:
        """Check, copy what is missing, mend what is damaged; every new copy is proven on the node before it counts.

        ``thorough``: what is there already is read byte by byte too.
        """
        began = time.monotonic()
        look = verify if thorough else check
        findings = look(self._far, wanted)
        check_s = time.monotonic() - began
        if all(finding.good for finding in findings):
            return Report(self._far.node.name, (), (), 0, check_s, check_s)
        with self._alone():
            return self._bring(wanted, look(self._far, wanted), began, check_s)

    def _bring(self, wanted: Sequence[Want], findings: Sequence[Finding], began: float, check_s: float) -> Report:
        """Alone at that store, where another may have brought some of it by now."""
        by_entry = {want.entry: want for want in wanted}
        todo = [(by_entry[f.entry], f) for f in findings if not f.good]
        for want, finding in todo:
            if want.made_there and lost(finding):
                what = "is not there any more" if finding.absent else told(finding)
                raise StoreDamaged(f"{self._far.node.name}: {want.entry} {what}, and only this node had it: run `doit repair`")
        copy = [want for want, finding in todo if self._opened(want, finding)]
        sent_bytes = self._copy(copy) if copy else 0
        copied = tuple(f.entry for _, f in todo if f.absent)
        mended = tuple(f.entry for _, f in todo if not f.absent)
        return Report(self._far.node.name, copied, mended, sent_bytes, check_s, time.monotonic() - began)

    def _opened(self, want: Want, finding: Finding) -> bool:
        """Mend what needs no bytes; else make ready for them: True where files are to be sent."""
        if finding.absent:
            return True
        self._say(f"{self._far.node.name}: {want.entry}: {told(finding)}: mending")
        bad = [w.path for w in finding.wrong if w.content]
        if bad:
            files = ((f.path, f.size) for f in want.record.files if f.kind in {"file", "program"} and f.path not in set(bad))
            self._far.reopen(want.record, bad, files)
            return True
        if finding.wrong:
            self._far.mend_modes(want.record)
        if not finding.record_ok:
            self._far.rewrite_record(want.entry, want.content)
        return False

    def _copy(self, wanted: Sequence[Want]) -> int:
        chunks = self._prepared(wanted)
        self._room(sum(c.length for c in chunks), wanted)
        copied = [self._copied_there(want, chunks) for want in wanted if self._cache and want.snapshot]
        if any(copied):
            chunks = self._prepared(wanted)
        unfinished = [want.entry for want in wanted]
        try:
            sent_bytes = self._send(chunks)
            for want in wanted:
                sent_bytes += self._finish(want)
                unfinished.remove(want.entry)
        except DiskFull:
            for entry in unfinished:
                self._far.discard_copy(entry)
            raise
        return sent_bytes

    def _prepared(self, wanted: Sequence[Want]) -> list[Chunk]:
        """Make every want's work folder there; the ranges that have not arrived."""
        return [chunk for want in wanted for chunk in replica.chunks(want.record, self._far.prepare(want.record, want.source))]

    def _copied_there(self, want: Want, chunks: Sequence[Chunk]) -> bool:
        """True where the node's own cache had files that have not arrived; their content is proven like any other's."""
        missing = {chunk.path for chunk in chunks if chunk.entry == want.entry}
        files = [(f.path, f.size) for f in want.record.files if f.path in missing]
        copied = self._far.copy_from(f"{self._cache}/{want.snapshot}", want.entry, files) if files else ()
        if copied:
            size_bytes = sum(size for path, size in files if path in copied)
            what = f"{len(copied)} files of {want.entry} ({size_bytes / GIB:.1f} GiB)"
            self._say(f"{self._far.node.name}: {what} are in its cache of the hub, and are not sent")
        return bool(copied)

    def _room(self, missing_bytes: int, wanted: Sequence[Want]) -> None:
        free_bytes = self._far.free_bytes()
        if missing_bytes + SPARE_BYTES > free_bytes:
            for want in wanted:
                self._far.discard_copy(want.entry)
            need = f"{missing_bytes / 2**30:.1f} GiB are missing in {self._far.root}"
            raise DiskFull(self._far.node.name, f"{need}, and {free_bytes / 2**30:.1f} GiB are free: free space there")

    def _send(self, chunks: Sequence[Chunk]) -> int:
        total, arrived, shown_at = sum(c.length for c in chunks), 0, time.monotonic()

        def count(length: int) -> None:
            nonlocal arrived, shown_at
            arrived += length
            if time.monotonic() - shown_at > 2.0:
                shown_at = time.monotonic()
                self._say(f"{self._far.node.name}: {arrived >> 20} of {total >> 20} MiB copied")

        return self._sender.send(chunks, count).bytes

    def _finish(self, want: Want) -> int:
        """Prove the copy and move it into place; what did not arrive as it was sent is sent once more."""
        wrong, read = self._proven(want)
        sent_bytes = 0
        if wrong:
            bad = [w.path for w in wrong]
            self._say(f"{self._far.node.name}: {want.entry}: {bad[0]} did not arrive as it was sent: sending it again")
            self._far.resend(want.entry, bad)
            sent_bytes = self._send(list(replica.chunks(want.record, self._far.prepare(want.record, want.source))))
            wrong, read = self._proven(want)
        if wrong:
            self._far.discard_copy(want.entry)
            raise self._blame(want, wrong[0])
        file_system = self._far.survey([want.entry]).file_system
        self._far.keep_fingerprints(want.entry, replica.take(file_system, read.names, read.started_ns))
        self._far.publish(want.record, want.content)
        return sent_bytes

    def _proven(self, want: Want) -> tuple[tuple[Wrong, ...], Read]:
        self._far.seal(want.record)
        read = self._far.hash_tree(want.entry, want.record.size_bytes, copy=True)
        return tuple(replica.differences(want.record.files, Held(want.entry, 0o555, names=read.names))), read

    def _blame(self, want: Want, wrong: Wrong) -> StoreDamaged:
        """Whose fault it is that a file arrives with other bytes than its record's."""
        source = {f.path: f.sha256 for f in want.record.files}
        if wrong.path in source and hashing.sha256_file(want.source / wrong.path) != source[wrong.path]:
            return StoreDamaged(f"{want.entry}/{wrong.path} is damaged on this host: run `doit repair`, then again")
        return StoreDamaged(
            f"{self._far.node.name}: {want.entry}/{wrong.path} {wrong.what} each time it is copied: check its disk and memory"
        )
