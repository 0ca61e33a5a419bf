"""The store's verbs beside a gang that serves: what it uses stays, whoever collects, rolls back, repairs or dies meanwhile."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from build.store import generations, hashing, roots
from build.store.store import Store
from tests.testing.checkout import CHECKOUT
from tests.testing.demo import demo_state, doit
from tests.testing.supervised import Supervised, kill
from tests.testing.waiting import exists

pytestmark = pytest.mark.timeout(1500)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder with two generations that share no weights; the older one is current."""
    folder = tmp_path_factory.mktemp("built")
    state = demo_state(folder, own_store=True)
    here = folder / "checkout"
    for name in ("build", "supervisor", "lockfiles"):
        shutil.copytree(CHECKOUT / name, here / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("dodo.py", "pyproject.toml"):
        shutil.copy2(CHECKOUT / name, here / name)
    text = min((here / "build" / "demo" / "text").glob("*.txt"))
    text.write_text(text.read_text().replace(" is ", " iz ", 1))
    done = doit(state=state, checkout=here)
    assert done.returncode == 0, done.stderr
    (state / "checkout").symlink_to(here)
    run(state, "rollback")
    return state


@pytest.fixture
def gang(built: Path, tmp_path: Path) -> Iterator[Supervised]:
    """A gang of the older generation, in a store of its own."""
    shutil.copytree(built, tmp_path / "state", symlinks=True, ignore=shutil.ignore_patterns("run", "cache"))
    one = Supervised(tmp_path / "state", tmp_path)
    try:
        yield one.start().wait_ready()
    finally:
        one.close()


def closure(state: Path, number: int) -> frozenset[str]:
    """Everything that a generation needs."""
    entry = generations.find(state, "demo", number).bundle_entry
    return roots.reached(Store(state / "store"), [roots.Root(entry, "it")], strict=True)


def whole(state: Path, entries: frozenset[str]) -> bool:
    store = Store(state / "store")
    return all(hashing.tree(store.path(entry)) == store.need(entry).files for entry in entries)


def run(state: Path, *args: str) -> str:
    """A command from the checkout whose text made the newer generation: what it would build is no root of the older one."""
    done = doit(*args, state=state, checkout=(state / "checkout").resolve())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def answers(gang: Supervised) -> bool:
    status, reply = gang.ask("What is 6 times 7? Answer with the number alone.")
    return status == 200 and "42" in json.dumps(reply["choices"])


def test_neither_rollback_nor_gc_takes_what_a_serving_gang_uses(gang: Supervised) -> None:
    state, pids = gang.state, gang.pids()
    used, newer = closure(state, 1), closure(state, 2)
    assert used - newer
    run(state, "rollback", "--to", "2")
    said = run(state, "gc", "--keep", "1")
    assert "gone  generation 1 of demo" in said
    assert [g.number for g in generations.every(state, "demo")] == [2]
    assert whole(state, used | newer)
    assert "every byte as recorded" in run(state, "verify")
    assert answers(gang)
    assert gang.pids() == pids
    assert gang.status()["state"] == "serving"
    # a restart takes the current generation; only then is the earlier one free
    assert gang.command("restart").returncode == 0
    gang.wait_ready(2)
    assert gang.status()["generation"] == 2
    run(state, "gc", "--keep", "1")
    assert not any(Store(state / "store").path(entry).exists() for entry in used - newer)
    assert whole(state, newer)
    assert answers(gang)


def test_what_a_gang_uses_stays_also_when_its_supervisor_was_killed(gang: Supervised) -> None:
    state, pids = gang.state, gang.pids()
    used = closure(state, 1)
    run(state, "rollback", "--to", "2")
    kill(gang.running.pid)
    gang.running.wait()
    assert all(exists(pid) for pid in pids.values())
    run(state, "gc", "--keep", "1")
    assert whole(state, used)
    assert answers(gang)
    assert gang.command("stop").returncode == 0
    run(state, "gc", "--keep", "1")
    assert not any(Store(state / "store").path(entry).exists() for entry in used - closure(state, 2))


def test_a_repair_beside_a_gang_puts_right_bytes_under_it_and_the_next_launch_reads_them(gang: Supervised) -> None:
    state = gang.state
    used = closure(state, 1)
    (rank,) = (entry for entry in used if entry.endswith("-rank1of2"))
    file = next((state / "store" / rank).glob("*.bin"))
    content = file.read_bytes()
    # another inode, as bit rot would not make: what the gang has mapped must stay as it is
    file.parent.chmod(0o755)
    file.unlink()
    file.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    file.chmod(0o444)
    file.parent.chmod(0o555)
    (token_map,) = (entry for entry in used if entry.endswith("-token-map"))
    record = state / "store" / f"{token_map}.json"
    record.unlink()
    record.write_bytes(b"")
    assert doit("verify", state=state).returncode == 6
    mended = doit("repair", state=state)  # the record's entry is what this checkout would make
    assert (mended.returncode, "2 mended" in mended.stdout) == (0, True), mended.stdout + mended.stderr
    assert whole(state, used)
    assert answers(gang)
    kill(gang.pids()[1])
    gang.wait_ready(2)
    assert answers(gang)
