"""The doctor over two real hosts: what is broken for real gives its finding and nothing else, and looking changes nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.testbed import daemons, network, readings
from tests.testbed.bed import Testbed
from tests.testbed.hosts import Host
from tests.testbed.layout import RAIL0, RAIL1
from tests.testing.dockerd import HERE
from tests.testing.node_tool import node_tool
from tests.testing.on_head import doctor, supervisor

pytestmark = [pytest.mark.testbed, pytest.mark.timeout(600)]
SECONDS = 10  # deadlines are ten times the goal: other programs share the machine


@pytest.fixture
def bed(testbed: Testbed) -> Iterator[Testbed]:
    """The testbed with fresh readings, which are put back."""
    yield testbed
    for host in testbed.hosts:
        readings.write(host.plan)
    testbed.heal()


def reasons(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Reason, level and node of each finding, but the note that nothing was built."""
    rows = ((one["reason"], one["level"], one["node"]) for one in found["findings"])
    return [row for row in rows if row[0] != "nothing_built"]


def everything(testbed: Testbed) -> dict[str, Any]:
    """What a host has: files with their times, containers, volumes, images, processes."""
    found: dict[str, Any] = {}
    for host in testbed.hosts:
        docker = ["docker", "--host", f"unix://{host.plan.docker_socket}"]
        kinds = (["ps", "-a"], ["volume", "ls"], ["images", "-a"])
        found[host.name] = {
            "files": sorted(_files(host)),
            "docker": [host.run([*docker, *kind, "--format", "{{json .}}"]).stdout for kind in kinds],
            "processes": sorted(network.members(host.name)),
        }
    return found


def _files(host: Host) -> Iterator[str]:
    """Names, sizes and times below the host's folder; its daemons' own logs and run files move by themselves."""
    own = {host.plan.folder / name for name in ("log", "docker")}
    for path in host.plan.folder.rglob("*"):
        if not own & set(path.parents):
            stat = path.lstat()
            yield f"{path} {stat.st_mode:o} {stat.st_size} {stat.st_mtime_ns}"


def test_a_healthy_pair_takes_about_ten_lines_and_is_fine(bed: Testbed, tmp_path: Path) -> None:
    began = time.monotonic()
    done = supervisor(bed, tmp_path, "doctor")
    assert time.monotonic() - began < 2.0 * SECONDS
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) <= 13
    assert lines[-1].startswith("nothing forbids a launch: 0 errors, 0 warnings")
    for words in (*(host.name for host in bed.hosts), "GB10", "580.173.02", "Docker 20", "rail 0", "rail 1", "gid 3", "MTU 9000"):
        assert words in done.stdout


def test_looking_changes_nothing(bed: Testbed, tmp_path: Path) -> None:
    before = everything(bed)
    for args in (("doctor",), ("doctor", "--json", "--strict")):
        assert supervisor(bed, tmp_path / "state", *args).returncode == 0
    assert not (tmp_path / "state").exists()
    end = time.monotonic() + 10.0  # sshd's own processes for us take a moment to end
    while (after := everything(bed)) != before and time.monotonic() < end:
        time.sleep(0.1)
    assert after == before


def _gids(host: Host, rail: Any, **more: Any) -> None:
    readings.write_roce(host.plan.sys, rail, more.pop("address", host.plan.address(rail)), **more)


def _query(host: Host, old: str, new: str) -> None:
    readings.replace(host.plan.gpu / "query.csv", (host.plan.gpu / "query.csv").read_text().replace(old, new))


SETTINGS: dict[str, dict[str, str]] = {
    "the first cable pulled": {"worker": "{worker}-lan", "fabric_peer": "192.0.2.2"},
    "indexes that the engine cannot take": {"engine_gid": "one"},
    "indexes that differ": {"engine_gid": "each"},
}
BREAK: dict[str, tuple[Callable[[Testbed], object], tuple[str, str, str], str]] = {
    "the first cable pulled": (lambda b: b.worker.link(RAIL0, up=False), ("link_down", "error", "head"), "enp1s0f1np1"),
    "the second cable pulled": (lambda b: b.worker.link(RAIL1, up=False), ("rail_down", "warning", "head"), "enP2p1s0f1np1"),
    "another MTU": (lambda b: b.worker.set_mtu(RAIL1, 1500), ("mtu_differs", "error", "worker"), "enP2p1s0f1np1"),
    "no GID": (
        lambda b: _gids(b.worker, RAIL0, address="192.0.2.99"),
        ("no_v2_gid", "error", "worker"),
        "rocep1s0f1",
    ),
    "indexes that the engine cannot take": (
        lambda b: _gids(b.worker, RAIL1, first_index=4),
        ("gid_index_not_taken", "error", "worker"),
        "index 5 of roceP2p1s0f1",
    ),
    "indexes that differ": (
        lambda b: _gids(b.worker, RAIL1, first_index=4),
        ("gid_index_differs", "note", "worker"),
        "rocep1s0f1 3, roceP2p1s0f1 5",
    ),
    "other drivers": (
        lambda b: _query(b.worker, "580.173.02", "580.95.05"),
        ("drivers_differ", "warning", "head"),
        "580.95.05",
    ),
    "a clock stuck low": (lambda b: _query(b.head, "0 %", "97 %"), ("clock_stuck_low", "warning", "head"), "208 MHz"),
    "a stranger on the GPU": (lambda b: readings.use_gpu(b.worker.plan), ("gpu_in_use", "warning", "worker"), "999999"),
}


@pytest.mark.parametrize("what", BREAK)
def test_what_is_broken_gives_its_finding_and_nothing_else(what: str, bed: Testbed, tmp_path: Path) -> None:
    act, want, words = BREAK[what]
    act(bed)
    given = {key: value.format(worker=bed.worker.name) for key, value in SETTINGS.get(what, {}).items()}
    code, found = doctor(bed, tmp_path, **given)
    assert reasons(found) == [want]
    assert words in found["findings"][0]["found"]
    assert code == (3 if want[1] == "error" else 0)
    assert doctor(bed, tmp_path, "--strict", **given)[0] == {"error": 3, "warning": 1, "note": 0}[want[1]]


def test_a_rail_with_another_mtu_names_both_numbers_and_is_left_out_under_auto(bed: Testbed, tmp_path: Path) -> None:
    bed.worker.set_mtu(RAIL1, 1500)
    _, found = doctor(bed, tmp_path)
    assert all(word in found["findings"][0]["found"] for word in ("enP2p1s0f1np1", "9000", "1500"))
    code, found = doctor(bed, tmp_path, rails="auto")
    assert (code, reasons(found)) == (0, [("mtu_differs", "warning", "worker")])
    assert found["findings"][0]["run"] == "drops the rail and goes on"
    assert [rail["rail"] for rail in found["rails"]] == [0]


@pytest.mark.parametrize("worker", ["{}-lan", "{}-v6", "root@203.0.113.2"])
def test_the_link_is_found_whatever_way_ssh_takes(worker: str, bed: Testbed, tmp_path: Path) -> None:
    code, found = doctor(bed, tmp_path, worker=worker.format(bed.worker.name))
    assert (code, reasons(found)) == (0, [])
    assert [end["address"] for end in found["rails"][0]["ends"]] == ["192.0.2.1", "192.0.2.2"]


def test_a_lan_address_as_fabric_peer_is_refused(bed: Testbed, tmp_path: Path) -> None:
    code, found = doctor(bed, tmp_path, fabric_peer="203.0.113.2")
    assert (code, reasons(found)) == (3, [("not_the_fabric", "error", "head")])
    assert "enP7s7" in found["findings"][0]["found"]


@contextmanager
def frozen(host: Host) -> Iterator[None]:
    host.freeze_dockerd()
    try:
        yield
    finally:
        host.thaw_dockerd()


def test_a_dockerd_that_hangs_is_said_to(bed: Testbed, tmp_path: Path) -> None:
    with frozen(bed.worker):
        code, found = doctor(bed, tmp_path)
    assert (code, reasons(found)) == (3, [("docker_unreachable", "error", "worker")])
    assert "does not answer" in found["findings"][0]["found"]


def test_a_user_outside_dockers_group_is_told_the_command(bed: Testbed, tmp_path: Path) -> None:
    bed.worker.plan.docker_socket.chmod(0o660)
    code, found = doctor(bed, tmp_path, worker=f"ops@{bed.worker.name}")
    assert (code, reasons(found)) == (3, [("docker_unreachable", "error", "worker")])
    assert found["findings"][0]["command"] == "sudo usermod -aG docker ops"


def test_no_docker_at_all(bed: Testbed, tmp_path: Path) -> None:
    code, found = doctor(bed, tmp_path, worker_docker_socket=tmp_path / "none")
    assert (code, reasons(found)) == (3, [("docker_unreachable", "error", "worker")])


def test_a_changed_host_key(bed: Testbed, tmp_path: Path) -> None:
    worker = bed.worker
    daemons.new_host_key(worker.plan)
    worker.restart_sshd()
    try:
        code, found = doctor(bed, tmp_path)
    finally:
        daemons.write_known_hosts(bed.layout)
    assert (code, reasons(found)) == (3, [("host_key_changed", "error", "worker")])
    assert found["findings"][0]["command"] == f"ssh-keygen -R {bed.worker.name}"


def test_a_refused_key(bed: Testbed, tmp_path: Path) -> None:
    config = tmp_path / "config"
    known = bed.head.plan.home / ".ssh/known_hosts"
    config.write_text(
        f"Host {bed.worker.name}\n HostName 192.0.2.2\n User root\n IdentityFile none\n UserKnownHostsFile {known}\n"
    )
    code, found = doctor(bed, tmp_path, ssh_config=config)
    assert (code, reasons(found)) == (3, [("ssh_refused", "error", "worker")])


def test_an_unreachable_worker_is_said_in_time_with_the_heads_own_findings(bed: Testbed, tmp_path: Path) -> None:
    readings.use_gpu(bed.head.plan)
    began = time.monotonic()
    code, found = doctor(bed, tmp_path, worker="192.0.2.77")
    assert time.monotonic() - began < 8.0 * SECONDS
    assert (code, reasons(found)) == (3, [("worker_unreachable", "error", "worker"), ("gpu_in_use", "warning", "head")])


def test_containers_of_ours_and_of_another_gang(bed: Testbed, tmp_path: Path) -> None:
    host = bed.worker
    docker = ["docker", "--host", f"unix://{host.plan.docker_socket}"]
    program = Path("/bin/busybox")
    tar = subprocess.run(["tar", "-cC", "/", "bin/busybox"], capture_output=True, check=True).stdout
    imported = subprocess.run([*docker, "import", "-", "doctor/test"], input=tar, capture_output=True, check=True)
    image = imported.stdout.decode().strip()
    run = [*docker, "run", "-d", "--network", "none"]
    try:
        host.run([*run, "--name", "ours", "--label", "twinfold.project=twinfold", image, str(program), "sleep", "600"])
        code, found = doctor(bed, tmp_path)
        assert (code, reasons(found)) == (0, [("leftovers", "note", "worker")])
        host.run([*docker, "rm", "-f", "ours"])
        host.run([*run, "--name", "theirs", image, str(program), "sh", "-c", "sleep 600; : tf-dsv41-lanes"])
        code, found = doctor(bed, tmp_path)
        assert (code, reasons(found)) == (3, [("other_gang", "error", "worker")])
        assert "theirs" in found["findings"][0]["found"]
    finally:
        host.run([*docker, "rm", "-f", "ours", "theirs"], check=False)
        host.run([*docker, "rmi", image], check=False)


def test_a_saved_folder_gives_the_same_findings_anywhere(bed: Testbed, tmp_path: Path) -> None:
    bed.worker.set_mtu(RAIL1, 1500)
    code, live = doctor(bed, tmp_path / "state", "--save", str(tmp_path / "out"))
    done = supervisor(bed, tmp_path / "state", "doctor", "--json", "--from", str(tmp_path / "out"), worker="")
    saved = json.loads(done.stdout)
    assert (code, done.returncode) == (3, 3)
    assert reasons(saved) == reasons(live)
    assert saved["rails"] == live["rails"]


def test_one_host_alone_is_examined_too(bed: Testbed, tmp_path: Path) -> None:
    code, found = doctor(bed, tmp_path, worker="", runner="process")
    assert (code, reasons(found), found["rails"]) == (0, [], [])


def test_a_path_that_swallows_full_packets_is_found_by_the_node_tool(bed: Testbed, tmp_path: Path) -> None:
    """MTUs agree and small packets pass, as with a switch between that was set to less."""
    worker = bed.worker
    for where in (tmp_path / f"store/0-twinfold-node-{HERE.architecture}", worker.plan.home / "probe-store/tool"):
        where.mkdir(parents=True)
    shutil.copy(node_tool(), tmp_path / f"store/0-twinfold-node-{HERE.architecture}/twinfold-node")
    shutil.copy(node_tool(), worker.plan.home / "probe-store/tool/twinfold-node-0")
    drop = ["INPUT", "-i", RAIL1.device, "-m", "length", "--length", "5000:65535", "-j", "DROP"]
    try:
        code, found = doctor(bed, tmp_path, worker_store="probe-store")
        assert (code, reasons(found)) == (0, [])
        assert [rail["full_size"] for rail in found["rails"]] == [{"worker": "ok"}] * 2
        worker.run(["iptables", "-I", *drop])
        code, found = doctor(bed, tmp_path, worker_store="probe-store")
        assert (code, reasons(found)) == (3, [("path_not_full_size", "error", "worker")])
        assert "8972" in found["findings"][0]["found"]
        code, found = doctor(bed, tmp_path, worker_store="probe-store", rails="auto")
        assert (code, reasons(found)) == (0, [("path_not_full_size", "warning", "worker")])
    finally:
        worker.run(["iptables", "-D", *drop], check=False)
        shutil.rmtree(worker.plan.home / "probe-store")


def test_without_the_node_tool_ping_proves_the_path(bed: Testbed, tmp_path: Path) -> None:
    """Each end pings the other, with full-size packets that must not be fragmented: the first launch has no more than that."""
    (worker,) = bed.workers
    code, found = doctor(bed, tmp_path)
    assert (code, reasons(found)) == (0, [])
    assert [rail["full_size"] for rail in found["rails"]] == [{"worker": "ok"}] * 2
    drop = ["INPUT", "-i", RAIL1.device, "-m", "length", "--length", "5000:65535", "-j", "DROP"]
    worker.run(["iptables", "-I", *drop])
    try:
        code, found = doctor(bed, tmp_path)
    finally:
        worker.run(["iptables", "-D", *drop])
    assert (code, reasons(found)) == (3, [("path_not_full_size", "error", "worker")])
    assert "lost on the way there" in found["findings"][0]["found"]
    assert found["findings"][0]["command"] == "ping -M do -s 8972 -I 198.51.100.1 198.51.100.2"
