"""Who hears whom between guards, and a guard's container as it is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from build.image.docker_api import Answer
from build.nodes.hosts import HEAD, Host
from supervisor.gang import identity
from supervisor.guard.choice import hosts_for
from supervisor.guard.containers import create_body, left_behind
from supervisor.guard.leases import MOST_PATHS, lease
from supervisor.guard.spec import GuardSpec, Lease, Limits

LIMITS = Limits(1, 2, 0.5, 0.1, "/proc", 600, 30)
PATHS = {"worker": ("192.0.2.2", "203.0.113.2"), "worker1": ("192.0.2.2",), "worker2": ("192.0.2.3",)}


def paths(host: Host) -> tuple[str, ...]:
    return PATHS[host.name]


def test_every_rank_on_a_worker_hears_rank_0_on_every_path_at_a_port_of_its_own() -> None:
    hosts = (Host(HEAD, (0, 1)), Host("worker", (2, 3)))
    parts = {rank: lease(rank, HEAD if rank < 2 else "worker", hosts, paths, 7000) for rank in range(4)}
    assert parts[1] == Lease()
    assert parts[2].listens == ("192.0.2.2:7002", "203.0.113.2:7002")
    assert {to for to, _ in parts[0].sends} == {*parts[2].listens, *parts[3].listens}
    assert not any(parts[rank].sends for rank in (1, 2, 3))


def test_without_workers_nobody_hears_anybody() -> None:
    assert not lease(0, HEAD, (Host(HEAD, (0, 1)),), paths, 7000)


def test_where_there_are_more_paths_than_a_guard_takes_every_rank_keeps_its_first() -> None:
    hosts = (Host(HEAD, (0,)), *(Host(f"w{at}", (at,)) for at in range(1, 6)))
    sends = lease(0, HEAD, hosts, lambda host: (f"192.0.2.{host.ranks[0]}", f"203.0.113.{host.ranks[0]}"), 7000).sends
    assert len(sends) == MOST_PATHS
    assert {to for to, _ in sends} >= {f"192.0.2.{rank}:{7000 + rank}" for rank in range(1, 6)}


def test_a_guards_container_has_no_capability_no_secret_and_is_not_taken_for_a_rank() -> None:
    spec = GuardSpec("L", 1, "worker", 10, 20, LIMITS, lease=Lease(listens=("192.0.2.2:7001",)))
    body = create_body(spec, "sha256:0", "1000:1000", "/tmp/f", watched="/elsewhere/proc")  # a name only
    assert body["User"] == "1000:1000"
    assert "Env" not in body
    assert body["Labels"] == {"twinfold.guard": "1", "twinfold.launch": "L"}
    assert body["Cmd"][body["Cmd"].index("--secret-file") + 1] == "lease.secret"
    assert body["Cmd"][body["Cmd"].index("--proc") + 1] == "/watched"
    host = body["HostConfig"]
    assert (host["PidMode"], host["NetworkMode"], host["CapDrop"], host["ReadonlyRootfs"]) == ("host", "host", ["ALL"], True)
    assert [(one["Source"], one["ReadOnly"]) for one in host["Mounts"]] == [("/tmp/f", False), ("/elsewhere/proc", True)]


def listed(launch: str, rank: int, owner: str | None = None, state: str = "running") -> dict[str, object]:
    label = {"twinfold.rank": str(rank)} if owner is None else {"twinfold.guard": str(rank), "twinfold.guard.owner": owner}
    return {"State": state, "Labels": {"twinfold.launch": launch, **label}}


def test_only_guards_that_watch_nobody_are_left_behind_and_a_living_one_only_where_it_is_ours() -> None:
    guards = [
        listed("mine", 0, "me"),
        listed("mine-over", 0, "me"),
        listed("theirs", 1, "they"),
        listed("theirs-ending", 1, "they"),
        listed("theirs-over", 1, "they", "exited"),
    ]
    ranks = [listed("mine", 0), listed("mine-over", 0, state="exited"), listed("theirs", 1)]
    assert left_behind(guards, ranks, "me") == (("mine-over", 0), ("theirs-over", 1))


def test_a_guard_whose_state_folder_was_moved_is_still_ours_and_not_a_new_folders_in_its_place(tmp_path: Path) -> None:
    state_dir, moved = tmp_path / "state", tmp_path / "moved"
    guards = [listed("ours", 0, identity.own(state_dir).id)]
    state_dir.rename(moved)

    def left(folder: Path) -> tuple[tuple[str, int], ...]:
        def get(_path: str, params: dict[str, str]) -> Answer:
            return Answer(200, json.dumps(guards if "guard" in params["filters"] else []))

        one = SimpleNamespace(
            serve=SimpleNamespace(runner="docker"),
            links=SimpleNamespace(worker_proc_root="/proc"),
            memory=SimpleNamespace(proc_root=Path("/proc")),
            state_dir=folder,
        )
        fleet = SimpleNamespace(guard_posts={HEAD: SimpleNamespace(api=SimpleNamespace(get=get), place=None)})
        return hosts_for(cast("Any", one), cast("Any", fleet), lambda: cast("Any", None))[HEAD].launches()

    assert left(moved) == (("ours", 0),)
    assert left(state_dir) == ()
