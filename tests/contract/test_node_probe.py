"""Full-size probes between two sockets of one machine, and over a link that is too small in a network namespace of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.testing.node_tool import ask, node_tool

JUMBO = "8972"


@pytest.fixture
def port() -> Iterator[int]:
    """A listener of the tool's own; it ends by itself."""
    argv = [str(node_tool()), "probe", "listen", "127.0.0.1", "0", "--idle-ms", "1500"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout
        yield int(listener.stdout.readline().rstrip('"}\n').rsplit(":", 1)[1])
        assert listener.wait(30) == 0
        assert '"echoed"' in listener.stdout.read()


def outcome(line: dict[str, Any]) -> dict[str, int]:
    return {key: line[key] for key in ("received", "lost", "too_big", "refused", "unreachable") if line[key]}


def test_full_size_packets_come_back_from_a_given_source(port: int) -> None:
    argv = ["probe", "send", "127.0.0.1", str(port), "--size", JUMBO, "--count", "7", "--from", "127.0.0.2", "--device", "lo"]
    answer = ask(*argv)
    assert answer.status == 0
    [line] = answer.lines
    assert outcome(line) == {"received": 7}
    assert 0 < line["rtt_min_us"] <= line["rtt_median_us"]


def test_nobody_there_is_refused_and_silence_is_lost() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        port = str(silent.getsockname()[1])
        argv = ["probe", "send", "127.0.0.1", port, "--size", "100", "--count", "2", "--timeout-ms", "50"]
        lost = ask(*argv)
    refused = ask(*argv)
    assert (lost.status, refused.status) == (1, 1)
    assert outcome(lost.lines[0]) == {"lost": 2}
    assert outcome(refused.lines[0]) == {"refused": 2}
    assert lost.lines[0]["rtt_min_us"] is None


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root and unshare for a namespace of its own")
def test_a_packet_larger_than_the_link_is_its_own_class() -> None:
    script = (
        'ip link set lo up mtu 1500; "$0" probe listen 127.0.0.1 7000 --idle-ms 3000 >/dev/null & '
        'until "$0" probe send 127.0.0.1 7000 --size 1472 --count 1 >/dev/null; do :; done; '
        '"$0" probe send 127.0.0.1 7000 --size 1472; "$0" probe send 127.0.0.1 7000 --size 1473; wait'
    )
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", script, node_tool()], capture_output=True, text=True, timeout=60, check=False
    )
    fits, larger = done.stdout.splitlines()
    assert '"received":5' in fits
    assert '"too_big":5' in larger


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["probe"], "listen or send"),
        (["probe", "send", "spark-b", "1", "--size", "100"], "spark-b is no IPv4 or IPv6 address"),
        (["probe", "send", "127.0.0.1", "1"], "--size is needed"),
        (["probe", "send", "127.0.0.1", "1", "--size", "15"], "from 16 to 65507"),
        (["probe", "send", "127.0.0.1", "1", "--size", "16", "--from", "::1"], "other address family"),
        (["probe", "listen", "127.0.0.1", "0", "--count", "1"], "unknown option --count"),
    ],
)
def test_wrong_arguments_exit_2(argv: list[str], said: str) -> None:
    answer = ask(*argv)
    assert answer.status == 2
    assert said in answer.errors
