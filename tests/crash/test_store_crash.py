"""SIGKILL before every system call that changes a file, for each verb; then: every path is absent or wholly valid.

strace kills the traced process when it enters the N-th call of a kind, before the kernel carries it out.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from build.store import generations, hashing, record, scratch, verify
from build.store.store import Store
from tests.testing import toy
from tests.testing.checkout import CHECKOUT

# Every call of Linux that changes files, names or their attributes, and flock; whichever of them a run makes are cut at. A kill
# before any other call leaves the same disk as one before the next of these. "?" is for what an older strace does not know.
CHANGES = (
    *("creat", "mkdir", "mkdirat", "mknod", "mknodat", "symlink", "symlinkat", "link", "linkat"),
    *("rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir"),
    *("write", "writev", "pwrite64", "pwritev", "pwritev2", "sendfile", "splice", "copy_file_range"),
    *("truncate", "ftruncate", "fallocate", "fsync", "fdatasync", "sync", "syncfs", "sync_file_range", "flock"),
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
    *("utime", "utimes", "futimesat", "utimensat", "setxattr", "lsetxattr", "fsetxattr", "removexattr"),
)
OPENS = ("open", "openat", "openat2")  # of these, only such as make a file or empty one
MAKES = ("O_CREAT", "O_TRUNC")
Point = tuple[str, int]
"""A system call, and which of its calls: the first is 1."""

RUN_LIMIT_S = 120
BUILD_STEP = 6  # a whole build is cut at every sixth call of a kind: the kinds interleave, so every stretch of work is cut
WORKERS = 4
ENVIRONMENT = {"PYTHONPATH": str(CHECKOUT), "PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONHASHSEED": "0"}

pytestmark = [
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed"),
    pytest.mark.timeout(1800),
]


def run(src: Path, state: Path, verb: str, kill: tuple[str, int] | None = None) -> bool:
    """Run one verb; False where it was killed."""
    program = [sys.executable, "-B", str(CHECKOUT / "tests" / "testing" / "toy.py"), str(src), str(state), verb]
    trace = []
    if kill is not None:
        call, number = kill
        trace = ["strace", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={number}"]
    done = subprocess.run(
        [*trace, *program],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=RUN_LIMIT_S,
        check=False,
    )
    killed = done.returncode in {-9, 137}
    assert killed or done.returncode == 0, done.stderr
    return not killed


def calls(src: Path, state: Path, verb: str, tmp: Path) -> dict[str, list[int]]:
    """Which of an undisturbed run's calls change something: call -> numbers."""
    log = tmp / "calls"
    program = [sys.executable, "-B", str(CHECKOUT / "tests" / "testing" / "toy.py"), str(src), str(state), verb]
    traced = ",".join(f"?{call}" for call in (*CHANGES, *OPENS))
    subprocess.run(
        ["strace", "-qq", "-o", str(log), "-e", f"trace={traced}", *program],
        env=ENVIRONMENT, check=True, capture_output=True, timeout=RUN_LIMIT_S,
    )  # fmt: skip
    seen: dict[str, int] = {}
    found: dict[str, list[int]] = {}
    for line in log.read_text(errors="replace").splitlines():
        call = line.partition("(")[0]
        seen[call] = seen.get(call, 0) + 1
        if call in CHANGES or (call in OPENS and any(flag in line for flag in MAKES)):
            found.setdefault(call, []).append(seen[call])
    return found


def points(found: dict[str, list[int]], step: int = 1) -> Iterator[Point]:
    """Where to kill: each call, or every ``step``-th of a kind and the last."""
    for call, numbers in found.items():
        yield from ((call, n) for n in sorted({*numbers[::step], numbers[-1]}))


def each(found: Iterator[Point], cut: Callable[[Path, Point], None], tmp: Path) -> None:
    """Try every point, each in a folder of its own, a few at once."""

    def one(point: Point) -> None:
        folder = tmp / f"{point[0]}-{point[1]}"
        folder.mkdir(parents=True)
        cut(folder / "state", point)
        shutil.rmtree(folder)

    with ThreadPoolExecutor(WORKERS) as pool:
        assert sum(1 for _ in pool.map(one, found)) > 0


def absent_or_valid(state: Path, *, damaged: frozenset[str] = frozenset()) -> None:
    """Every record that can be found speaks the truth, and ``current`` is readable."""
    store = Store(state / "store")
    for entry in store.entries():
        try:
            there = store.find(entry)
        except Exception as error:
            pytest.fail(f"{entry}: {error}")
        if there is not None and entry not in damaged:
            assert verify.compare(store.path(entry), there) is None, entry
            assert hashing.tree_hash(there.files) == there.output
            assert record.key_of(there) == there.key
    for generation in generations.every(state, "toy"):
        assert generation.number >= 1
    if (state / "generations" / "toy" / "current").is_symlink():
        assert generations.current(state, "toy").number >= 1


def contents(state: Path) -> dict[str, str]:
    """Entry -> the tree hash of what is really there."""
    store = Store(state / "store")
    return {e: hashing.tree_hash(hashing.tree(store.path(e))) for e in store.entries() if store.path(e).exists()}


def no_scratch(state: Path) -> None:
    tmp = state / "store" / "tmp"
    scratch.clean(tmp)
    assert not tmp.exists() or list(tmp.iterdir()) == []


@pytest.mark.parametrize(("verb", "step"), [("register", 1), ("make", BUILD_STEP)])
def test_making_killed_anywhere_is_completed_by_the_next(tmp_path: Path, verb: str, step: int) -> None:
    src = toy.checkout(tmp_path / "src")
    found = calls(src, tmp_path / "counted", verb, tmp_path)
    whole = contents(tmp_path / "counted")
    assert len(found["rename"]) >= 2 * len(whole) > 0
    assert found["openat"]

    def cut(state: Path, point: Point) -> None:
        run(src, state, verb, point)
        absent_or_valid(state)
        assert run(src, state, verb)
        absent_or_valid(state)
        assert contents(state) == whole, point
        no_scratch(state)

    each(points(found, step), cut, tmp_path / "cuts")


@pytest.mark.parametrize("verb", ["gc", "rollback"])
def test_a_verb_killed_anywhere_leaves_what_is_kept_whole(tmp_path: Path, verb: str) -> None:
    project = toy.built(tmp_path, "alpha", "beta")
    found = calls(tmp_path / "src", copy(project.state, tmp_path / "counted"), verb, tmp_path)

    def cut(state: Path, point: Point) -> None:
        run(tmp_path / "src", copy(project.state, state), verb, point)
        absent_or_valid(state)
        assert toy.problems_of(state, generations.current(state, "toy").bundle_entry) == ()
        assert run(tmp_path / "src", state, verb)
        absent_or_valid(state)
        no_scratch(state)
        assert contents(state) == contents(tmp_path / "counted"), point

    each(points(found), cut, tmp_path / "cuts")


def test_a_repair_killed_anywhere_is_completed_by_the_next(tmp_path: Path) -> None:
    """Of one path with other bytes, one with a torn record, and garbage with an unreadable one."""
    project = toy.built(tmp_path, "abc")
    whole = contents(project.state)
    broken = str(project.resolve("part").entry)
    damage(project.state / "store" / broken)
    torn = project.store.record_path(str(project.resolve("initial").entry))
    torn.unlink()
    torn.write_bytes(b"{")
    garbage = project.store.path(f"{'0' * 32}-garbage")
    garbage.mkdir()
    garbage.with_name(f"{garbage.name}.json").write_bytes(b"{}")
    found = calls(tmp_path / "src", copy(project.state, tmp_path / "counted"), "repair", tmp_path)

    def cut(state: Path, point: Point) -> None:
        run(tmp_path / "src", copy(project.state, state), "repair", point)
        still = frozenset({broken}) if contents(state).get(broken) != whole[broken] else frozenset()
        absent_or_valid(state, damaged=still)
        assert run(tmp_path / "src", state, "repair")
        absent_or_valid(state)
        left = contents(state)
        left.pop(garbage.name, None)  # without its record it is for gc
        assert left == whole, point
        assert not Store(state / "store").record_path(garbage.name).exists()
        no_scratch(state)

    each(points(found), cut, tmp_path / "cuts")


def damage(path: Path) -> None:
    file = path / "words.txt"
    file.chmod(0o644)
    file.write_text("XXX")
    file.chmod(0o444)


def copy(state: Path, to: Path) -> Path:
    shutil.copytree(state, to, symlinks=True)
    return to
