"""The testbed itself: real hosts, faults that bite and heal, and an end that leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.runners import procid
from tests.testbed import bed, network, processes, state
from tests.testbed.bed import Busy, Testbed
from tests.testbed.layout import LAN, NETWORKS, RAIL0, RAIL1, Layout, Network

PYTHON = str(Path(sys.executable).resolve())  # a worker sees no environment of the checkout

pytestmark = pytest.mark.testbed

# Sends one datagram that must not be fragmented, and prints what came back.
ECHO = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 0))
print(s.getsockname()[1], flush=True)
data, peer = s.recvfrom(65536)
s.sendto(data, peer)
"""
SEND = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, 10, 3)  # IP_MTU_DISCOVER = IP_PMTUDISC_PROBE: the local MTU binds, no fragments
s.settimeout(float(sys.argv[4]))
s.connect((sys.argv[1], int(sys.argv[2])))
try:
    s.send(b"x" * int(sys.argv[3]))
    print(len(s.recv(65536)))
except OSError as error:
    print(type(error).__name__, error.errno)
"""


def echo(testbed: Testbed, rail: Network, size: int, timeout_s: float = 5.0) -> str:
    """What a datagram of ``size`` bytes from the head to the first worker and back came to."""
    worker = testbed.worker
    with worker.popen([PYTHON, "-c", ECHO, worker.plan.address(rail)], stdout=subprocess.PIPE) as listener:
        assert listener.stdout is not None
        port = listener.stdout.readline().decode().strip()
        said = testbed.head.run([PYTHON, "-c", SEND, worker.plan.address(rail), port, str(size), str(timeout_s)])
        listener.kill()
    return said.stdout.strip()


@pytest.mark.parametrize("rail", [RAIL0, RAIL1], ids=lambda r: r.name)
def test_a_rail_carries_full_size_packets(testbed: Testbed, rail: Network) -> None:
    assert echo(testbed, rail, rail.mtu - 28) == str(rail.mtu - 28)


def test_a_worker_answers_to_ssh_by_its_name_and_over_every_network(testbed: Testbed) -> None:
    name = testbed.worker.name
    for alias in (name, f"{name}-lan", f"{name}-v6"):
        assert testbed.head.run(["ssh", alias, "hostname"]).stdout == f"{name}\n"


def test_a_worker_sees_neither_the_checkout_nor_the_heads_folder(testbed: Testbed) -> None:
    worker = testbed.worker
    for folder in (Path(__file__).resolve().parents[2], testbed.head.plan.folder):
        assert worker.run(["ls", "-A", str(folder)]).stdout == ""


def test_each_host_has_a_dockerd_of_its_own(testbed: Testbed) -> None:
    for host in testbed.hosts:
        argv = ["docker", "--host", f"unix://{host.plan.docker_socket}", "info", "--format", "{{.Name}}"]
        assert host.run(argv).stdout == host.name + "\n"


def test_a_pulled_cable_cuts_that_rail_and_comes_back(testbed: Testbed) -> None:
    testbed.worker.link(RAIL0, up=False)
    assert echo(testbed, RAIL0, 100, 0.3).startswith("TimeoutError")
    assert echo(testbed, LAN, 100) == "100"
    testbed.heal()
    assert echo(testbed, RAIL0, 100) == "100"


def test_total_loss_is_silence_with_the_link_up(testbed: Testbed) -> None:
    testbed.worker.lose(RAIL0, 1.0)
    assert testbed.worker.carries(RAIL0)
    assert echo(testbed, RAIL0, 100, 0.3).startswith("TimeoutError")


def test_a_lower_mtu_at_the_far_end_swallows_full_packets_only(testbed: Testbed) -> None:
    testbed.worker.set_mtu(RAIL1, 1500)
    assert echo(testbed, RAIL1, 1000) == "1000"
    assert echo(testbed, RAIL1, RAIL1.mtu - 28, 0.3).startswith("TimeoutError")
    assert testbed.worker.mtu(RAIL1) == 1500


def test_a_slow_link_holds_its_rate(testbed: Testbed) -> None:
    testbed.head.slow(RAIL0, 1_000_000)
    send = f"head -c 3000000 /dev/zero | ssh {testbed.worker.name} cat >/dev/null"
    said = testbed.head.run(["sh", "-c", f"time -p sh -c '{send}'"]).stderr
    elapsed_s = float(said.split("real")[1].split()[0])
    assert elapsed_s > 1.5


def test_a_stopped_dockerd_takes_connections_and_answers_none(testbed: Testbed) -> None:
    worker = testbed.worker
    argv = ["timeout", "1", "docker", "--host", f"unix://{worker.plan.docker_socket}", "version"]
    worker.freeze_dockerd()
    try:
        assert worker.run(argv, check=False).returncode == 124
    finally:
        worker.thaw_dockerd()
    assert worker.run(argv, check=False, timeout_s=30).returncode == 0


def test_readings_belong_to_one_host(testbed: Testbed) -> None:
    testbed.worker.set_meminfo(MemAvailable=1024)
    assert "MemAvailable:       1024 kB" in (testbed.worker.plan.proc / "meminfo").read_text()
    assert "MemAvailable:       1024 kB" not in (testbed.head.plan.proc / "meminfo").read_text()
    assert "GB10" in testbed.worker.run(["nvidia-smi", "--query-gpu=name", "--format=csv"]).stdout
    gid = testbed.worker.plan.sys / "class/infiniband/rocep1s0f1/ports/1/gids/3"
    assert gid.read_text() == "0000:0000:0000:0000:0000:ffff:c000:0202\n"


def test_a_second_user_is_told_who_has_it(testbed: Testbed) -> None:
    with pytest.raises(Busy, match=str(os.getpid())), bed.locked(testbed.layout):
        pass


@pytest.fixture
def own_layout() -> Iterator[Layout]:
    """A testbed beside the session's, under other names."""
    if reason := bed.why_not():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="bed") as folder:  # short: a socket's path has 107 bytes
        layout = Layout(Path(folder), 4, "crash")
        yield layout
        bed.down(layout)


def test_four_hosts_reach_each_other_on_every_network(own_layout: Layout) -> None:
    made = bed.up(own_layout, keep=False)
    for host in made.hosts[1:]:
        for each in NETWORKS:
            assert made.hosts[-1].run(["busybox", "ping", "-c", "1", "-W", "5", host.plan.address(each)]).returncode == 0
        assert made.head.run(["ssh", host.name, "hostname"]).stdout == host.name + "\n"


def test_down_after_a_crash_ends_all_and_removes_all(own_layout: Layout) -> None:
    made = bed.up(own_layout, keep=False)
    stray = made.worker.popen(["sleep", "600"])
    (own_layout.folder / "state.json").unlink()
    processes.end(made.head.running.holder, signal.SIGKILL)
    bed.down(own_layout)
    assert stray.wait(10) == -signal.SIGKILL
    assert not any((network.NETNS / name).exists() for name in own_layout.namespaces)
    assert not any(procid.runs(who) for host in made.hosts for who in host.running.all())
    assert list(own_layout.folder.iterdir()) == []


def test_up_cleans_what_a_crashed_run_left(own_layout: Layout) -> None:
    first = bed.up(own_layout, keep=False)
    second = bed.up(own_layout, keep=False)
    assert not procid.runs(first.head.running.sshd)
    assert state.read(own_layout.folder).hosts == {host.name: host.running for host in second.hosts}


def test_a_testbed_that_a_person_left_up_is_not_taken_down_by_another_up(own_layout: Layout) -> None:
    made = bed.up(own_layout, keep=True)
    with pytest.raises(Busy, match="is up"):
        bed.up(own_layout, keep=False)
    assert procid.runs(made.head.running.sshd)
