"""One change of the healthy pair for each finding of the table: what is edited, what is set, and what comes of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from build.bundle import Needs
from supervisor.doctor.catalogue import TABLES
from supervisor.doctor.findings import Action, Level
from tests.testing.captures import ENTRIES, REAL, STORE
from tests.testing.cases import case

CMA = case("memory-cma-free-exceeds-total")
Edit = tuple[str, str, str]
GID = "/sys/class/infiniband/{}/ports/1/{}/"
RAIL1 = "enP2p1s0f1np1"
AUTO = {"rails": "auto"}
NFS = {"storage": "nfs", "engram_on_network": "true"}
BUSY = (" 0 %", " 97 %")


def container(**more: str) -> str:
    return json.dumps({"Names": "x", "Image": "busybox", "Command": '"sleep"', "State": "running", "Labels": "", **more}) + "\n"


def moved(node: str, device: str, index: int) -> tuple[Edit, ...]:
    """The v2 GID of a device at another index than 3."""
    name = f"{node}/infiniband.txt"
    folders = ("gids", "gid_attrs/types", "gid_attrs/ndevs")
    return tuple((name, f"{GID.format(device, one)}3:", f"{GID.format(device, one)}{index}:") for one in folders)


def second_address(node: str) -> Edit:
    """An old address of the first port at a lower index than the right one."""
    values = ("0000:0000:0000:0000:0000:ffff:c000:024d", "RoCE v2", "enp1s0f1np1")
    folders = ("gids", "gid_attrs/types", "gid_attrs/ndevs")
    lines = "".join(f"{GID.format('rocep1s0f1', one)}2:{value}\n" for one, value in zip(folders, values, strict=True))
    first = "/sys/class/infiniband/rocep1s0f1/device"
    return (f"{node}/infiniband.txt", first, lines + first)


def down(netdev: str) -> Edit:
    flags = '[\n   "UP",\n   "LOWER_UP"\n  ]'
    row = f'"ifname": "{netdev}",\n  "mtu": 9000,\n  "flags": '
    return ("worker/ip-addr.json", row + flags, row + '["UP", "NO-CARRIER"]')


ROWS = {name: row for table in TABLES.values() for row in table for name in row.reasons}


@dataclass(frozen=True)
class Change:
    """One row: what is changed in the capture, the settings beside it, and what comes of it.

    ``eased``: a setting makes it what the row's ``eased`` says. ``before``: GID indexes of the last launch.
    """

    reason: str
    words: str
    edits: tuple[Edit, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    eased: bool = False
    trouble: tuple[str, str] = ("", "")
    before: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    needs: Needs | None = REAL  # None: nothing was built

    @property
    def want(self) -> tuple[str, Level, Action]:
        row = ROWS[self.reason]
        level, action = row.eased if self.eased and row.eased else (row.level, row.action)
        return (self.reason, level, action)


BESIDE = (
    "worker/docker-ps.jsonl",
    "",
    container(
        Names="theirs",
        Labels="twinfold.project=twinfold,twinfold.owner=0123456789abcdef,twinfold.owner.folder=spark-c:/srv/other",
    ),
)
MTU = ("worker/ip-addr.json", f'"ifname": "{RAIL1}",\n  "mtu": 9000', f'"ifname": "{RAIL1}",\n  "mtu": 1500')
NO_GID = ("worker/infiniband.txt", "ffff:c633:6402", "ffff:c633:6463")
PATH = ("probed.json", '"rail": 1,\n  "node": "worker",\n  "size_bytes": 8972,\n  "outcome": "ok"', "")
SWALLOWED = (PATH[0], PATH[1], PATH[1].replace('"ok"', '"3 lost"'))
LOADED: tuple[Edit, ...] = tuple((f"{node}/nvidia-smi.csv", *BUSY) for node in ("head", "worker"))
ON_NFS = (
    "worker/df.txt",
    f"@ {STORE}/{ENTRIES['engram']}\n/dev/nvme0n1p2 ext4",
    f"@ {STORE}/{ENTRIES['engram']}\n192.0.2.1:/srv nfs4",
)
CHANGES: dict[str, Change] = {
    "no v2 GID": Change("no_v2_gid", "roceP2p1s0f1", (NO_GID,)),
    "no v2 GID, auto": Change("no_v2_gid", "roceP2p1s0f1", (NO_GID,), AUTO, eased=True),
    "another MTU": Change("mtu_differs", "9000, enP2p1s0f1np1 of worker 1500", (MTU,)),
    "another MTU, auto": Change("mtu_differs", "rail 1 is left out", (MTU,), AUTO, eased=True),
    "a path for small packets": Change("path_not_full_size", "8972", (SWALLOWED,)),
    "a path for small packets, auto": Change("path_not_full_size", "8972", (SWALLOWED,), AUTO, eased=True),
    "indexes that the engine cannot take": Change("gid_index_not_taken", "index 4", moved("worker", "roceP2p1s0f1", 4)),
    "indexes that the engine cannot take, auto": Change(
        "gid_index_not_taken", "rail 1 is left out", moved("worker", "roceP2p1s0f1", 4), AUTO, eased=True
    ),
    "an index that an early engine never takes": Change(
        "gid_index_not_taken",
        "would use 5",
        tuple(
            e
            for n in ("head", "worker")
            for d in ("rocep1s0f1", "roceP2p1s0f1")
            if (n, d) != ("worker", "rocep1s0f1")
            for e in moved(n, d, 5)
        ),
        {"engine_gid": "fixed"},
    ),
    "the first rail down": Change("link_down", "enp1s0f1np1", (down("enp1s0f1np1"),)),
    "the head's address gone": Change(
        "no_ipv4_on_fabric_port",
        "netplan",
        (("head/ip-addr.json", '"local": "192.0.2.1"', '"local": "169.254.7.1"'),),
        {"master_addr": "192.0.2.1"},
    ),
    "a LAN address": Change(
        "not_the_fabric",
        "enP7s7",
        (("head/ip-route.jsonl", '"dev": "enp1s0f1np1"', '"dev": "enP7s7", "gateway": "203.0.113.9"'),),
    ),
    "a name that does not resolve": Change("not_an_address", "spark..b", settings={"fabric_peer": "spark..b"}),
    "no common network": Change(
        "no_rail",
        "192.0.9.2",
        (("worker/ip-addr.json", "192.0.2.2", "192.0.9.2"), ("worker/ip-addr.json", "198.51.100.2", "198.51.101.2")),
    ),
    "no RDMA devices": Change("no_rdma_device", "spark-a", tuple((f"{n}/infiniband.txt", "", "") for n in ("head", "worker"))),
    "the second rail down": Change("rail_down", RAIL1, (down(RAIL1),)),
    "a twin without an address": Change(
        "rail_down", "PCIe twin", (("head/ip-addr.json", '"family": "inet",\n    "local": "198.51.100.1"', '"family": "none"'),)
    ),
    "RoCE with 1024 bytes": Change(
        "roce_mtu_low",
        "1024",
        (
            (
                "head/ibv_devinfo.txt",
                "4096 (5)\n\t\t\tlink_layer:\t\tEthernet\n\nhca_id:\troceP2p",
                "1024 (3)\n\nhca_id:\troceP2p",
            ),
        ),
    ),
    "a moved index": Change("gid_index_moved", "from 5 to 3", before={"worker": {"rocep1s0f1": 5, "roceP2p1s0f1": 3}}),
    "indexes that differ": Change(
        "gid_index_differs", "roceP2p1s0f1 4", moved("worker", "roceP2p1s0f1", 4), {"engine_gid": "each"}
    ),
    "an old address in front": Change(
        "gid_address_in_front",
        "192.0.2.77",
        (*moved("worker", "roceP2p1s0f1", 4), second_address("worker")),
        {"engine_gid": "each"},
    ),
    "clocks that differ": Change(
        "clock_cap_differs",
        "2200 MHz",
        (*LOADED, ("head/nvidia-smi-clock.txt", "208 MHz", "2200 MHz"), ("worker/nvidia-smi-clock.txt", "208 MHz", "2600 MHz")),
    ),
    "a clock stuck low": Change("clock_stuck_low", "208 MHz of 3003", LOADED[:1]),
    "too small a disk": Change("disk_too_small", "250.0 GiB are missing", (("worker/df.txt", "1800000000000", "180000000000"),)),
    "a user outside Docker's group": Change(
        "docker_unreachable",
        "usermod -aG docker ops",
        (("worker/docker-info.json", "", "permission denied while trying to connect to the Docker daemon socket\n"),),
    ),
    "a Docker that does not run": Change(
        "docker_unreachable",
        "systemctl start docker",
        (("head/docker-info.json", "", "Cannot connect to the Docker daemon at unix:///x. Is it running?\n"),),
    ),
    "a Docker that hangs": Change(
        "docker_unreachable",
        "does not answer",
        (
            ("worker/docker-info.json", "", ""),
            (
                "nodes.json",
                '"worker": {\n  "read_at_s": 1764500000.45,\n  "statuses": {}',
                '"worker": {\n  "read_at_s": 1764500000.45,\n  "statuses": {"docker-info.json": 124}',
            ),
        ),
    ),
    "no NVIDIA runtime": Change(
        "no_nvidia_runtime", "nvidia-ctk", (("worker/docker-info.json", '"nvidia": {"path": "nvidia-container-runtime"}, ', ""),)
    ),
    "no GPU": Change("no_gpu", "nvidia-smi", (("worker/nvidia-smi.csv", "", ""),)),
    "a refused key": Change(
        "ssh_refused", "ssh-copy-id ops@spark-b", trouble=("KeyRefused", "worker: it takes none of our keys")
    ),
    "a changed host key": Change("host_key_changed", "ssh-keygen -R", trouble=("HostKeyChanged", "worker: another host key")),
    "an unknown host key": Change("host_key_unknown", "fingerprint", trouble=("HostKeyUnknown", "worker: never accepted")),
    "a worker that is off": Change("worker_unreachable", "switch it on", trouble=("Unreachable", "worker: nothing answers")),
    "a name that ssh does not know": Change("worker_unreachable", "alias", trouble=("NameUnknown", "worker: no such name")),
    "a worker that hangs": Change("worker_unreachable", "console", trouble=("DeadlinePassed", "worker: did not end in time")),
    "too little memory": Change(
        "memory_under_gate", "20.0 GiB", (("worker/meminfo", "MemAvailable:   98566368", "MemAvailable:   20971520"),)
    ),
    "memory in the page cache": Change(
        "memory_in_page_cache", "drop_caches", (("worker/meminfo", "MemFree:        88221696", "MemFree:        20971520"),)
    ),
    "a broken CMA account": Change(
        "cma_free_exceeds_total",
        "kho=off",
        (
            ("head/meminfo", "", CMA.text("input-before-meminfo")),
            ("head/system.txt", "ro quiet", CMA.text("input-before-cmdline").strip()),
        ),
    ),
    "our leftovers": Change(
        "leftovers",
        "twinfold (exited)",
        (("worker/docker-ps.jsonl", "", container(Names="twinfold", State="exited", Labels="twinfold.project=twinfold")),),
    ),
    "a stranger on the GPU": Change(
        "gpu_in_use", "114687", (("head/nvidia-smi-apps.csv", "", case("gpu-csv-memory-na").text("input-head-apps.csv")),)
    ),
    "a stranger on a GPU that nobody needs": Change(
        "gpu_in_use",
        "114687",
        (("head/nvidia-smi-apps.csv", "", case("gpu-csv-memory-na").text("input-head-apps.csv")),),
        eased=True,
        needs=Needs(),
    ),
    "another gang": Change(
        "other_gang",
        "dsv41-1017-exl3-tf",
        (("worker/docker-ps.jsonl", "", container(Names="dsv41-1017-exl3-tf", Command='"tf-dsv41-lanes /m"')),),
    ),
    "another gang of this kind": Change("other_gang", "spark-c:/srv/other", (BESIDE,)),
    "another gang of this kind where no GPU is needed": Change("gang_beside", "spark-c:/srv/other", (BESIDE,), needs=Needs()),
    "a lease port that is taken": Change(
        "lease_port_taken",
        "29778",
        (("worker/udp.txt", "00000000:0044", "00000000:7452"),),
    ),
    "Engram on NFS": Change("engram_on_network", "engram_on_network = true", (ON_NFS,)),
    "Engram on NFS, allowed": Change("engram_on_network", "nfs4", (ON_NFS,), {"engram_on_network": "true"}, eased=True),
    "Engram in a store on NFS": Change("engram_on_network", "storage = local", settings={"storage": "nfs"}),
    "a clock behind": Change("time_skew", "3.4 s behind", (("worker/end.txt", "1764500000.4", "1764499997.05"),)),
    "other drivers": Change("drivers_differ", "580.95.05", (("worker/nvidia-smi.csv", "580.173.02", "580.95.05"),)),
    "other kernels": Change("kernels_differ", "6.17.1", (("worker/system.txt", "kernel 6.14.0-1013-nvidia", "kernel 6.17.1"),)),
    "little lockable memory": Change(
        "memlock_limited",
        "ulimit -l",
        (("worker/system.txt", "memlock unlimited", "memlock 64"),),
        {"runner": "process"},
        needs=Needs(infiniband=True, memlock=True),
    ),
    "an open API": Change("api_without_key", "0.0.0.0:8888", settings={"host": "0.0.0.0", "allow_unauthenticated": "true"}),
    "nothing built": Change("nothing_built", "doit target=dsv41", needs=None),
    "no nfs-common": Change(
        "nfs_common_missing", "apt-get install nfs-common", (("worker/system.txt", "mount_nfs yes", "mount_nfs no"),), NFS
    ),
    "a volume of another address": Change(
        "nfs_volume_differs",
        "192.0.2.9, not 192.0.2.1",
        (("worker/docker-volume.json", "addr=192.0.2.1", "addr=192.0.2.9"),),
        NFS,
    ),
    "a volume of another path": Change(
        "nfs_volume_differs", "/srv/other", (("worker/docker-volume.json", f":{STORE}", ":/srv/other"),), NFS
    ),
    "no export": Change("nfs_not_exported", "192.0.2.2(ro,crossmnt", (("head/exports", "", ""),), NFS),
    "an export without crossmnt": Change("nfs_no_crossmnt", "192.0.2.2(ro,crossmnt", (("head/exports", "crossmnt,", ""),), NFS),
    "no volume yet": Change("nfs_volume_missing", "docker volume create", (("worker/docker-volume.json", "", "[]\n"),), NFS),
}
HEALTHY = Change("", "")
