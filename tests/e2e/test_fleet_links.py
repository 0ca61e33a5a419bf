"""A run over two hosts: what the doctor forbids is refused, links are found at each launch, a dry run changes nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.testbed import network, readings
from tests.testbed.bed import Testbed
from tests.testbed.hosts import Host
from tests.testbed.layout import RAIL0, RAIL1
from tests.testing.fleet import SupervisedFleet, api, containers, store, supervised_fleet

pytestmark = [pytest.mark.testbed, pytest.mark.timeout(1500)]


@pytest.fixture
def fleet(testbed: Testbed, tmp_path: Path) -> Iterator[SupervisedFleet]:
    head = testbed.head.plan
    roots = {"proc_root": head.proc, "sys_root": head.sys, "worker_proc_root": "../proc", "worker_sys_root": "../sys"}
    with supervised_fleet(testbed, tmp_path, **roots) as found:
        yield found
    for host in testbed.hosts:
        readings.write(host.plan)
    testbed.heal()


def env_of(host: Host) -> dict[str, str]:
    """The environment of the one rank that runs there."""
    daemon = api(host)
    try:
        (one,) = containers(host)
        env: list[str] = daemon.get(f"/containers/{one['Id']}/json").document["Config"]["Env"]
        return dict(pair.split("=", 1) for pair in env)
    finally:
        daemon.close()


def gids(host: Host, first_index: int) -> None:
    for rail in (RAIL0, RAIL1):
        readings.write_roce(host.plan.sys, rail, host.plan.address(rail), first_index=first_index)


REFUSED: dict[str, tuple[Callable[[Testbed], object], dict[str, str], tuple[str, ...]]] = {
    "an MTU that differs": (lambda b: b.worker.set_mtu(RAIL1, 1500), {}, ("enP2p1s0f1np1", "1500", "9000")),
    "a device without its GID": (
        lambda b: readings.write_roce(b.worker.plan.sys, RAIL0, "192.0.2.99"),
        {},
        ("rocep1s0f1", "192.0.2.2", "GID"),
    ),
    "indexes that the engine cannot be told": (
        lambda b: readings.write_roce(b.worker.plan.sys, RAIL1, b.worker.plan.address(RAIL1), first_index=4),
        {"engine_gid": "one"},
        ("roceP2p1s0f1", "index 5", "rail 1", "rails = 1 or auto"),
    ),
    "a worker that is not there": (lambda _: None, {"worker": "192.0.2.77", "fabric_peer": ""}, ("worker", "192.0.2.77")),
    "a LAN address for the link": (lambda _: None, {"fabric_peer": "203.0.113.2"}, ("enP7s7", "FABRIC_PEER")),
    "too little memory on the worker": (
        lambda b: b.worker.set_meminfo(MemAvailable=1024, MemFree=1024),
        {"gate_wait_s": "1"},
        ("worker", "memory"),
    ),
    "a warning under strict": (lambda b: readings.use_gpu(b.head.plan), {"strict": "1"}, ("999999", "--strict")),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_the_doctor_forbids_is_refused_with_its_line(what: str, fleet: SupervisedFleet, testbed: Testbed) -> None:
    act, settings, words = REFUSED[what]
    act(testbed)
    fleet.env |= {f"TWINFOLD_{name.upper()}": value for name, value in settings.items()}
    fleet.start()
    assert fleet.ended() == 3
    assert fleet.err.splitlines()[-1].startswith("error: ")
    assert all(word in fleet.err.splitlines()[-1] for word in words), fleet.err
    assert all(containers(host) == [] for host in testbed.hosts)


def test_each_launch_finds_its_links_anew(fleet: SupervisedFleet, testbed: Testbed) -> None:
    """The second launch after a reboot of the worker: its GIDs have moved, and its second cable is out."""
    (worker,) = testbed.workers
    fleet.start().wait_ready()
    first = env_of(worker)
    assert first["NCCL_IB_HCA"] == first["TF_RDMA_DEVICES"] == "rocep1s0f1,roceP2p1s0f1"
    assert (first["NCCL_IB_GID_INDEX"], first["TF_RDMA_GID_INDEX"], first["NCCL_SOCKET_IFNAME"]) == ("3", "3", "enp1s0f1np1")
    assert env_of(testbed.head)["TF_TP_MASTER"] == "192.0.2.1"
    gids(worker, 4)
    worker.link(RAIL1, up=False)
    done = fleet.command("restart")
    assert done.returncode == 0, done.stderr
    second = env_of(worker)
    assert (second["NCCL_IB_HCA"], second["NCCL_IB_GID_INDEX"]) == ("rocep1s0f1", "5")
    assert env_of(testbed.head)["NCCL_IB_GID_INDEX"] == "3"
    assert "moved from 3 to 5" in fleet.err
    assert "warning:" in fleet.err
    assert "enP2p1s0f1np1" in fleet.err


def test_a_bad_second_rail_is_left_out_under_auto_and_said(fleet: SupervisedFleet, testbed: Testbed) -> None:
    testbed.worker.set_mtu(RAIL1, 1500)
    fleet.env["TWINFOLD_RAILS"] = "auto"
    fleet.start().wait_ready()
    assert env_of(testbed.head)["NCCL_IB_HCA"] == "rocep1s0f1"
    assert "rail 1 is left out" in fleet.err


def test_a_rail_whose_index_the_engine_cannot_be_told_is_left_out_under_auto(fleet: SupervisedFleet, testbed: Testbed) -> None:
    """The engine's own RDMA takes one index for all devices of a node, and a rail's index has moved on the worker alone."""
    (worker,) = testbed.workers
    readings.write_roce(worker.plan.sys, RAIL1, worker.plan.address(RAIL1), first_index=4)
    fleet.env |= {"TWINFOLD_RAILS": "auto", "TWINFOLD_ENGINE_GID": "one"}
    fleet.start().wait_ready()
    env = env_of(worker)
    assert (env["NCCL_IB_HCA"], env["NCCL_IB_GID_INDEX"], env["TF_RDMA_GID_INDEX"]) == ("rocep1s0f1", "3", "3")
    assert "index 5 of roceP2p1s0f1" in fleet.err
    assert "rail 1 is left out" in fleet.err


def everything(testbed: Testbed) -> dict[str, Any]:
    """Files, containers, volumes, images and processes of each host."""
    found: dict[str, Any] = {}
    for host in testbed.hosts:
        own = {host.plan.folder / name for name in ("log", "docker")}
        paths = [path for path in host.plan.folder.rglob("*") if not own & set(path.parents)]
        daemon = api(host)
        found[host.name] = {
            "files": sorted(f"{path} {(s := path.lstat()).st_size} {s.st_mtime_ns}" for path in paths),
            "docker": [
                sorted(str(one["Id"]) for one in containers(host)),
                daemon.get("/volumes").document["Volumes"],
                sorted(one["Id"] for one in daemon.get("/images/json").document),
            ],
            "processes": sorted(network.members(host.name)),
        }
        daemon.close()
    return found


def test_a_dry_run_shows_all_of_a_launch_and_changes_nothing(fleet: SupervisedFleet, testbed: Testbed) -> None:
    fleet.env |= {"TF_DS_IDX_SPLIT": "1", "TENSORFOLD_API_KEY": "hush"}
    state = sorted((path, path.lstat().st_mtime_ns) for path in fleet.state.iterdir())
    before = everything(testbed)
    began = time.monotonic()
    told = fleet.command("run", "--dry-run")
    assert time.monotonic() - began < 15.0  # ten times the goal
    shown = json.loads(fleet.command("run", "--dry-run", "--json").stdout)
    end = time.monotonic() + 10.0
    while (after := everything(testbed)) != before and time.monotonic() < end:
        time.sleep(0.1)
    assert after == before
    assert sorted((path, path.lstat().st_mtime_ns) for path in fleet.state.iterdir()) == state
    assert told.returncode == 0, told.stderr
    assert "hush" not in told.stdout
    assert [rail["rail"] for rail in shown["rails"]] == [0, 1]
    assert sum(row["bytes"] for row in shown["copies"]["worker"]) > 1 << 20
    (image,) = shown["images"]["worker"]
    assert f"worker: image {image['image']} {'is there' if image['present'] else 'to be loaded'}" in told.stdout
    head, worker = (dict(pair.split("=", 1) for pair in rank["container"]["Env"]) for rank in shown["ranks"])
    assert head["TF_DS_IDX_SPLIT"] == worker["TF_DS_IDX_SPLIT"] == "1"
    assert (head["TF_TP_MASTER"], worker["NCCL_IB_GID_INDEX"]) == ("192.0.2.1", "3")
    for words in ("rank 1 on worker", "tf-dsv41-lanes", "NCCL_IB_HCA=rocep1s0f1,roceP2p1s0f1", "to copy"):
        assert words in told.stdout


def test_a_dry_run_is_what_a_run_does(fleet: SupervisedFleet, testbed: Testbed) -> None:
    planned = json.loads(fleet.command("run", "--dry-run", "--json").stdout)["ranks"]
    fleet.start().wait_ready()
    for rank, host in zip(planned, testbed.hosts, strict=True):
        daemon = api(host)
        (one,) = containers(host)
        real = daemon.get(f"/containers/{one['Id']}/json").document
        daemon.close()
        config, wanted = real["Config"], rank["container"]
        assert [*config["Entrypoint"], *config["Cmd"]] == [*wanted["Entrypoint"], *wanted["Cmd"]]
        plain = [
            sorted(pair for pair in env if not pair.startswith(("TWINFOLD_RANK=", "PATH=")))
            for env in (config["Env"], wanted["Env"])
        ]
        assert plain[0] == plain[1]
        mounts = [{"ReadOnly": False, **mount} for mount in real["HostConfig"]["Mounts"]]  # Docker leaves out what is false
        assert mounts == wanted["HostConfig"]["Mounts"]
        assert config["User"] == wanted["User"]
        assert real["Name"] == f"/{rank['name']}"


def test_a_worker_reads_the_heads_store_where_it_is_mounted(fleet: SupervisedFleet, testbed: Testbed) -> None:
    """The path form of NFS, over a bind: nothing is copied, all is hashed through the mount, Engram only where it is allowed."""
    (worker,) = testbed.workers
    mounted = (fleet.state / "store").resolve()
    fleet.env |= {"TWINFOLD_STORAGE": "nfs", "TWINFOLD_NFS_VOLUME": str(mounted)}
    fleet.start()
    assert fleet.ended() == 3
    assert "engram_on_network" in fleet.err.splitlines()[-1]
    fleet.env["TWINFOLD_ENGRAM_ON_NETWORK"] = "1"
    fleet.start().wait_ready()
    assert {path.name for path in store(worker).iterdir()} == {"cache"}
    daemon = api(worker)
    (one,) = containers(worker)
    mounts = daemon.get(f"/containers/{one['Id']}/json").document["HostConfig"]["Mounts"]
    daemon.close()
    assert all(mount["Source"].startswith(str(mounted)) and mount["ReadOnly"] for mount in mounts if mount["Target"] != "/cache")
