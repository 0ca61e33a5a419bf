"""doit's commands reach the workers' stores: filled by hand, verified, mended, rid of what nothing needs."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from build.errors import Refused
from build.nodes.node import SshNode
from build.nodes.ssh_link import Destination
from build.replication import far_lock
from tests.testbed.bed import Testbed
from tests.testbed.layout import RAIL0
from tests.testing.demo import demo_state
from tests.testing.fleet import STORE, doit, flip, store

pytestmark = [pytest.mark.testbed, pytest.mark.timeout(900)]
SLOW_BYTES_PER_S = 2_000_000
STRANGE = "0" * 32 + "-old"


def test_a_worker_is_filled_verified_mended_and_collected_by_hand(bed: Testbed, tmp_path: Path) -> None:
    (worker,) = bed.workers
    state = demo_state(tmp_path, own_store=True)  # gc is no command for a store that tests share
    filled = doit(bed, state, "replicate")
    assert filled.returncode == 0, filled.stderr
    assert "copied" in filled.stdout
    assert "worker: image " in filled.stdout
    again = doit(bed, state, "replicate")
    looked = re.search(r"worker: has all files that its ranks need \(checked in (\d+\.\d) s\)", again.stdout)
    assert looked, again.stdout
    assert float(looked[1]) < 10  # the goal is 1 s

    victim = next(path for path in store(worker).glob("*/rank1of*.bin"))
    flip(victim)
    verified = doit(bed, state, "verify")
    assert verified.returncode == 6, verified.stdout + verified.stderr
    assert f"{victim.name} has other content" in verified.stdout
    mended = doit(bed, state, "repair")
    assert mended.returncode == 0, mended.stdout + mended.stderr
    assert "worker: 1 mended" in mended.stdout

    (store(worker) / STRANGE).mkdir()
    (store(worker) / f"{STRANGE}.json").write_text("{}")
    kept = {path.name for path in store(worker).iterdir()} - {STRANGE, f"{STRANGE}.json"}
    shown = doit(bed, state, "gc", "--dry-run")
    assert (store(worker) / STRANGE).exists()
    assert "would go  worker: " in shown.stdout
    gone = doit(bed, state, "gc")
    assert gone.returncode == 0, gone.stdout + gone.stderr
    assert kept - {path.name for path in store(worker).iterdir()} == set()
    assert not (store(worker) / STRANGE).exists()


COMING = "until cat tmp/*/progress 2>/dev/null | grep -q .; do sleep 0.02; done"  # a first range has arrived


def meanwhile(act: Callable[[], object]) -> threading.Thread:
    """Beside the copy."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


def test_a_connection_lost_in_the_middle_of_a_copy_is_taken_up_and_the_copy_proven(bed: Testbed, tmp_path: Path) -> None:
    (worker,) = bed.workers
    state = demo_state(tmp_path)
    bed.head.slow(RAIL0, SLOW_BYTES_PER_S)

    def cut() -> None:
        worker.run(["sh", "-c", f"mkdir -p {STORE}; cd {STORE}; {COMING}"])
        assert not list(store(worker).glob("*/rank1of*.bin"))
        worker.restart_sshd()
        bed.head.heal()

    cutting = meanwhile(cut)
    filled = doit(bed, state, "replicate")
    cutting.join(60)
    assert not cutting.is_alive()
    assert filled.returncode == 0, filled.stderr
    assert "copied" in filled.stdout
    verified = doit(bed, state, "verify")
    assert "worker: nothing damaged" in verified.stdout, verified.stdout + verified.stderr
    assert list((store(worker) / "tmp").iterdir()) == []


def test_a_disk_that_gets_full_in_the_middle_of_a_copy_is_said_in_one_line_and_keeps_nothing_half_made(
    bed: Testbed, tmp_path: Path
) -> None:
    (worker,) = bed.workers
    state = demo_state(tmp_path)
    worker.run(["sh", "-c", f"mkdir -p {STORE}; mount -t tmpfs -o size=300m small {STORE}"])
    try:
        bed.head.slow(RAIL0, SLOW_BYTES_PER_S)
        fill = "dd if=/dev/zero of=filler bs=1M 2>/dev/null; true"
        filling = meanwhile(lambda: worker.run(["sh", "-c", f"cd {STORE}; {COMING}; {fill}"]))
        filled = doit(bed, state, "replicate")
        filling.join(60)
        bed.head.heal()
        assert filled.returncode == 3, filled.stdout + filled.stderr
        (line,) = filled.stderr.strip().splitlines()
        assert line.startswith("error: worker: ")
        assert "full" in line
        assert worker.run(["sh", "-c", f"ls {STORE}/tmp; ls -d {STORE}/*.json 2>/dev/null; true"]).stdout == ""
    finally:
        worker.run(["umount", STORE])


def test_a_worker_that_cannot_be_reached_is_said_with_3_after_the_heads_own_work(bed: Testbed, tmp_path: Path) -> None:
    (worker,) = bed.workers
    state = demo_state(tmp_path, own_store=True)  # gc is no command for a store that tests share
    worker.stop_sshd()
    try:
        for command in ("replicate", "gc"):
            done = doit(bed, state, command)
            assert done.returncode == 3, done.stdout + done.stderr
            assert done.stderr.startswith("error: worker: its address answers, but no ssh server listens there")
    finally:
        worker.restart_sshd()


def test_two_at_once_never_work_on_the_same_store(bed: Testbed) -> None:
    (worker,) = bed.workers
    node = SshNode(Destination("worker", worker.name, (*bed.head.prefix, "ssh")), PurePosixPath(STORE))
    said: list[str] = []
    try:
        with far_lock.held(node, said.append):
            (busy,) = (line for line in (store(worker) / ".busy").read_text().splitlines())
            other = busy.rsplit("/", 1)[0] + "/0"  # another thread of this process
            (store(worker) / ".busy").write_text(other + "\n")
            with pytest.raises(Refused, match="its store is in use by process"), far_lock.held(node, said.append, wait_s=0.1):
                pass
            assert said == [f"worker: waiting for {far_lock.shown(other.split(' ')[1])}, which works on its store"]
            gone = other.split("/")
            gone[3] = "1"  # a process that started at another time: it is gone
            (store(worker) / ".busy").write_text("/".join(gone) + "\n")
            with far_lock.held(node, said.append, wait_s=5):
                pass
        assert not (store(worker) / ".busy").exists()
    finally:
        node.close()
