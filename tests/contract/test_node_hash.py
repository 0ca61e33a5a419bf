"""`twinfold-node hash` and `drop` on real files, held against hashlib and the kernel's own counts."""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import stat
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from build.artefacts.toolchain import PROGRAM, TRIPLES, host, installed_root
from tests.testing.node_tool import CACHE, SOURCES, ask, compile_tool, node_tool

CHUNK = 8 << 20
SIZES = [0, 1, 55, 56, 63, 64, 65, 511, 512, 513, 4095, 4096, 4097, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 5 * CHUNK + 4097]
PAGE_CACHE_ALLOWED = 64 << 20


@pytest.fixture(scope="module")
def on_disk() -> Iterator[Path]:
    """A folder on the checkout's file system: pytest's own may lie on tmpfs, which has no O_DIRECT."""
    node_tool()
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def sized(on_disk: Path) -> dict[Path, str]:
    """A file of every size that the reader treats in another way, with its sha256."""
    known = {}
    for size in SIZES:
        path, data = on_disk / f"{size}", os.urandom(size)
        path.write_bytes(data)
        known[path] = hashlib.sha256(data).hexdigest()
    return known


def test_hashes_as_hashlib_does_at_every_size(sized: dict[Path, str]) -> None:
    answer = ask("hash", "--threads", "3", *sized)
    assert answer.status == 0
    assert {Path(line["path"]): line["sha256"] for line in answer.lines} == sized
    assert [line["path"] for line in answer.lines] == [str(path) for path in sized]


def test_a_file_that_grows_or_is_cut_while_it_is_read_is_said_to_have_changed_and_nothing_waits_for_ever(on_disk: Path) -> None:
    path, over = on_disk / "growing", threading.Event()
    with path.open("wb") as file:
        file.truncate(64 * CHUNK)

    def change() -> None:
        with path.open("r+b") as file:
            for turn in itertools.count(1):
                if over.is_set():
                    return
                file.truncate((64 + turn % 16) * CHUNK + turn)

    changing = threading.Thread(target=change)
    changing.start()
    try:
        answer = ask("hash", "--threads", "1", *[path] * 4)
    finally:
        over.set()
        changing.join()
    assert {line.get("error", "") for line in answer.lines} == {"changed while it was read"}
    path.unlink()


@pytest.mark.parametrize("threads", ["1", "2", "64"])
def test_any_number_of_threads_gives_the_same(sized: dict[Path, str], threads: str) -> None:
    names = b"\0".join(os.fsencode(path) for path in sized)
    answer = ask("hash", "--threads", threads, "--stdin0", stdin=names)
    assert [line["sha256"] for line in answer.lines] == list(sized.values())


def test_hashes_where_o_direct_is_refused(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        path = Path(memory) / "file"
        data = os.urandom(5 * CHUNK + 3)
        path.write_bytes(data)
        [line] = ask("hash", path).lines
    assert line["sha256"] == hashlib.sha256(data).hexdigest()


def test_says_what_stat_says(on_disk: Path) -> None:
    path = on_disk / "facts"
    path.write_bytes(b"x" * 10)
    path.chmod(0o4750)
    [line] = ask("hash", path).lines
    found = path.stat()
    assert (line["size"], line["mode"], line["ino"]) == (10, stat.S_IMODE(found.st_mode), found.st_ino)
    assert (line["mtime_ns"], line["ctime_ns"]) == (found.st_mtime_ns, found.st_ctime_ns)


def test_a_tree_is_sorted_by_bytes_and_tells_links_and_odd_names_apart(tmp_path: Path) -> None:
    names = [b"a/b", b"a-b", b"ab", b"a/\xff\xe2\x82", b'quo"te\\', b"line\nend", "übung".encode(), b"a/deep/er/file"]
    for name in names:
        path = tmp_path / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name)
    (tmp_path / "link").symlink_to("a/nowhere")
    (tmp_path / "loop").symlink_to(".")
    os.mkfifo(tmp_path / "pipe")
    answer = ask("hash", "--tree", tmp_path)
    paths = [os.fsencode(line["path"]) for line in answer.lines]
    assert answer.status == 0
    assert paths == sorted(paths)
    assert {os.fsencode(line["path"]): line["sha256"] for line in answer.lines if line["type"] == "file"} == {
        name: hashlib.sha256(name).hexdigest() for name in names
    }
    others = {line["path"]: (line["type"], line.get("target")) for line in answer.lines if line["type"] not in {"file", "folder"}}
    assert others == {"link": ("link", "a/nowhere"), "loop": ("link", "."), "pipe": ("other", None)}


def test_a_tree_without_content_gives_the_same_facts_and_reads_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file").write_bytes(b"bytes")
    whole = ask("hash", "--tree", tmp_path).lines
    facts = ask("hash", "--no-content", "--tree", tmp_path).lines
    assert facts == [{key: value for key, value in line.items() if key not in {"sha256", "direct"}} for line in whole]


def test_what_cannot_be_read_is_named_and_the_rest_is_hashed(tmp_path: Path) -> None:
    (tmp_path / "here").write_bytes(b"")
    answer = ask("hash", tmp_path / "gone", tmp_path / "here", tmp_path)
    assert answer.status == 1
    assert [line.get("error") for line in answer.lines] == ["no such file or folder", None, "is a folder: use --tree"]
    assert answer.errors == f"error: 2 of 3 files not hashed; {tmp_path}/gone: no such file or folder\n"


@pytest.mark.parametrize(
    ("argv", "status", "said"),
    [
        (["hash"], 2, "give files"),
        (["hash", "--threads", "0", "x"], 2, "--threads 0"),
        (["hash", "--threads"], 2, "--threads needs a value"),
        (["hash", "--no-content", "x"], 2, "--no-content goes with --tree"),
        (["hash", "--quick", "x"], 2, "unknown option --quick"),
        (["hash", "--tree", "/nonexistent"], 1, "/nonexistent: no such file"),
        (["drop"], 2, "give at least one path"),
        (["drop", "/nonexistent"], 1, "/nonexistent: no such file"),
        (["frobnicate"], 2, "unknown command frobnicate"),
        ([], 2, "a command is needed"),
    ],
)
def test_wrong_use_is_one_line_and_an_exit_status(argv: list[str], status: int, said: str) -> None:
    answer = ask(*argv)
    assert answer.status == status
    assert answer.errors.startswith("error: ")
    assert said in answer.errors
    assert answer.errors.count("\n") == 1


def test_hashing_leaves_the_page_cache_as_it_was(on_disk: Path) -> None:
    path = on_disk / "large"
    with path.open("wb") as file:
        for _ in range(256):
            file.write(os.urandom(1 << 20))
    [dropped] = ask("drop", path).lines
    [line] = ask("hash", path).lines
    assert line["direct"] is True
    [after] = ask("drop", path).lines
    assert dropped["pages_after"] * dropped["page_bytes"] == 0
    assert after["pages_before"] * after["page_bytes"] < PAGE_CACHE_ALLOWED


def test_drop_counts_and_gives_back_the_pages_of_a_tree(on_disk: Path) -> None:
    tree = on_disk / "tree"
    (tree / "below").mkdir(parents=True)
    (tree / "one").write_bytes(b"1" * (1 << 20))
    (tree / "below/two").write_bytes(b"2" * 5)
    [line] = ask("drop", tree).lines
    page = os.sysconf("SC_PAGE_SIZE")
    assert (line["files"], line["bytes"], line["page_bytes"]) == (2, (1 << 20) + 5, page)
    assert (line["pages_before"], line["pages_after"]) == ((1 << 20) // page + 1, 0)


def test_help_and_version_speak_for_every_command() -> None:
    binary = node_tool()
    top = subprocess.run([binary, "--help"], capture_output=True, text=True, check=True, timeout=30).stdout
    commands = [line.split()[0] for line in top.splitlines() if line.startswith("  ")]
    assert {"hash", "drop", "version"} <= set(commands)
    for command in commands:
        text = subprocess.run([binary, command, "--help"], capture_output=True, text=True, check=True, timeout=30).stdout
        assert text.startswith(f"usage: twinfold-node {command}")
    [line] = ask("version").lines
    assert set(line) == {"version", "protocol"}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("triple", sorted(TRIPLES.values()))
def test_the_binary_is_static_and_the_same_from_any_folder_and_cache(tmp_path: Path, triple: str) -> None:
    here, there = tmp_path / "here", tmp_path / "elsewhere/twinfold-node"
    compile_tool(SOURCES, triple, here, CACHE)
    shutil.copytree(SOURCES, tmp_path / "copy/of/node")
    compile_tool(tmp_path / "copy/of/node", triple, there, tmp_path / "cold")
    assert here.read_bytes() == there.read_bytes()
    assert len(here.read_bytes()) < 1 << 20
    assert b"ld-musl" not in here.read_bytes()


@pytest.mark.timeout(600)
def test_the_pure_parts_pass_their_own_tests() -> None:
    argv = [str(installed_root() / PROGRAM), "test", "tests.zig", "-O", "ReleaseSafe", "-target", TRIPLES[host()]]
    caches = ["--cache-dir", str(CACHE / "local"), "--global-cache-dir", str(CACHE / "global")]
    done = subprocess.run([*argv, *caches], cwd=SOURCES / "src", capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stderr
    assert " tests passed" in done.stderr
