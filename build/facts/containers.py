"""The ``State`` of ``docker inspect``: how a container ended, and what that proves about memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NEVER = "0001-01-01T00:00:00Z"  # Docker's zero time: it has not happened


@dataclass(frozen=True, slots=True)
class ContainerEnd:
    """How a container stands. ``kind`` is one of running, ended, stopped, killed, crashed, engine_error, bad_arguments,
    dead, never_started; ``out_of_memory`` is yes, no or unknown; ``finished_at`` is None where it has not finished.

    ``restart``: whether starting the same again could help.
    """

    kind: str
    exit_code: int | None
    signal: int
    out_of_memory: str
    restart: bool
    finished_at: str | None
    message: str = ""


def container_end(state: Mapping[str, Any]) -> ContainerEnd:
    """Classify one ``State`` object.

    Exit status 137 without the OOM flag neither proves nor rules out memory: the flag is not set for CUDA memory, nor for
    a child that the kernel killed. A running container can carry the flag when a process inside was killed.
    """
    code = int(state.get("ExitCode") or 0)
    status = str(state.get("Status", ""))
    flag = bool(state.get("OOMKilled"))
    kind = _kind(state, status, code)
    signal = code - 128 if kind in {"killed", "crashed", "stopped", "dead"} and code > 128 else 0
    finished = str(state.get("FinishedAt", NEVER))
    return ContainerEnd(
        kind,
        None if kind == "running" else code,
        signal,
        "yes" if flag else _memory_without_flag(kind, signal),
        kind not in {"bad_arguments", "never_started", "running"},
        None if finished.startswith("0001-") or kind == "running" else finished,
        str(state.get("Error") or ""),
    )


def _kind(state: Mapping[str, Any], status: str, code: int) -> str:
    if status == "dead" or state.get("Dead"):
        return "dead"
    if status == "created":
        return "never_started"
    if state.get("Running") or status in {"running", "paused", "restarting"}:
        return "running"
    return exit_kind(code)


def exit_kind(code: int) -> str:
    """The class of an exit status, 128 + signal where a signal ended it. 126 and 127 are an entry point that cannot run."""
    named = {
        0: "ended",
        2: "bad_arguments",
        126: "never_started",
        127: "never_started",
        137: "killed",
        143: "stopped",
        130: "stopped",
    }
    return named.get(code) or ("crashed" if 128 < code < 128 + 65 else "engine_error")


def _memory_without_flag(kind: str, signal: int) -> str:
    return "unknown" if signal == 9 or kind == "engine_error" else "no"
