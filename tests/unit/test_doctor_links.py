"""Links as the field has seen them: each device's own GID index, rails that differ, addresses that went away."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from build.facts import Netdev, netdevs, rdma_devices, route
from build.facts.rdma import fitting_mtu
from supervisor.doctor.facts import NodeFacts, read
from supervisor.doctor.findings import Action, Level
from supervisor.doctor.links import Links, Probed, Wish, judge, probe_findings
from supervisor.doctor.rails import Peer, covering, find, not_an_address, off_the_link
from supervisor.doctor.script import Query, Section, command, sections
from tests.testing.cases import case

GIDS = case("roce-gid-differs-per-device")
LOST = case("roce-link-local-only")
MTU = case("link-mtu-mismatch-one-rail")
ROUTE = case("link-route-get-lan")

RAILS = (("enp1s0f1np1", "rocep1s0f1", "192.0.2", "0000"), ("enP2p1s0f1np1", "roceP2p1s0f1", "198.51.100", "0002"))


def addr(number: int, mtus: tuple[int, ...] = (9000, 9000), down: tuple[str, ...] = ()) -> str:
    """`ip -j addr` of a host with both rails and a LAN port."""
    rows = [("enP7s7", "203.0.113", 1500), *((r[0], r[2], mtu) for r, mtu in zip(RAILS, mtus, strict=True))]
    return json.dumps(
        [
            {
                "ifname": name,
                "mtu": mtu,
                "flags": ["UP", "NO-CARRIER"] if name in down else ["UP", "LOWER_UP"],
                "addr_info": [{"family": "inet", "local": f"{prefix}.{number}", "prefixlen": 24}],
            }
            for name, prefix, mtu in rows
        ]
    )


def gid(address: str) -> str:
    return "0000:0000:0000:0000:0000:ffff:" + ":".join(
        f"{int(a):02x}{int(b):02x}" for a, b in (address.split(".")[:2], address.split(".")[2:])
    )


def infiniband(number: int, indexes: tuple[int, ...] = (3, 3), states: tuple[str, ...] = ("4: ACTIVE", "4: ACTIVE")) -> str:
    lines = []
    for (netdev, roce, prefix, domain), index, state in zip(RAILS, indexes, states, strict=True):
        port = f"/sys/class/infiniband/{roce}/ports/1"
        lines += [f"/sys/class/infiniband/{roce}/device -> ../../../{domain}:01:00.1", f"{port}/state:{state}"]
        entries = [("fe80:0000:0000:0000:0200:00ff:fe00:0001", 1), *([(gid(f"{prefix}.{number}"), index)] if index >= 0 else [])]
        for content, at in entries:
            lines += [
                f"{port}/gids/{at}:{content}",
                f"{port}/gid_attrs/types/{at}:RoCE v2",
                f"{port}/gid_attrs/ndevs/{at}:{netdev}",
            ]
    return "\n".join(lines)


def devinfo(mtu: int) -> str:
    return f"hca_id:\trocep1s0f1\n\tport:\t1\n\t\tactive_mtu:\t\t{mtu} (5)\n"


def facts(name: str, **sections: str) -> NodeFacts:
    """A node out of sections; underscores in their names stand for dashes, the suffix comes by itself."""
    names = {"ip_addr": "ip-addr.json", "infiniband": "infiniband.txt", "routes": "ip-route.jsonl", "ibv": "ibv_devinfo.txt"}
    return read(name, {names[key]: Section(text) for key, text in sections.items()})


def pair(**more: object) -> tuple[NodeFacts, Peer]:
    """A healthy pair; ``mtus``, ``indexes``, ``states``, ``down`` and ``ibv`` change the worker's (``ibv`` both ends')."""
    mtus, indexes = more.get("mtus", (9000, 9000)), more.get("indexes", (3, 3))
    states, down = more.get("states", ("4: ACTIVE", "4: ACTIVE")), more.get("down", ())
    ibv = str(more.get("ibv", ""))
    head = facts("head", ip_addr=addr(1), infiniband=infiniband(1), ibv=ibv)
    worker = facts("worker", ip_addr=addr(2, mtus, down), infiniband=infiniband(2, indexes, states), ibv=ibv)  # type: ignore[arg-type]
    return head, Peer(worker, "192.0.2.2", given=True)


DEFAULT = Wish()


def judged(wish: Wish = DEFAULT, **more: object) -> Links:
    head, peer = pair(**more)
    return judge(head, [peer], wish, {})


def reasons(links: Links) -> list[tuple[str, Level, Action]]:
    return [(one.reason, one.level, one.action) for one in links.findings]


def test_each_device_has_its_own_index_and_no_single_one_is_passed() -> None:
    devices = {one.name: one for one in rdma_devices(GIDS.text("input-sysfs.txt"))}
    given = GIDS.given["fabric_address"]
    found = {
        name: entry.index for name, one in devices.items() if one.netdev in given and (entry := one.gid_of(given[one.netdev]))
    }
    assert found == GIDS.expect["gid_index"]
    assert [name for name in devices if devices[name].active] == GIDS.expect["rails"]
    assert sorted(name for name, one in devices.items() if not one.active) == sorted(GIDS.expect["not_used"])


def test_a_pair_whose_indexes_differ_is_fine_and_nccl_gets_a_range() -> None:
    mine = [
        {
            "ifname": name,
            "mtu": 9000,
            "flags": ["UP", "LOWER_UP"],
            "addr_info": [{"family": "inet", "local": address, "prefixlen": 24}],
        }
        for name, address in GIDS.given["fabric_address"].items()
    ]
    head = facts("spark-a", ip_addr=json.dumps(mine), infiniband=GIDS.text("input-sysfs.txt"))
    links = judge(head, [pair()[1]], Wish(rdma=True), {})
    assert [one.level for one in links.findings if one.level is not Level.NOTE] == []
    local = links.local("spark-a")
    assert local.rdma_devices == tuple(GIDS.expect["rails"])
    assert local.gid_index is None
    env = local.environment()
    assert "NCCL_IB_GID_INDEX" not in env
    assert "TF_RDMA_GID_INDEX" not in env
    assert env["NCCL_IB_ROCE_VERSION_NUM"] == "2"
    assert env["NCCL_IB_ADDR_RANGE"] == covering(GIDS.given["fabric_address"].values())
    assert any("192.0.2.77" in one.found for one in links.findings)
    assert links.local("worker").gid_index == 3


def test_a_port_without_its_address_is_refused_whatever_else_it_has() -> None:
    want = LOST.expect
    head = facts("spark-a", ip_addr=LOST.text("input-addr.json"), infiniband=LOST.text("input-sysfs.txt"))
    address = LOST.given["fabric_address"]["enp1s0f0np0"]
    links = judge(head, [Peer(pair()[1].facts, "192.0.2.2", given=True)], Wish(master_addr=address), {})
    assert list(links.rails) == want["rails"]
    assert links.indexes() == want["gid_index"]
    (finding,) = links.findings
    assert (finding.reason, finding.action) == (want["reason"], Action.REFUSE)
    assert all(word in finding.line for word in want["message_must_name"])
    assert "enP7s7" not in finding.line


@pytest.mark.parametrize("rails", [2, "auto"])
def test_a_rail_with_another_mtu_is_refused_or_left_out_and_named(rails: int | str) -> None:
    want = MTU.expect
    sysfs = infiniband(1)
    head = facts("head", ip_addr=MTU.text("input-head-addr.json"), infiniband=sysfs)
    worker = facts("worker", ip_addr=MTU.text("input-worker-addr.json"), infiniband=infiniband(2))
    links = judge(head, [Peer(worker, "192.0.2.2", given=True)], Wish(rails=rails), {})
    found = find(head, [Peer(worker, "192.0.2.2", given=True)])
    seen = [
        {"head": r.ends[0].netdev.name, "worker": r.ends[1].netdev.name, "head_mtu": r.ends[0].netdev.mtu}
        | {
            "worker_mtu": r.ends[1].netdev.mtu,
            "verdict": "ok" if r.ends[0].netdev.mtu == r.ends[1].netdev.mtu else "fail",
        }
        for r in found.rails
    ]
    assert seen == want["rails"]
    (finding,) = links.findings
    assert finding.reason == want["reason"]
    assert all(word in finding.line for word in want["message_must_name"])
    assert finding.action is (Action.DROP_RAIL if rails == "auto" else Action.REFUSE)
    assert len(links.rails) == (1 if rails == "auto" else 2)


def test_only_a_direct_route_through_an_rdma_port_is_the_fabric() -> None:
    pairs = [line.split() for line in ROUTE.text("input-netdevs.txt").splitlines()]
    sysfs = "\n".join(
        f"/sys/class/infiniband/{roce}/ports/1/{line}"
        for netdev, roce in pairs
        if roce != "-"
        for line in ("state:4: ACTIVE", "gids/1:fe80::1", "gid_attrs/types/1:RoCE v2", f"gid_attrs/ndevs/1:{netdev}")
    )
    head = facts("head", ip_addr="[]", infiniband=sysfs)
    for name in ("lan", "gateway", "link"):
        want, way = ROUTE.expect[name], route(ROUTE.text(f"input-{name}.json"))
        finding = off_the_link(head, way)
        assert (way.device, way.gateway) == (want["dev"], want.get("gateway", ""))
        assert (finding is None) == (want["verdict"] == "ok")
        if finding:
            assert finding.reason == want["reason"]
            assert all(word in finding.line for word in want["message_must_name"])
    way = route(ROUTE.text("input-link.json"))
    assert way.source == ROUTE.expect["link"]["source_address"]
    assert next(one.name for one in head.rdma if one.netdev == way.device) == ROUTE.expect["link"]["roce_device"]


def test_a_name_has_no_route_and_is_said_to_be_no_address() -> None:
    with pytest.raises(ValueError, match="no JSON"):
        route(ROUTE.text("input-name-stderr.txt"))
    with pytest.raises(ValueError, match="no route"):
        route("[]")
    finding = not_an_address(facts("head"), "spark-b")
    assert finding.reason == ROUTE.expect["name"]["reason"]
    assert all(word in finding.line for word in ROUTE.expect["name"]["message_must_name"])


def test_a_healthy_pair_has_two_rails_and_one_index_for_all() -> None:
    links = judged()
    assert links.findings == ()
    assert links.master == "192.0.2.1"
    local = links.local("worker")
    assert (local.rdma_devices, local.gid_index, local.socket_ifname) == (("rocep1s0f1", "roceP2p1s0f1"), 3, "enp1s0f1np1")


def test_a_lan_address_or_a_name_as_worker_still_finds_the_link() -> None:
    head, peer = pair()
    for address in ("203.0.113.2", ""):
        links = judge(head, [Peer(peer.facts, address)], Wish(), {})
        assert links.findings == ()
        assert [rail.ends[1].address for rail in links.rails] == ["192.0.2.2", "198.51.100.2"]


def test_a_moved_index_is_noted_and_the_new_one_used() -> None:
    head, peer = pair(indexes=(4, 4))
    links = judge(head, [peer], Wish(), {"worker": {"rocep1s0f1": 3, "roceP2p1s0f1": 4}, "head": {"rocep1s0f1": 3}})
    assert reasons(links) == [("gid_index_moved", Level.NOTE, Action.USE_NEW)]
    assert "from 3 to 4" in links.findings[0].found
    assert links.local("worker").gid_index == 4


@pytest.mark.parametrize(
    ("more", "want"),
    [
        ({"down": ("enP2p1s0f1np1",)}, ("rail_down", Level.WARNING, Action.GO_ON)),
        ({"down": ("enp1s0f1np1",)}, ("link_down", Level.ERROR, Action.REFUSE)),
        ({"states": ("4: ACTIVE", "1: DOWN")}, ("rail_down", Level.WARNING, Action.GO_ON)),
        ({"indexes": (-1, 3)}, ("no_v2_gid", Level.ERROR, Action.REFUSE)),
        ({"mtus": (1500, 9000)}, ("mtu_differs", Level.ERROR, Action.REFUSE)),
    ],
)
def test_each_trouble_of_a_rail_gives_its_finding_alone(more: dict[str, object], want: tuple[str, Level, Action]) -> None:
    assert reasons(judged(**more)) == [want]


def test_a_rail_without_its_gid_is_left_out_under_auto() -> None:
    links = judged(Wish(rails="auto"), indexes=(3, -1))
    assert reasons(links) == [("no_v2_gid", Level.WARNING, Action.DROP_RAIL)]
    assert links.local("head").rdma_devices == ("rocep1s0f1",)


@pytest.mark.parametrize(("mtu", "count"), [(4096, 0), (1024, 2)])
def test_a_low_roce_mtu_is_a_warning(mtu: int, count: int) -> None:
    links = judged(ibv=devinfo(mtu))
    assert reasons(links) == [("roce_mtu_low", Level.WARNING, Action.GO_ON)] * count


def test_a_twin_without_an_address_is_missed() -> None:
    head, peer = pair()
    rows = [row | {"addr_info": []} if row["ifname"] == "enP2p1s0f1np1" else row for row in json.loads(addr(1))]
    bare = facts("head", ip_addr=json.dumps(rows), infiniband=infiniband(1, (3, -1)))
    links = judge(bare, [peer], Wish(), {})
    assert {one[0] for one in reasons(links)} == {"rail_down"}
    assert len(links.rails) == 1
    assert judge(bare, [peer], Wish(rails=1), {}).findings == ()
    assert head.netdevs


def test_a_target_that_needs_rdma_refuses_plain_ports() -> None:
    head, worker = facts("head", ip_addr=addr(1)), facts("worker", ip_addr=addr(2))
    peer = Peer(worker, "192.0.2.2", given=True)
    assert [one.reason for one in judge(head, [peer], Wish(rdma=True), {}).findings] == ["no_rdma_device"]
    plain = judge(head, [peer], Wish(), {})
    assert plain.findings == ()
    assert plain.local("head").environment() == {"NCCL_SOCKET_IFNAME": "enp1s0f1np1"}


def test_two_nodes_without_a_common_network_are_told_what_each_has() -> None:
    peer = Peer(facts("worker", ip_addr=addr(2).replace("192.0.2", "192.0.9").replace("198.51.100", "198.51.101")), "")
    head = facts("head", ip_addr=addr(1).replace("203.0.113", "203.0.114"))
    (finding,) = judge(head, [peer], Wish(), {}).findings
    assert (finding.reason, finding.action) == ("no_rail", Action.REFUSE)
    assert "192.0.2.1" in finding.found
    assert "192.0.9.2" in finding.found


def test_a_path_that_swallows_full_packets_is_refused_or_left_out() -> None:
    links = judged()
    probed = [Probed(0, "worker", 8972, "ok"), Probed(1, "worker", 8972, "3 lost")]
    assert reasons(probe_findings(links, probed, Wish())) == [("path_not_full_size", Level.ERROR, Action.REFUSE)]
    auto = probe_findings(links, probed, Wish(rails="auto"))
    assert reasons(auto) == [("path_not_full_size", Level.WARNING, Action.DROP_RAIL)]
    assert [rail.number for rail in auto.rails] == [0]


@pytest.mark.parametrize(("mtu", "fits"), [(9000, 4096), (4200, 4096), (1500, 1024), (2200, 2048), (576, 512)])
def test_the_roce_mtu_that_a_link_carries(mtu: int, fits: int) -> None:
    assert fitting_mtu(mtu) == fits


@pytest.mark.parametrize(
    ("addresses", "want"),
    [
        (["192.0.2.1"], "192.0.2.1/32"),
        (["192.0.2.1", "192.0.2.2"], "192.0.2.0/30"),
        (["192.0.2.1", "198.51.100.1"], "192.0.0.0/5"),
        ([], ""),
    ],
)
def test_the_range_is_the_smallest_that_holds_all(addresses: list[str], want: str) -> None:
    assert covering(addresses) == want


def read_here(sys: Path) -> NodeFacts:
    """What the one script reads of this machine, with RDMA devices out of a tree of files."""
    done = subprocess.run(command(Query("/nowhere", sys_root=str(sys))), capture_output=True, text=True, check=True)
    return read("head", sections(done.stdout))


def test_a_sysfs_tree_is_read_by_the_script(tmp_path: Path) -> None:
    port = tmp_path / "class/infiniband/rocep1s0f1/ports/1"
    (port / "gids").mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n")
    (port / "gids/3").write_text(gid("192.0.2.1") + "\n")
    for name, content in (("types", "RoCE v2\n"), ("ndevs", "enp1s0f1np1\n")):
        (port / "gid_attrs" / name).mkdir(parents=True)
        (port / "gid_attrs" / name / "3").write_text(content)
    (device,) = read_here(tmp_path).rdma
    found = device.gid_of("192.0.2.1")
    assert device.active
    assert found is not None
    assert (found.index, found.netdev) == (3, "enp1s0f1np1")
    bare = read_here(tmp_path / "nowhere")
    assert bare.rdma == ()
    assert bare.memory is not None


def test_virtual_and_automatic_addresses_are_no_rails() -> None:
    devices: dict[str, Netdev] = {one.name: one for one in netdevs(LOST.text("input-addr.json"))}
    assert devices["enP2p1s0f0np0"].networks() == ()
    assert [n for n in ("docker0", "enP7s7") if Netdev(n, 1500, True, ()).physical] == ["enP7s7"]
