from __future__ import annotations

import pytest

from supervisor.engine.log import LogReader
from supervisor.engine.nccl import NcclFailure, cause, nccl_failure
from tests.testing.cases import case

CASE = case("engine-nccl-errors")
NAMES = ("enomem", "gid", "rtr", "retry")


@pytest.mark.parametrize("name", NAMES)
def test_the_first_failure_is_named_with_its_rail(name: str) -> None:
    want = CASE.expect[name]
    found = cause(CASE.text(f"input-{name}.log").splitlines())
    assert found is not None
    assert (found.kind, found.node, found.device) == (want["class"], want["node"], want["device"])
    assert found.gid_index == want.get("gid_index", found.gid_index)
    assert found.local_gid == want.get("local_gid", found.local_gid)
    assert found.remote_gid == want.get("remote_gid", found.remote_gid)
    assert (found.status, found.vendor_error) == (want.get("status"), want.get("vendor_error"))
    assert list(found.look_at) == want["look_at"]


def test_no_answer_from_the_peer_is_not_out_of_memory() -> None:
    found = cause(CASE.text("input-retry.log").splitlines())
    assert found is not None
    assert found.kind == "rail_does_not_reach_peer"
    assert "memory" not in " ".join(found.look_at).lower()
    assert found.remote_gid == "::ffff:198.51.100.1"  # no space in front of it in the line


def test_the_echo_of_a_failure_is_never_the_cause() -> None:
    lines = CASE.text("input-retry.log").splitlines()
    assert [f.kind for line in lines if (f := nccl_failure(line))] == ["rail_does_not_reach_peer", "echo"]
    found = cause(reversed(lines))
    assert found is not None
    assert found.status == 12


def test_a_memory_failure_of_registration_does_not_blame_the_gpu() -> None:
    found = cause(CASE.text("input-enomem.log").splitlines())
    assert found is not None
    assert "GPU" not in " ".join(found.look_at)


@pytest.mark.parametrize("name", NAMES)
def test_the_log_reader_hands_the_same_failures_on(name: str) -> None:
    facts = LogReader().feed(CASE.raw(f"input-{name}.log"))
    assert facts
    assert all(isinstance(fact, NcclFailure) for fact in facts)


@pytest.mark.parametrize("line", ["", "NCCL WARN nothing known", "spark-a:1:2 [0] NCCL INFO NET/IB : Using [0]rocep1s0f1:1/RoCE"])
def test_other_lines_are_no_failures(line: str) -> None:
    assert nccl_failure(line) is None
