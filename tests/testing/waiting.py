"""Waiting for what happens in its own time, and ports and processes that are waited for."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

from tests.testbed.processes import gone

PATIENCE_S = 60.0


def until(what: str, holds: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """The first true value of ``holds``; fails naming ``what`` after the patience."""
    deadline = time.monotonic() + patience_s
    while not (found := holds()):
        assert time.monotonic() < deadline, f"{what} did not come within {patience_s:g} s"
        time.sleep(0.02)
    return found


def exists(pid: int) -> bool:
    """Whether a process runs that is no zombie."""
    return not gone(pid)


def free_port() -> int:
    """A port that nobody listens on now."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """The same for several; held together, so that they differ."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports
