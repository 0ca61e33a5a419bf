"""Rank caches packed on the node that serves the rank: the whole checkpoint goes there, the weight file never travels.

The packer is the head's own binary, and a cache has the same key and the same bytes wherever it is packed. It is made in the
node's ``tmp/``, read there once whole for its hashes, and gets its name when the head registers it: the head keeps the record
and an empty folder. What the packer reads stays on the node until ``doit gc``, which leaves it there while the packer runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from build.artefacts import rank_cache, served
from build.errors import BuildFailed, StoreDamaged
from build.replication import far_lock, far_work, replica, replicate
from build.replication.beside import Beside, beside, packed
from build.replication.far_store import FarStore, Read
from build.replication.replica import Held
from build.replication.replicas import Replica
from build.replication.replicate import SPARE_BYTES, Want
from build.store import record as records
from build.store.hashing import Entry
from build.store.record import Record
from build.store.store import Store
from build.units import GIB

if TYPE_CHECKING:
    from build.graph.jobs import Job

ROOT = "packing-"  # of what a packer reads, in front of the artefact's name
MAKER = {rank_cache.BUILDER: ("packer", rank_cache.PACKER), rank_cache.CHECK_BUILDER: ("checker", rank_cache.CHECKER)}


class FarPacker:
    """Packs on one node. ``store`` is the head's, ``tool`` the node tool's binary on the head, ``platform`` what it is for."""

    def __init__(self, node: Replica, store: Store, tool: Path, platform: str, say: Callable[[str], None]) -> None:
        self._replica, self._store, self._platform, self._say = node, store, platform, say
        self._far = FarStore(node.node, tool)
        self._made: dict[str, Read | None] = {}  # entries to publish: what was read of a new one, None for one that was there

    def pack(self, job: Job, need_bytes: int, read: Callable[[str], None]) -> tuple[Entry, ...]:
        """See :class:`build.graph.jobs.Elsewhere`. One that is whole there already is taken as it is, unless it must be fresh."""
        if not job.fresh and (known := self._whole(job.entry)) is not None:
            self._made[job.entry] = None
            self._say(f"{job.artefact.name}: is on {self._replica.host.name} already, every byte as its record there says")
            return known
        try:
            read(self._run(job, f"tmp/{job.entry}/tree", need_bytes))
            return self._sealed(job, need_bytes)
        except BaseException:
            self._far.discard_copy(job.entry)
            raise

    def check(self, job: Job) -> str:
        """See :class:`build.graph.jobs.Elsewhere`."""
        try:
            return self._run(job, job.records["cache"].entry, 0)
        finally:
            self._far.discard_copy(job.entry)

    def publish(self, new: Record) -> None:
        """Give what was packed its name there, and its record, last."""
        read, content = self._made.pop(new.entry), records.to_json(new)
        with far_lock.held(self._replica.node, self._say):
            if read is None:
                self._far.rewrite_record(new.entry, content)
                return
            file_system = self._far.survey([new.entry]).file_system
            self._far.keep_fingerprints(new.entry, replica.take(file_system, read.names, read.started_ns))
            self._far.publish(new, content)

    def drop(self, entry: str) -> None:
        """Remove what was packed of an entry and not published."""
        if self._made.pop(entry, None) is not None:
            self._far.discard_copy(entry)

    def close(self) -> None:
        """Let the connection go."""
        self._replica.close()

    def _whole(self, entry: str) -> tuple[Entry, ...] | None:
        """What an entry holds there, where it is just as its record there says, read now."""
        held = self._far.survey([entry]).held[entry]
        if held.mode < 0 or not held.record_sha256:
            return None
        try:
            known = records.from_json(self._far.record(entry), entry)
        except StoreDamaged:
            return None
        read = self._far.hash_tree(entry, known.size_bytes)
        wrong = any(True for _ in replica.differences(known.files, Held(entry, held.mode, names=read.names)))
        return None if wrong else known.files

    def _run(self, job: Job, last: str, need_bytes: int) -> str:
        """Run the artefact's program with the model, a path of the node's store and the rank; what it printed."""
        role, program = MAKER[job.artefact.builder]
        store, root = self._place(job), ROOT + job.artefact.name
        try:
            model = self._bring(job, (role, root), (store, need_bytes))
            argv = [f"{store}/{job.records[role].entry}/{program}", f"{store}/{model}", f"{store}/{last}", *rank_cache.ranks(job)]
            return job.ended(program, far_work.work(self._replica.node, job.entry, argv, job.tools.children, job.log)).stdout
        finally:
            self._far.set_root(root, ())

    def _place(self, job: Job) -> Path:
        """The node's store, absolute. ``BuildFailed`` where the packer was not built for that machine."""
        place = self._replica.place()
        if place.platform == self._platform:
            return place.store
        what = f"{self._replica.host.name} is {place.platform}, and the packer was built for {self._platform}"
        raise BuildFailed(f'{job.artefact.name}: {what}: set pack_rank_caches = "head"')

    def _bring(self, job: Job, named: tuple[str, str], room: tuple[Path, int]) -> str:
        """All that the program reads, on the node and kept there; the model's path below the node's store."""
        (role, root), (store, need_bytes) = named, room
        model = job.records["model"]
        files = (*beside(self._store, [model.entry]), *packed(self._store, [model.entry]))
        wanted = (*replicate.wants(self._store, [model.entry, job.records[role].entry]), *self._replica.wanted(files))
        self._room(job, wanted, need_bytes)
        with far_lock.held(self._replica.node, self._say):
            self._far.set_root(root, [want.entry for want in wanted])
        self._replica.to(self._far).run(wanted)
        links = dict(_links(model, files, store)) if model.builder == served.BUILDER else {}
        far_work.ready(self._replica.node, job.entry, links)
        return f"tmp/{job.entry}/model" if links else model.entry

    def _room(self, job: Job, wanted: Sequence[Want], need_bytes: int) -> None:
        """Everything that will be written there is counted before the first byte of it."""
        whole = {finding.entry for finding in replicate.check(self._far, wanted) if not finding.absent}
        missing = sum(want.record.size_bytes for want in wanted if want.entry not in whole)
        free = self._far.free_bytes()
        if missing + need_bytes + SPARE_BYTES > free:
            need = f"{missing / GIB:.1f} GiB of the checkpoint are missing there and {need_bytes / GIB:.1f} GiB are packed"
            lacks = f'{free / GIB:.1f} GiB are free: free space there, or set pack_rank_caches = "head"'
            raise BuildFailed(f"{job.artefact.name}: {self._replica.host.name}: {need}, {lacks}")

    def _sealed(self, job: Job, need_bytes: int) -> tuple[Entry, ...]:
        """What was made, durable and read once whole."""
        artefact, key = job.artefact, job.entry.removesuffix(f"-{job.artefact.name}")
        about = (Entry(artefact.name, "file", need_bytes, ""),)  # how long reading it may take
        self._far.seal(Record(key, artefact.name, artefact.builder, artefact.version, artefact.params, {}, about, ""))
        read = self._far.hash_tree(job.entry, need_bytes, copy=True)
        found = tuple(sorted(_entries(job, read), key=lambda one: one.path))
        self._made[job.entry] = read
        return found


def _entries(job: Job, read: Read) -> Iterable[Entry]:
    for seen in read.names:
        if seen.error or seen.kind not in {"file", "folder", "link"}:
            raise BuildFailed(f"{job.artefact.name}: {seen.path} cannot be read where it was packed: {seen.error or seen.kind}")
        kind = "program" if seen.kind == "file" and seen.mode & 0o100 else seen.kind
        yield Entry(seen.path, kind, seen.size if seen.kind == "file" else 0, seen.sha256)


def _links(model: Record, files: Iterable[Beside], store: Path) -> Iterable[tuple[str, str]]:
    """(path in the model's folder, where the node has it): a served folder's own links lead to the hub's cache, on the head."""
    for own in model.files:
        if own.kind in {"file", "program"}:
            yield own.path, f"{store}/{model.entry}/{own.path}"
    for one in files:
        for path, _ in one.sizes:
            yield path, f"{store}/{one.entry}/{path}"
