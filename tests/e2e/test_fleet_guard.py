"""Guards over ranks in containers on two hosts: their kills, the lease between them, and nothing of ours left behind."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.testbed import readings
from tests.testbed.bed import Testbed
from tests.testbed.hosts import Host
from tests.testbed.layout import LAN, RAIL0, RAIL1
from tests.testing.demo import QUESTION
from tests.testing.fleet import SupervisedFleet, api, containers, everything, guards, supervised_fleet
from tests.testing.waiting import until

pytestmark = [pytest.mark.testbed, pytest.mark.timeout(1500)]
LEASE_S = 10.0
DEATH_S = 0.15  # the goal, from the sample to the death
MIB_KB = 1 << 10
SLOW_BYTES_PER_S = 32 << 10  # the guards' stream takes a tenth of it


@pytest.fixture
def fleet(testbed: Testbed, tmp_path: Path) -> Iterator[SupervisedFleet]:
    (worker,) = testbed.workers
    worker.set_meminfo()
    # ssh goes over the LAN here, so that the guards have two paths
    paths = {"fabric_peer": worker.plan.address(RAIL0), "worker": worker.plan.address(LAN), "worker_proc_root": worker.plan.proc}
    with supervised_fleet(testbed, tmp_path, **paths) as found:
        yield found
        testbed.heal()
        worker.set_meminfo()


def inspected(host: Host, container: str) -> dict[str, Any]:
    daemon = api(host)
    try:
        found: dict[str, Any] = daemon.get(f"/containers/{container}/json").document
        return found
    finally:
        daemon.close()


def secret(fleet: SupervisedFleet) -> str:
    (path,) = (fleet.state / "run").glob("*/lease.secret")
    assert path.stat().st_mode & 0o777 == 0o600
    return path.read_text()


def lease_ages_ms(fleet: SupervisedFleet) -> dict[str, float | None]:
    return {one["node"]: one.get("lease_age_s") for one in fleet.status().get("guards", ())}


def running(testbed: Testbed) -> set[str]:
    """The ids of every rank's container that runs."""
    return {one["Id"] for host in testbed.hosts for one in containers(host) if one["State"] == "running"}


def guard_folder(worker: Host) -> Path:
    """Where the worker's guard keeps its socket and log."""
    mounts = inspected(worker, guards(worker)["1"])["Mounts"]
    return Path(next(one["Source"] for one in mounts if one["Destination"] == "/guard"))


def test_each_rank_has_a_guard_on_its_host_that_is_adopted_and_leaves_nothing(fleet: SupervisedFleet, testbed: Testbed) -> None:
    (worker,) = testbed.workers
    fleet.start().wait_ready()
    folder = guard_folder(worker)
    found = {host.name: guards(host) for host in testbed.hosts}
    assert {name: list(ranks) for name, ranks in found.items()} == {testbed.head.name: ["0"], worker.name: ["1"]}
    shown = json.dumps([inspected(host, one) for host in testbed.hosts for one in guards(host).values()])
    assert secret(fleet) not in shown
    assert {one["node"] for one in fleet.status()["memory"]} == {"head", "worker"}

    fleet.running.kill()
    fleet.running.wait()
    fleet.start().wait_ready()
    assert {host.name: guards(host) for host in testbed.hosts} == found, "guards are adopted with their ranks"
    daemon = api(worker)
    assert daemon.post(f"/containers/{found[worker.name]['1']}/kill").status == 204
    daemon.close()
    until("another guard", lambda: (now := guards(worker).get("1")) and now != found[worker.name]["1"])
    assert "42" in fleet.answers(QUESTION)[0]
    assert fleet.command("stop").returncode == 0
    assert fleet.ended() == 0
    assert [everything(host) for host in testbed.hosts] == [[], []]
    assert folder.name.startswith("twinfold-guard.")
    assert not folder.exists()


def test_memory_that_collapses_on_the_worker_ends_the_gang_with_its_name(fleet: SupervisedFleet, testbed: Testbed) -> None:
    (worker,) = testbed.workers
    fleet.start().wait_ready()
    worker.set_meminfo(MemAvailable=64 * MIB_KB)
    names = until("a saved end", lambda: [name for name in fleet.logs() if name.endswith("-end.json")])
    assert json.loads((fleet.state / "logs" / names[0]).read_text())["reason"] in {"memory hard floor", "memory slope"}
    evidence = next(name for name in fleet.logs() if name.endswith("-guard1.jsonl"))
    assert json.loads((fleet.state / "logs" / evidence).read_text().splitlines()[0])["event"] == "kill"
    (evicted,) = fleet.status()["evictions"]
    assert (evicted["node"], evicted["count"]) == ("worker", 1)


def test_the_plan_reads_every_nodes_memory_and_a_worker_that_lacks_it_refuses(fleet: SupervisedFleet, testbed: Testbed) -> None:
    (worker,) = testbed.workers
    nodes = json.loads(fleet.command("plan", "--json").stdout)["nodes"]
    assert [one["node"] for one in nodes] == ["head", "worker"]
    assert nodes[1]["rows"]["available now"] == readings.MEMINFO_KB["MemAvailable"] << 10
    worker.set_meminfo(MemAvailable=200 * MIB_KB)
    short = fleet.command("plan")
    assert short.returncode == 3
    assert "worker has" in short.stderr
    worker.stop_sshd()
    unread = fleet.command("plan")
    worker.restart_sshd()
    assert unread.returncode == 0
    assert "not read: " in unread.stdout


def test_the_worker_is_guarded_with_supervisor_and_dockerd_stopped_and_every_way_to_it_cut(
    fleet: SupervisedFleet, testbed: Testbed
) -> None:
    (worker,) = testbed.workers
    fleet.start().wait_ready()
    folder = guard_folder(worker)
    pidfd = os.pidfd_open(inspected(worker, containers(worker)[0]["Id"])["State"]["Pid"])
    fleet.signal(signal.SIGSTOP)
    worker.freeze_dockerd()
    worker.stop_sshd()
    try:
        for network in (RAIL0, RAIL1, LAN):
            worker.link(network, up=False)
        worker.set_meminfo(MemAvailable=64 * MIB_KB)
        assert select.select([pidfd], [], [], 10 * DEATH_S)[0], "the rank outlived memory below the hard floor"
        said = until("the guard's words", lambda: [one for one in words(folder) if one.get("event") == "dead"] and words(folder))
        assert (said[0]["event"], said[0]["cause"]) == ("kill", "hard")
        assert said[0]["read_to_signal_us"] + said[-1]["us_after_signal"] <= 10 * DEATH_S * 1e6
    finally:
        os.close(pidfd)
        testbed.heal()
        worker.restart_sshd()
        worker.thaw_dockerd()
        fleet.signal(signal.SIGCONT)
    until("an end", lambda: [name for name in fleet.logs() if name.endswith("-end.json")])


def words(folder: Path) -> list[dict[str, Any]]:
    """What the worker's guard has logged so far."""
    try:
        lines = (folder / "guard1.log").read_text().splitlines()
        return [json.loads(line) for line in lines]
    except (OSError, ValueError):
        return []


def test_loss_and_slowness_stop_nothing_and_a_worker_cut_off_on_every_path_stops_its_rank(
    fleet: SupervisedFleet, testbed: Testbed
) -> None:
    (worker,) = testbed.workers
    fleet.start().wait_ready()
    ranks = {one["Id"] for host in testbed.hosts for one in containers(host)}
    rank = next(one["Id"] for one in containers(worker))
    for host in testbed.hosts:
        for network in (RAIL0, LAN):
            host.lose(network, 0.3)
    time.sleep(LEASE_S + 5.0)
    assert running(testbed) == ranks
    testbed.heal()
    for host in testbed.hosts:
        for network in (RAIL0, LAN):
            host.slow(network, SLOW_BYTES_PER_S)
    time.sleep(LEASE_S + 5.0)
    assert running(testbed) == ranks
    testbed.heal()

    worker.link(RAIL0, up=False)
    time.sleep(2.0)
    cut_s = time.monotonic()
    for network in (RAIL1, LAN):
        worker.link(network, up=False)
    until("the rank's end", lambda: not inspected(worker, rank)["State"]["Running"])
    took_s = time.monotonic() - cut_s
    print(f"the worker's rank ended {took_s:.1f} s after the last path was cut (goal {LEASE_S + 1:g} s)")
    # the goal is one second over the lease; ten times that on a machine that others use
    assert took_s <= LEASE_S + 10.0, f"the worker's rank ended {took_s:.1f} s after the last path was cut"
