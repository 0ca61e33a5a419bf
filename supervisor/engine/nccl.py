"""NCCL's network failures out of rank logs: which rail, which device, and what to look at.

The first failure of a log is the cause; what follows is its echo. Status 12 of a completion is libibverbs'
``IBV_WC_RETRY_EXC_ERR`` (no answer from the peer) and has nothing to do with error number 12, out of memory.
Formats: NCCL's ``misc/ibvwrap.cc`` and ``transport/net_ib.cc``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

RETRY_EXCEEDED = 12  # IBV_WC_RETRY_EXC_ERR
RNR_RETRY_EXCEEDED = 13  # IBV_WC_RNR_RETRY_EXC_ERR
FLUSHED = 5  # IBV_WC_WR_FLUSH_ERR: the queue pair failed before, for another reason

_HEAD = re.compile(r"^(?P<node>[^\s:]+):\d+:\d+ \[[^\]]*\] (?P<place>\S+) NCCL WARN (?P<message>.*)$")
_REGISTER = re.compile(r"Call to (?P<call>ibv_reg_\w+) failed with error (?P<error>.+)$")
_MODIFY = re.compile(
    r"Call to ibv_modify_qp failed with (?P<errno>\d+) (?P<error>[^,]+), on dev (?P<device>[^:,\s]+)(?::\d+)?,"
    r".*local GID index (?P<index>\d+), local GID (?P<local>[0-9a-fA-F:.]+), remote GID (?P<remote>[0-9a-fA-F:.]+)"
)
_COMPLETION = re.compile(
    r"Got completion from peer (?P<peer>\S+) with status=(?P<status>\d+) .*vendor err (?P<vendor>\d+)"
    # the format string has no space in front of the remote address
    r"(?:.*localGid (?P<local>[0-9a-fA-F:.]+))?(?: remoteGids?(?P<remote>[0-9a-fA-F:.]+))?(?: hca (?P<device>\S+))?"
)


@dataclass(frozen=True, slots=True)
class NcclFailure:
    """One failure. ``kind`` is one of the classes below; fields that a message does not carry are empty or None."""

    kind: str
    node: str
    message: str
    device: str = ""
    gid_index: int | None = None
    local_gid: str = ""
    remote_gid: str = ""
    status: int | None = None
    vendor_error: int | None = None
    look_at: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = f"{self.node}, {self.device}" if self.device else self.node
        return f"NCCL on {where}: {self.kind.replace('_', ' ')}: look at {', '.join(self.look_at)}"


def nccl_failure(line: str) -> NcclFailure | None:
    """The failure that one line reports, if it reports one."""
    head = _HEAD.match(line)
    if head is None:
        return None
    node, message = head["node"], head["message"]
    for parse in (_registration, _queue_pair, _completion):
        found = parse(node, message)
        if found is not None:
            return found
    return None


def cause(lines: Iterable[str]) -> NcclFailure | None:
    """The first failure of a log that is no echo of an earlier one."""
    found = [failure for failure in map(nccl_failure, lines) if failure]
    return next((f for f in found if f.kind != "echo"), found[0] if found else None)


def _registration(node: str, message: str) -> NcclFailure | None:
    match = _REGISTER.search(message)
    if match is None:
        return None
    if "Cannot allocate memory" in match["error"]:
        look_at = ("CmaFree against CmaTotal", "memlock limit of the container", "MemAvailable")
        return NcclFailure("rdma_memory_registration", node, message, look_at=look_at)
    return NcclFailure("rdma_registration_refused", node, message, look_at=("memlock limit of the container", "device files"))


def _queue_pair(node: str, message: str) -> NcclFailure | None:
    match = _MODIFY.search(message)
    if match is None:
        return None
    local = match["local"]
    look_at: tuple[str, ...]
    if set(local) <= {":", "0"}:  # an empty slot of the GID table
        kind, look_at = "wrong_gid_index", ("GID index of that device",)
    else:
        kind, look_at = "peer_not_on_this_rail", ("which devices are paired", "cable")
    return NcclFailure(kind, node, message, match["device"], int(match["index"]), local, match["remote"], look_at=look_at)


def _completion(node: str, message: str) -> NcclFailure | None:
    match = _COMPLETION.search(message)
    if match is None:
        return None
    status = int(match["status"])
    look_at: tuple[str, ...]
    kind, look_at = "rdma_completion_error", ("addresses of that rail", "log of the other rank")
    if status in {RETRY_EXCEEDED, RNR_RETRY_EXCEEDED}:
        kind, look_at = "rail_does_not_reach_peer", ("MTU of both ends of that rail", "addresses of that rail")
    elif status == FLUSHED:
        kind, look_at = "echo", ("the failure before it",)
    return NcclFailure(
        kind,
        node,
        message,
        match["device"] or "",
        local_gid=match["local"] or "",
        remote_gid=match["remote"] or "",
        status=status,
        vendor_error=int(match["vendor"]),
        look_at=look_at,
    )
