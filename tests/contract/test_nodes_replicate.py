"""Store paths on a real worker: copied, proven, resumed, mended, refused; over a real sshd and the real node tool."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import pytest

from build.errors import Refused, StoreDamaged
from build.graph.graph import Artefact
from build.nodes.node import SshNode
from build.nodes.ssh_errors import NodeError
from build.nodes.ssh_link import Destination
from build.replication import bulk, replica, replicate
from build.replication.bulk import DiskFull, Sender
from build.replication.far_store import FarStore
from build.replication.replicate import Replication, Want
from build.store.hashing import tree
from build.store.record import Made, record_of
from build.store.store import Store
from tests.testbed.bed import Testbed
from tests.testbed.hosts import Host
from tests.testbed.layout import RAIL0
from tests.testbed.processes import wait_until
from tests.testing.node_tool import node_tool

pytestmark = pytest.mark.testbed

BIG_BYTES = replica.CHUNK_BYTES * 3 + 12_345
KEY = "0123456789abcdef" * 2


@dataclass(slots=True)
class Pair:
    """The head's store with entries in it, and a worker's empty one."""

    store: Store
    worker: Host
    node: SshNode
    far: FarStore

    def wants(self) -> tuple[Want, ...]:
        return replicate.wants(self.store, list(self.store.entries()))

    def run(self, *, streams: int = bulk.STREAMS, patience_s: float = 60.0) -> replicate.Report:
        sender = Sender(self.node.destination, self.far.root, self.store.path, streams=streams, patience_s=patience_s)
        return Replication(self.far, sender).run(self.wants())

    def there(self, entry: str) -> Path:
        return Path(str(self.node.store)) / entry


def add(
    store: Store,
    number: int,
    name: str,
    files: dict[str, bytes],
    *,
    links: dict[str, str] | None = None,
    programs: tuple[str, ...] = (),
) -> str:
    """An entry made as a build makes one."""
    made = store.scratch.new("made")
    made.mkdir()
    for path, content in files.items():
        (made / path).parent.mkdir(parents=True, exist_ok=True)
        (made / path).write_bytes(content)
    for path, target in (links or {}).items():
        (made / path).symlink_to(target)
    for path in programs:
        (made / path).chmod(0o755)
    artefact = Artefact(name=name, builder="test", version=1)
    record = record_of(Made(artefact, f"{number:032x}", 0.0, "test", ""), {}, tree(made))
    return store.register(made, record).entry


@pytest.fixture
def pair(testbed: Testbed, tmp_path: Path) -> Iterator[Pair]:
    worker = testbed.worker
    there = worker.plan.folder / "replica"
    worker.run(["rm", "-rf", str(there)])
    node = SshNode(Destination(worker.name, worker.name, (*testbed.head.prefix, "ssh")), PurePosixPath(there))
    store = Store(tmp_path / "store")
    yield Pair(store, worker, node, FarStore(node, node_tool()))
    node.close()
    store.close()
    worker.run(["rm", "-rf", str(there)])


@pytest.fixture
def small(pair: Pair) -> Pair:
    """A few small entries: odd names, empty files and folders, links, programs."""
    odd = {
        "plain": b"x",
        "sub/ two  words ": b"y" * 5000,
        "sub/-n": b"z",
        "sub/ünï\\t'\"$HOME": b"w",
        "empty": b"",
        "bin/tool": b"#!/bin/sh\n",
    }
    add(pair.store, 1, "odd", odd, links={"sub/link": "two words"}, programs=("bin/tool",))
    add(pair.store, 2, "plain", {"a": b"a" * 100_000, "b/c": b"c" * 4096})
    return pair


def snapshot(path: Path) -> list[tuple[str, int, int, bytes]]:
    """Names, modes, times and contents of a tree."""
    found = []
    for item in sorted([path, *path.rglob("*")]):
        status = item.lstat()
        content = str(item.readlink()).encode() if item.is_symlink() else item.read_bytes() if item.is_file() else b""
        time_s = int(status.st_mtime) if item.is_file() and not item.is_symlink() else 0
        found.append((str(item.relative_to(path)), status.st_mode, time_s, content))
    return found


def test_a_copy_is_like_the_heads_and_a_second_run_copies_nothing(small: Pair) -> None:
    report = small.run()
    assert len(report.copied) == 2
    for entry in small.store.entries():
        assert snapshot(small.there(entry)) == snapshot(small.store.path(entry))
        assert small.there(f"{entry}.json").read_bytes() == small.store.record_path(entry).read_bytes()
    assert list((Path(str(small.node.store)) / "tmp").iterdir()) == []
    again = small.run()
    assert (again.copied, again.mended, again.sent_bytes) == ((), (), 0)
    assert again.check_s < 10  # the goal is 1 s


def test_the_second_look_reads_no_file(small: Pair) -> None:
    small.run()
    survey = small.far.survey([w.entry for w in small.wants()])
    for want in small.wants():
        finding = replica.judge(want.record, want.content_sha256, survey.held[want.entry], survey.file_system)
        assert finding.good


@pytest.mark.parametrize("keep_times", [True, False])
def test_a_flipped_byte_is_found_by_the_quick_look_and_mended(small: Pair, keep_times: bool) -> None:
    small.run()
    entry = small.wants()[1].entry
    file = small.there(entry) / "a"
    status = file.stat()
    content = bytearray(file.read_bytes())
    content[50_000] ^= 1
    file.write_bytes(content)
    if keep_times:
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    findings = {f.entry: f for f in replicate.check(small.far, small.wants())}
    assert [w.path for w in findings[entry].wrong] == ["a"]
    with pytest.raises(Refused, match=r"a has other content.*doit replicate"):
        replicate.require(small.worker.name, findings.values())
    report = small.run()
    assert report.mended == (entry,)
    assert report.sent_bytes == 100_000
    assert snapshot(small.there(entry)) == snapshot(small.store.path(entry))
    replicate.require(small.worker.name, replicate.verify(small.far, small.wants()))
    assert small.run().sent_bytes == 0


@pytest.mark.parametrize(
    "damage",
    [
        "rm {e}/b/c",
        "chmod u+w {e}; touch {e}/extra",
        "rm {e}/a; ln -s b/c {e}/a",
        "rm {e}.json",
        "chmod 644 {e}/a",
        "chmod 755 {e}",
        "chmod u+w {e}.json; echo ' ' >> {e}.json",
        "rm -rf {e}",
        "truncate -s 99999 {e}/a",
        "rm -rf fingerprints",
        "rm -rf tool",
        "echo broken > fingerprints/{e}",
    ],
)
def test_any_damage_is_mended(small: Pair, damage: str) -> None:
    small.run()
    entry = small.wants()[1].entry
    small.worker.run(["sh", "-c", "cd " + str(small.node.store) + "; " + damage.format(e=entry)])
    small.run()
    assert snapshot(small.there(entry)) == snapshot(small.store.path(entry))
    assert small.there(f"{entry}.json").read_bytes() == small.store.record_path(entry).read_bytes()
    replicate.require(small.worker.name, replicate.verify(small.far, small.wants()))


def test_damage_on_the_head_is_named_and_nothing_half_made_stays(small: Pair) -> None:
    want = small.wants()[1]
    (small.store.path(want.entry) / "a").chmod(0o644)
    (small.store.path(want.entry) / "a").write_bytes(b"A" * 100_000)
    with pytest.raises(StoreDamaged, match="damaged on this host"):
        small.run()
    assert not small.there(want.entry).exists()
    assert not small.there(f"tmp/{want.entry}").exists()


def test_entries_are_listed_removed_and_held_by_roots(small: Pair) -> None:
    small.run()
    entries = small.far.entries()
    assert entries == tuple(small.store.entries())
    small.far.set_root("demo-7", entries[:1])
    assert small.far.roots() == {"demo-7": entries[:1]}
    small.far.remove(entries[1])
    assert small.far.entries() == entries[:1]


def test_too_little_room_is_refused_before_a_byte_is_sent(pair: Pair) -> None:
    add(pair.store, 3, "big", {"w.bin": b"\0" * (9 << 20)})
    with_room(pair, "70m")
    try:
        with pytest.raises(DiskFull, match=r"are missing in .* free space there"):
            pair.run()
        assert pair.far.entries() == ()
        assert pair.worker.run(["ls", "-A", f"{pair.node.store}/tmp"]).stdout == ""
    finally:
        pair.worker.run(["umount", str(pair.node.store)])


def test_a_disk_that_gets_full_in_the_middle_keeps_nothing_half_made(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    add(pair.store, 3, "big", {"w.bin": b"\1" * (9 << 20)})
    with_room(pair, "8m")
    monkeypatch.setattr(FarStore, "free_bytes", lambda _self: 1 << 40)  # someone else fills it after the look
    try:
        with pytest.raises(DiskFull, match="full in the middle"):
            pair.run()
        assert pair.far.entries() == ()
        assert pair.worker.run(["ls", "-A", f"{pair.node.store}/tmp"]).stdout == ""
    finally:
        pair.worker.run(["umount", str(pair.node.store)])


def with_room(pair: Pair, size: str) -> None:
    """Give the worker's store a small file system of its own."""
    pair.worker.run(["mkdir", "-p", str(pair.node.store)])
    pair.worker.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "small", str(pair.node.store)])


@pytest.fixture
def big(pair: Pair) -> Pair:
    """One file of several ranges."""
    block = bytes(range(256)) * 4096
    content = (block * (BIG_BYTES // len(block) + 1))[:BIG_BYTES]
    add(pair.store, 4, "weights", {"rank.bin": content, "note": b"small"})
    return pair


def when(happened: Callable[[], bool], then: Callable[[], object]) -> threading.Thread:
    """Do something at a moment of the copy that is looked for from beside it."""

    def watch() -> None:
        wait_until(happened, 60, "the copy never came that far")
        then()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def test_a_lost_connection_in_the_middle_is_taken_up_in_the_same_run(testbed: Testbed, big: Pair) -> None:
    testbed.head.slow(RAIL0, 60_000_000)
    entry = big.wants()[0].entry
    cut = when((big.there(f"tmp/{entry}/tree") / "rank.bin").exists, big.worker.restart_sshd)
    report = big.run()
    cut.join()
    assert report.copied == (entry,)
    replicate.require(big.worker.name, replicate.verify(big.far, big.wants()))


def test_a_cut_link_ends_with_one_line_and_the_next_run_goes_on(testbed: Testbed, big: Pair) -> None:
    testbed.head.slow(RAIL0, 60_000_000)
    progress = big.there(f"tmp/{big.wants()[0].entry}/progress")

    def cut_it() -> None:
        big.worker.lose(RAIL0, 1.0)
        big.worker.stop_sshd()

    cut = when(lambda: progress.exists() and "rank.bin" in progress.read_text(), cut_it)
    with pytest.raises(NodeError) as caught:
        big.run(streams=1, patience_s=1.0)
    cut.join()
    assert "\n" not in str(caught.value)
    testbed.heal()
    big.worker.restart_sshd()
    assert big.far.entries() == ()
    report = big.run()
    assert 0 < report.sent_bytes < BIG_BYTES
    replicate.require(big.worker.name, replicate.verify(big.far, big.wants()))


def test_a_copy_of_another_build_of_the_same_key_is_not_gone_on_with(small: Pair) -> None:
    want = small.wants()[1]
    small.far.survey([])
    left = "mkdir tree; echo other > output; echo no > tree/a; printf 'a\\t0\\t100000\\n' > progress"
    work = f"{small.node.store}/tmp/{want.entry}"
    small.worker.run(["sh", "-c", f"mkdir -p {work}; cd {work}; {left}"])
    small.run()
    assert snapshot(small.there(want.entry)) == snapshot(small.store.path(want.entry))


def test_a_range_that_did_not_arrive_as_sent_is_sent_again(small: Pair) -> None:
    want = small.wants()[1]
    small.far.survey([])
    small.far.prepare(want.record, want.source)
    half = f"cd {small.node.store}/tmp/{want.entry}; head -c 100000 /dev/zero > tree/a; printf 'a\\t0\\t100000\\n' > progress"
    small.worker.run(["sh", "-c", half])
    small.run()
    assert snapshot(small.there(want.entry)) == snapshot(small.store.path(want.entry))


def test_neither_end_keeps_pages_of_what_was_copied(big: Pair) -> None:
    entry = big.wants()[0].entry
    subprocess.run([str(node_tool()), "drop", str(big.store.path(entry))], check=True, capture_output=True)
    big.run()
    for file in (big.store.path(entry) / "rank.bin", big.there(entry) / "rank.bin"):
        done = subprocess.run(["fincore", "--json", "--bytes", str(file)], capture_output=True, text=True, check=True)
        assert int(json.loads(done.stdout)["fincore"][0]["res"]) < 64 << 20, file


def test_the_bytes_of_a_range_are_the_files(tmp_path: Path) -> None:
    content = bytes(range(256)) * 40_000
    (tmp_path / "f").write_bytes(content)
    assert b"".join(bytes(b) for b in bulk.blocks(tmp_path / "f", 4096 * 256, 3_000_001)) == content[4096 * 256 :][:3_000_001]
    with pytest.raises(StoreDamaged, match="shorter"):
        list(bulk.blocks(tmp_path / "f", 0, len(content) + 1))
    with pytest.raises(StoreDamaged, match="cannot be read"):
        list(bulk.blocks(tmp_path / "none", 0, 1))


def test_what_the_workers_own_cache_of_the_hub_has_is_not_sent(pair: Pair, tmp_path: Path) -> None:
    contents = {"inference/config.json": b"{}", "right": os.urandom(9 << 20), "other": b"y" * 5000, "missing": b"z" * 7000}
    entry = add(pair.store, 7, "read", contents)
    place = "models--a--b/snapshots/1"
    cache = tmp_path / "hub" / place
    for path, content in {**contents, "other": b"n" * 5000}.items():
        if path != "missing":
            (cache / path).parent.mkdir(parents=True, exist_ok=True)
            (cache / path).write_bytes(content)
    (cache / "right").rename(tmp_path / "blob")
    (cache / "right").symlink_to(tmp_path / "blob")  # as the hub's client lays them out
    (tmp_path / "blob").chmod(0o640)
    before = (tmp_path / "blob").stat()
    said: list[str] = []
    sender = Sender(pair.node.destination, pair.far.root, pair.store.path)
    (want,) = replicate.wants(pair.store, [entry])
    to = Replication(pair.far, sender, said.append, cache=str(tmp_path / "hub"))
    report = to.run([replace(want, snapshot=place)])
    assert report.sent_bytes == 5000 + 7000
    assert {
        str(p.relative_to(pair.there(entry))): p.read_bytes() for p in pair.there(entry).rglob("*") if p.is_file()
    } == contents
    assert any("3 files of " in line and "are not sent" in line for line in said)
    after = (tmp_path / "blob").stat()
    assert (after.st_mode, after.st_mtime_ns, after.st_ctime_ns) == (before.st_mode, before.st_mtime_ns, before.st_ctime_ns)
