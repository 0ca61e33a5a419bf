"""Rate of replication between two hosts, beside rsync with a checksum pass and plain ``ssh cat``, in one run.

``python -m bench.replicate_rate [--gib N] [--streams N]`` as root: it makes a testbed of its own. Every way ends with the bytes
on the far disk. Pages are those of the copied files that either end holds in memory afterwards; the copy, its proof included,
should leave almost none. Both hosts share this machine's processors and disk, so only the proportions speak.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bench.hosts import two_hosts
from build.graph.graph import Artefact
from build.nodes.node import SshNode
from build.nodes.ssh_link import Destination
from build.replication.bulk import STREAMS, Sender
from build.replication.far_store import FarStore
from build.replication.replicate import Replication, wants
from build.store.hashing import tree
from build.store.record import Made, record_of
from build.store.store import Store
from tests.testbed.bed import Testbed
from tests.testing.node_tool import node_tool

BLOCK_BYTES = 16 << 20
KEY = "f" * 32


@dataclass(frozen=True, slots=True)
class Row:
    """One way of copying: how long it took, and the pages that both ends keep of the file."""

    way: str
    seconds: float
    head_pages_bytes: int
    worker_pages_bytes: int

    def text(self, size_bytes: int) -> str:
        """For a person."""
        pages = f"pages kept: head {self.head_pages_bytes / 2**20:7.1f} MiB, worker {self.worker_pages_bytes / 2**20:7.1f} MiB"
        return f"{self.way:<42} {self.seconds:7.2f} s  {size_bytes / self.seconds / 1e9:6.3f} GB/s  {pages}"


def main(argv: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.replicate_rate", description=__doc__)
    parser.add_argument("--gib", type=float, default=4.0)
    parser.add_argument("--streams", type=int, default=STREAMS)
    args = parser.parse_args(argv)
    with two_hosts() as testbed, tempfile.TemporaryDirectory(dir="/var/tmp", prefix="rate") as folder:
        for line in measure(testbed, Path(folder), int(args.gib * 2**30), args.streams):
            print(line, flush=True)
    return 0


def measure(testbed: Testbed, folder: Path, size_bytes: int, streams: int) -> Iterator[str]:
    """Every way in turn, with the source's pages dropped before each."""
    worker = testbed.worker
    store = Store(folder / "store")
    source = make(store, size_bytes)
    node = SshNode(
        Destination(worker.name, worker.name, (*testbed.head.prefix, "ssh")), PurePosixPath(worker.plan.folder / "store")
    )
    far = FarStore(node, node_tool())
    far.survey([])
    copy = Replication(far, Sender(node.destination, far.root, store.path, streams=streams))
    wanted = wants(store, store.entries())
    there = worker.plan.folder / "store" / wanted[0].entry / source.name
    yield timed(f"replicate, {streams} streams, hashed there", lambda: copy.run(wanted), source, there).text(size_bytes)
    report = copy.run(wanted)
    yield f"second run: sent {report.sent_bytes} bytes, {report.took_s:.3f} s"
    node.close()
    far_file = worker.plan.folder / "plain"
    rsync = [
        "sh",
        "-c",
        f"rsync -a --whole-file {source} {worker.name}:{far_file} && ssh {worker.name} 'sync {far_file} && sha256sum {far_file}'",
    ]
    yield timed("rsync -a --whole-file, then sha256sum", lambda: testbed.head.run(rsync, timeout_s=1200), source, far_file).text(
        size_bytes
    )
    worker.run(["rm", str(far_file)])
    cat = ["sh", "-c", f"ssh {worker.name} 'cat > {far_file} && sync {far_file}' < {source}"]
    yield timed("ssh cat, not proven", lambda: testbed.head.run(cat, timeout_s=1200), source, far_file).text(size_bytes)
    store.close()


def timed(way: str, copy: Callable[[], object], source: Path, there: Path) -> Row:
    """Run one way."""
    drop(source)
    began = time.monotonic()
    copy()
    return Row(way, time.monotonic() - began, pages_bytes(source), pages_bytes(there))


def make(store: Store, size_bytes: int) -> Path:
    """An entry with one file whose blocks all differ."""
    made = store.scratch.new("made")
    made.mkdir()
    block = bytearray(os.urandom(BLOCK_BYTES))
    with (made / "rank.bin").open("wb") as file:
        for number in range(0, size_bytes, BLOCK_BYTES):
            block[:8] = number.to_bytes(8, "little")
            file.write(block[: min(BLOCK_BYTES, size_bytes - number)])
    job = Made(Artefact(name="rate", builder="bench", version=1), KEY, 0.0, "bench", "")
    return store.path(store.register(made, record_of(job, {}, tree(made))).entry) / "rank.bin"


def drop(path: Path) -> None:
    """Drop a file's pages."""
    subprocess.run([str(node_tool()), "drop", str(path)], check=True, capture_output=True)


def pages_bytes(path: Path) -> int:
    """What of a file is in memory."""
    done = subprocess.run(["fincore", "--json", "--bytes", str(path)], capture_output=True, text=True, check=True)
    return int(json.loads(done.stdout)["fincore"][0]["res"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
