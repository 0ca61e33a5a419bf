"""Rank caches packed each on its node: the same bytes as on the head, and nothing half-made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from build.store import generations
from build.store.hashing import tree
from build.store.record import from_json
from build.store.store import Store
from tests.testbed.bed import Testbed
from tests.testing.checkout import CHECKOUT
from tests.testing.demo import demo_state, environment
from tests.testing.fleet import STORE, SupervisedFleet, doit, flip, store
from tests.testing.supervised import until

pytestmark = [pytest.mark.testbed, pytest.mark.timeout(900)]
NAME = "rank1of2"
NODE, HEAD = {"TWINFOLD_PACK_RANK_CACHES": "node"}, {"TWINFOLD_PACK_RANK_CACHES": "head"}


def entry_of(state: Path, role: str) -> str:
    """An input of the current bundle."""
    return Store(state / "store").need(generations.current(state, "demo").bundle_entry).inputs[role].entry


def take_away(state: Path, role: str) -> str:
    """Remove an input of the bundle from the head's store, as if it were never made; its name."""
    head, entry = Store(state / "store"), entry_of(state, role)
    head.discard(entry)
    head.close()
    return entry


def made(bed: Testbed, state: Path, *args: str, **variables: str) -> str:
    """What a doit command that ends well says."""
    done = doit(bed, state, *args, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_cache_packed_on_its_node_has_the_same_key_and_bytes_and_is_packed_once(bed: Testbed, tmp_path: Path) -> None:
    (worker,) = bed.workers
    state = demo_state(tmp_path, own_store=True)
    here = state / "store" / entry_of(state, "rank1")
    packed_here, entry = tree(here), take_away(state, "rank1")
    take_away(state, "check1")

    said = made(bed, state, "-n", "2", **NODE)
    assert "2 built, generation 1," in said
    there = store(worker) / entry
    assert tree(there) == packed_here
    assert list(here.iterdir()) == []
    record = (state / "store" / f"{entry}.json").read_bytes()
    assert (store(worker) / f"{entry}.json").read_bytes() == record
    assert from_json(record, entry).files == packed_here
    assert "nothing to do" in made(bed, state, **NODE)
    flip(next(there.glob("*.bin")))
    assert doit(bed, state, "verify", **NODE).returncode == 6
    assert "packed again on " in made(bed, state, "repair", **NODE)
    assert "worker: nothing damaged" in made(bed, state, "verify", **NODE)
    made(bed, state, "gc", **NODE)
    assert tree(there) == packed_here
    assert list((store(worker) / "tmp").iterdir()) == []

    take_away(state, "rank1")  # the head lost its record: what the node has is read, not packed
    assert f"{NAME}: is on worker already, every byte as its record there says" in made(bed, state, **NODE)
    for place in (NODE, HEAD):  # made anew, there and here, and compared with what is recorded
        assert f"same    {NAME}" in made(bed, state, "check", NAME, **place)
    assert "1 built" in made(bed, state, **HEAD)
    assert tree(here) == packed_here
    assert "nothing to do" in made(bed, state, **NODE)  # what is here already stays


def test_a_gang_is_served_from_it_where_each_rank_runs_on_its_node_and_from_nowhere_else(bed: Testbed, tmp_path: Path) -> None:
    state = demo_state(tmp_path, own_store=True)
    take_away(state, "rank1")
    made(bed, state, **NODE)
    fleet = SupervisedFleet(bed, state, tmp_path, pack_rank_caches="node")
    try:
        fleet.start().wait_ready()
        assert "42" in fleet.answers("What is 6 times 7? Answer with the number alone.")[0]
        assert fleet.command("stop").returncode == 0
        refused = fleet.command("run", "--once", "--runner", "process", TWINFOLD_WORKER="")
        assert refused.returncode == 3, refused.stderr
        assert "rank 1 is to run on this host, and its weight file was packed on " in refused.stderr
    finally:
        fleet.close()


def test_a_node_without_room_is_said_before_anything_is_sent(bed: Testbed, tmp_path: Path) -> None:
    (worker,) = bed.workers
    state = demo_state(tmp_path, own_store=True)
    take_away(state, "rank1")
    worker.run(["sh", "-c", f"mkdir -p {STORE}; mount -t tmpfs -o size=68m small {STORE}"])
    try:
        done = doit(bed, state, **NODE)
        assert done.returncode == 8, done.stdout + done.stderr
        assert "GiB of the checkpoint are missing there and" in done.stderr
        assert worker.run(["sh", "-c", f"ls -d {STORE}/*-checkpoint || true"]).stdout == ""
    finally:
        worker.run(["umount", STORE])


KILLED = """
import sys
from pathlib import Path, PurePosixPath
from build.graph.processes import Children
from build.nodes.node import SshNode
from build.nodes.ssh_link import Destination
from build.replication import far_work
node = SshNode(Destination("worker", sys.argv[1]), PurePosixPath(sys.argv[2]))
far_work.ready(node, sys.argv[3], {})
far_work.work(node, sys.argv[3], ["sh", "-c", "echo begun >&2; sleep 600"], Children(), Path(sys.argv[4]))
"""


def test_a_build_that_is_killed_leaves_neither_a_packer_nor_its_work_on_the_node(bed: Testbed, tmp_path: Path) -> None:
    (worker,) = bed.workers
    entry, log = "1" * 32 + f"-{NAME}", tmp_path / "log"
    argv = bed.head.command([sys.executable, "-c", KILLED, worker.name, STORE, entry, str(log)], CHECKOUT)
    build = subprocess.Popen(argv, env=environment(tmp_path) | bed.head.environment())
    work = store(worker) / "tmp" / entry
    until("the program runs there", lambda: log.exists() and b"begun" in log.read_bytes())
    pid = (work / "pids").read_text().split()[-1]
    assert entry.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    build.kill()
    build.wait()
    until("both are gone", lambda: not work.exists() and not Path(f"/proc/{pid}").exists())
