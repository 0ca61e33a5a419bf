"""Where rank caches are packed, decided from the settings; and what keeps a node from packing for itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, cast

import pytest

from build.artefacts import rank_cache
from build.errors import BuildFailed, UsageError
from build.graph.elsewhere import Packers
from build.graph.jobs import Job
from build.nodes.node import Result
from build.nodes.workers import Workers
from build.replication.packing import FarPacker
from build.replication.replicas import Place, Replica
from build.settings import Places
from build.store.store import Store

TWO = Workers(worker="spark-b", worker_store="kept/store")


def packers(place: str, workers: Workers = TWO) -> Packers:
    def never(_host: object) -> FarPacker:
        raise AssertionError

    return Packers(Places(pack_rank_caches=place), workers, never)


@pytest.mark.parametrize(("place", "rank", "where"), [("head", 1, None), ("node", 0, None), ("node", 1, "worker")])
def test_a_rank_is_packed_on_its_worker_where_the_settings_say_so(place: str, rank: int, where: str | None) -> None:
    for artefact in rank_cache.artefacts(rank, 2, "packer", "checker"):
        host = packers(place).host(artefact)
        assert (host.name if host else None) == where


def test_the_record_says_on_which_node_and_in_which_store() -> None:
    packed, check = rank_cache.artefacts(1, 2, "packer", "checker")
    assert packers("node").outside(packed) == "node:spark-b kept/store"
    assert packers("node").outside(check) == ""


def test_four_ranks_on_two_hosts_are_shared_out_as_a_launch_does() -> None:
    found = [packers("node").host(rank_cache.artefacts(rank, 4, "p", "c")[0]) for rank in range(4)]
    assert [host.name if host else "head" for host in found] == ["head", "head", "worker", "worker"]


def test_one_rank_over_two_hosts_is_refused_and_no_worker_is_noted() -> None:
    packed, check = rank_cache.artefacts(0, 1, "packer", "checker")
    with pytest.raises(UsageError, match="1 ranks cannot be shared out over 2 hosts"):
        packers("node").host(packed)
    alone = packers("node", Workers())
    assert alone.host(packed) is None
    assert "`worker` names no host: rank0of1 is packed here" in alone.note(packed)
    assert alone.note(check) == packers("head", Workers()).note(packed) == packers("node").note(packed) == ""


class Foreign:
    """A worker of another machine type: nothing is to be sent there."""

    name, store = "worker", PurePosixPath("store")

    def __init__(self) -> None:
        self.node, self.host, self.asked = self, self, [""]

    def place(self) -> Place:
        return Place(Path("/store"), "0:0", "linux/arm64")

    def run(self, argv: Sequence[str], _deadline_s: float, **_more: Any) -> Result:
        self.asked.append(" ".join(argv))
        return Result(b"", b"", 0, 0.0)


def test_a_worker_of_another_machine_type_is_named_before_anything_is_sent(tmp_path: Path) -> None:
    (tmp_path / "tool").write_bytes(b"tool")
    worker = Foreign()
    packer = FarPacker(cast("Replica", worker), Store(tmp_path / "store"), tmp_path / "tool", "linux/amd64", print)
    packed, _ = rank_cache.artefacts(1, 2, "packer", "checker")
    job = Job(packed, "1" * 32 + "-rank1of2", {}, {}, tmp_path / "out", tmp_path / "work", cast("Any", None), fresh=True)
    with pytest.raises(BuildFailed, match=r"worker is linux/arm64, and the packer was built for linux/amd64: set pack_rank"):
        packer.pack(job, 1, print)
    assert not any("mkdir" in one for one in worker.asked)
