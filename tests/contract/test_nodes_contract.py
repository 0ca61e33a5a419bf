"""One suite for every kind of node: this host, and a real sshd behind a real network with each login shell."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from build.nodes.node import Node, put
from build.nodes.ssh_errors import CommandFailed, DeadlinePassed
from tests.testbed.processes import gone, wait_until
from tests.testing.folders import let_others_in
from tests.testing.nodes import kinds, node_of


@pytest.fixture(params=kinds("root", "dashy", "fishy", "ops"), scope="module")
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with node_of(request, tmp_path_factory.mktemp("store")) as found:
        yield found


def test_words_and_output_are_exact(node: Node) -> None:
    words = ["two words", "it's", '"', "$HOME", "`id`", "\\n", "*", "", "-n", "ünï", "line\nbreak"]
    done = node.run(["printf", "%s\\0", *words], 20)
    assert done.text.split("\0")[:-1] == words
    assert done.stderr == b""


def test_input_output_and_errors_are_bytes_of_their_own(node: Node) -> None:
    data = bytes(range(256)) * 4096
    done = node.run(["sh", "-c", "cat; printf '\\377err' >&2"], 30, stdin=data)
    assert done.stdout == data
    assert done.stderr == b"\xfferr"


def test_no_input_is_an_empty_one(node: Node) -> None:
    assert node.run(["cat"], 10).stdout == b""


@pytest.mark.parametrize("status", [1, 124, 255])
def test_a_status_is_exact_and_an_error_where_it_is_checked(node: Node, status: int) -> None:
    argv = ["sh", "-c", f"echo why >&2; exit {status}"]
    assert node.run(argv, 10, check=False).status == status
    with pytest.raises(CommandFailed, match=f"ended with {status}: why"):
        node.run(argv, 10)


def test_a_killed_command_has_the_status_of_its_signal(node: Node) -> None:
    assert node.run(["sh", "-c", "kill -9 $$"], 10, check=False).status == 128 + signal.SIGKILL


def test_a_missing_program_is_127(node: Node) -> None:
    assert node.run(["ibdev2netdev-not-here"], 10, check=False).status == 127


def test_the_language_is_neutral(node: Node) -> None:
    assert node.run(["sh", "-c", "echo $LC_ALL.$LANGUAGE; awk 'BEGIN { print 121690 / 1000 }'"], 10).text == "C.\n121.69\n"


def test_the_deadline_ends_the_command_with_all_of_its_group(node: Node, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    let_others_in(tmp_path)
    began = time.monotonic()
    pids = tmp_path / "pids"
    with pytest.raises(DeadlinePassed, match="did not end within 1 s"):
        node.run(["sh", "-c", f"(trap '' TERM; exec sleep 300) & echo $! $$ > {pids}; exec sleep 300"], 1)
    assert time.monotonic() - began < 10
    for pid in pids.read_text().split():
        wait_until(lambda pid=pid: gone(int(pid)), 10, f"process {pid} of the command still runs")


def test_a_small_file_is_put_whole_and_with_its_mode(node: Node) -> None:
    where = PurePosixPath(f"put-test-{os.getpid()}/x/file")
    try:
        put(node, b"secret\n", where, mode=0o600)
        done = node.run(["sh", "-c", f"stat -c %a {where}; cat {where}; ls -A {where.parent}"], 10)
        assert done.text == "600\nsecret\nfile\n"
    finally:
        node.run(["rm", "-rf", f"put-test-{os.getpid()}"], 10)


def test_many_threads_share_a_node(node: Node) -> None:
    found: list[str] = []
    threads = [threading.Thread(target=lambda n=n: found.append(node.run(["echo", str(n)], 60).text.strip())) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found, key=int) == [str(n) for n in range(16)]
