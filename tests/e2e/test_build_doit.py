"""``doit`` as a user runs it, over a target that takes moments to make."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from build.store import generations, hashing, scratch
from build.store.hashing import Entry
from build.store.record import Made, record_of, to_json
from build.store.store import Store
from tests.testbed.processes import gone
from tests.testing import toy
from tests.testing.checkout import CHECKOUT
from tests.testing.demo import environment
from tests.testing.waiting import until

NAMES = {"code", "words", "shouted", "part", "initial", "bundle"}
LIMIT_S = 120
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


class Site:
    """A toy's sources, state and dodo file."""

    def __init__(self, folder: Path, state: Path | None = None, **more: object) -> None:
        folder.mkdir(exist_ok=True)
        self.src = toy.checkout(folder / "src")
        self.state = state or folder / "state"
        self.dodo = toy.dodo(folder, self.src, self.state, **more)

    def start(self, *args: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "doit", "-f", str(self.dodo), *args],
            cwd=CHECKOUT, env=environment(self.state), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def doit(self, *args: str, code: int = 0) -> str:
        child = self.start(*args)
        out, err = child.communicate(timeout=LIMIT_S)
        assert child.returncode == code, out + err
        assert "Traceback" not in out + err
        if code:
            assert len(err.strip().splitlines()) == 1, err
            assert err.startswith(("error: ", "interrupted"))
        return out + err

    def scratch(self) -> list[str]:
        scratch.clean(self.state / "store" / "tmp")
        return sorted(p.name for p in (self.state / "store" / "tmp").iterdir())


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def made(out: str) -> list[str]:
    return re.findall(r"^built   (\S+)", out, re.MULTILINE)


def contents(state: Path) -> dict[str, str]:
    store = Store(state / "store")
    return {e: hashing.tree_hash(hashing.tree(store.path(e))) for e in store.entries()}


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + LIMIT_S
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return path.read_text()


def test_each_artefact_is_made_once_with_one_line_and_the_next_run_says_one_line(site: Site) -> None:
    first = site.doit()
    assert set(made(first)) == NAMES
    assert first.strip().splitlines()[-1].startswith("toy is up to date: 6 built, generation 1, bundle ")
    again = site.doit()
    assert len(again.strip().splitlines()) == 1
    assert "nothing to do" in again


@pytest.mark.parametrize("loss", ["deleted", "torn"])
def test_a_lost_database_of_doit_rebuilds_nothing(site: Site, loss: str) -> None:
    site.doit()
    database = site.state / "doit.json"
    assert json.loads(database.read_text())
    database.unlink() if loss == "deleted" else database.write_text('{"wor')
    assert made(site.doit()) == []


def test_an_edited_byte_with_its_old_time_put_back_rebuilds_what_hangs_on_it(site: Site) -> None:
    site.doit()
    words = site.src / "words" / "words.txt"
    before = words.stat()
    words.write_text("abd")
    os.utime(words, ns=(before.st_atime_ns, before.st_mtime_ns))
    # the first letter stays: what is made from it alone does not run again
    assert set(made(site.doit())) == {"words", "shouted", "part", "initial"}


def test_only_what_was_asked_for_is_made(site: Site) -> None:
    assert set(made(site.doit("part"))) == {"code", "words", "shouted", "part"}


def test_two_at_once_make_everything_once(site: Site) -> None:
    children = [site.start() for _ in range(2)]
    outs = [c.communicate(timeout=LIMIT_S)[0] for c in children]
    assert [c.returncode for c in children] == [0, 0]
    assert sorted(made("\n".join(outs))) == sorted(NAMES)
    assert [g.number for g in generations.every(site.state, "toy")] == [1]


def test_threads_beside_a_plain_run_come_to_the_same_store(tmp_path: Path) -> None:
    plain, threads = (Site(tmp_path / name, extra=20) for name in ("plain", "threads"))
    plain.doit("*")
    both = [threads.start("-n", "4", "-P", "thread", "*"), threads.start("*")]
    for child in both:
        child.communicate(timeout=LIMIT_S)
        assert child.returncode == 0
    assert contents(threads.state) == contents(plain.state)
    assert threads.scratch() == []


def test_the_second_says_for_whom_it_waits_or_refuses(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    slow = Site(tmp_path / "slow", marker=str(marker))
    first = slow.start("slow")
    wait_for(marker)
    assert f"another doit (pid {first.pid}) works in" in slow.doit("--no-wait", code=3)
    second = slow.start("words")
    assert second.stdout is not None
    assert second.stdout.readline().startswith(f"waiting: another doit (pid {first.pid})")
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=LIMIT_S)
    assert "built   words" in second.communicate(timeout=LIMIT_S)[0]
    assert second.returncode == 0


@pytest.mark.parametrize("threads", [[], ["-n", "2"]])
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_build_cleanly(tmp_path: Path, sent: signal.Signals, threads: list[str]) -> None:
    marker = tmp_path / "marker"
    slow = Site(tmp_path / "slow", marker=str(marker))
    child = slow.start(*threads, "slow")
    worker = int(wait_for(marker))
    child.send_signal(sent)
    _, err = child.communicate(timeout=LIMIT_S)
    assert child.returncode == 130
    assert err == "interrupted: what was finished is kept, nothing half-made is\n"
    until("the worker's end", lambda: gone(worker))
    assert list((slow.state / "store" / "tmp").iterdir()) == []
    assert "nothing to do" in slow.doit("code")


def test_a_killed_build_takes_its_programs_along_and_the_next_run_cleans_up(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    slow = Site(tmp_path / "slow", marker=str(marker))
    child = slow.start("slow")
    worker = int(wait_for(marker))
    child.kill()
    child.communicate(timeout=LIMIT_S)
    until("the worker's end", lambda: gone(worker))
    assert list((slow.state / "store" / "tmp").iterdir()) != []
    slow.doit()
    assert list((slow.state / "store" / "tmp").iterdir()) == []


def test_a_builder_that_fails_is_one_line_with_its_reason_and_its_log(tmp_path: Path) -> None:
    broken = Site(tmp_path / "b", fails=True)
    said = broken.doit("broken", code=8)
    assert "broken: " in said
    assert "error: the toy is broken" in said
    log = re.search(r"\(log: (\S+)\)", said)
    assert log is not None
    assert "the toy is broken" in Path(log[1]).read_text()
    assert broken.scratch() == []
    assert set(made(broken.doit())) == NAMES - {"code"}


@pytest.mark.parametrize("args", [["nosuch"], ["--nosuch"], ["run", "-n", "x"]])
def test_wrong_usage_is_one_line_and_exit_2(site: Site, args: list[str]) -> None:
    assert site.doit(*args, code=2)


def test_a_store_mounted_read_only_is_read_and_refused_for_writing(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    site = Site(tmp_path)
    site.doit()
    subprocess.run(["mount", "--bind", site.state, site.state], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", site.state], check=True)
        assert "nothing to do" in site.doit()
        (site.src / "words" / "words.txt").write_text("new")
        said = site.doit(code=8)
        assert "words: read-only file system" in said
        assert "must be writable" in said
    finally:
        subprocess.run(["umount", site.state], check=True)
    assert set(made(site.doit())) == {"words", "shouted", "part", "initial", "bundle"}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("mounting needs root and mkfs.ext4")
    image, at = tmp_path / "disk", tmp_path / "mnt"
    image.write_bytes(b"\0" * (2 << 20))
    at.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", image], check=True)
    mounted = subprocess.run(["mount", "-o", "loop", image, at], check=False, capture_output=True)
    if mounted.returncode:
        pytest.skip("no loop devices here")
    yield at
    subprocess.run(["umount", at], check=True)


def test_a_disk_that_fills_is_one_line_and_leaves_nothing_half_made(tmp_path: Path, small_disk: Path) -> None:
    site = Site(tmp_path / "s", state=small_disk / "state", extra=60)
    assert "the disk is full" in site.doit("*", code=8)
    store = Store(site.state / "store")
    for entry in store.entries():
        there = store.find(entry)
        assert there is None or hashing.tree_hash(hashing.tree(store.path(entry))) == there.output
    assert site.scratch() == []


def seed(site: Site, count: int) -> None:
    """Put every artefact into the store without running builders."""
    project = toy.Toy(site.src, site.state, extra=count)
    project.store.root.mkdir(parents=True)
    for name, artefact in project.graph.items():
        found = project.resolve(name)
        assert found.key is not None
        files = (Entry("f", "file", 1, name),)
        inputs = {role: project.resolve(n) for role, n in artefact.inputs.items()}
        new = record_of(Made(artefact, found.key, 0.0, project.host, ""), inputs, files)
        new = replace(new, output=artefact.known_output or new.output)
        project.store.path(new.entry).mkdir()
        project.store.record_path(new.entry).write_bytes(to_json(new))


@pytest.mark.parametrize(("count", "goal_s"), [(35, 0.3), (9_994, 2.0)])
def test_a_run_with_nothing_to_do_is_quick(tmp_path: Path, count: int, goal_s: float) -> None:
    site = Site(tmp_path, extra=count)
    seed(site, count)
    site.doit("*")  # the generation
    took_s = []
    for _ in range(3):  # the best of three: what else runs on this machine is not this run's
        started_s = time.monotonic()
        assert "nothing to do" in site.doit("*")
        took_s.append(time.monotonic() - started_s)
    assert min(took_s) < 10 * goal_s
