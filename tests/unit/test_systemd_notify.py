"""sd_notify's protocol against a socket of the test's own, and the watchdog's pings."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.systemd.notify import Watchdog, notify, under_systemd, watchdog_s


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "n"))
        listening.settimeout(10.0)
        yield listening


def environ(manager: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": manager.getsockname(), **more}


def test_systemd_is_told_where_it_asked(manager: socket.socket) -> None:
    notify(environ(manager), "READY=1", "STATUS=serving")
    assert manager.recv(100) == b"READY=1\nSTATUS=serving"


@pytest.mark.parametrize("address", ["", "/nowhere/at/all", "@twinfold-nobody-listens", "relative"])
def test_nobody_there_is_no_error(address: str) -> None:
    notify({"NOTIFY_SOCKET": address}, "READY=1")
    notify({}, "READY=1")


def test_pings_come_while_the_loop_turns_and_end_when_it_stands_still(manager: socket.socket) -> None:
    stuck_since = 0.0
    watchdog = Watchdog(environ(manager, WATCHDOG_USEC="300000"), lambda: stuck_since or time.monotonic())
    watchdog.start()
    assert manager.recv(100) == b"WATCHDOG=1"
    assert manager.recv(100) == b"WATCHDOG=1"
    stuck_since = time.monotonic() - 1.0
    time.sleep(0.2)  # a ping that was on its way arrives
    manager.setblocking(False)
    while heard(manager):
        pass
    time.sleep(0.5)
    assert not heard(manager)
    watchdog.stop()


def heard(manager: socket.socket) -> bool:
    try:
        return bool(manager.recv(100))
    except BlockingIOError:
        return False


def test_without_a_watchdog_nothing_is_pinged(manager: socket.socket) -> None:
    watchdog = Watchdog(environ(manager), time.monotonic)
    watchdog.start()
    watchdog.stop()
    manager.settimeout(0.1)
    with pytest.raises(TimeoutError):
        manager.recv(100)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
    ],
)
def test_the_limit_is_what_systemd_set_for_this_process(given: dict[str, str], seconds: float | None) -> None:
    assert watchdog_s(given, os.getpid()) == seconds


def test_a_process_knows_that_systemd_reads_its_lines() -> None:
    assert under_systemd({"JOURNAL_STREAM": "8:1"})
    assert not under_systemd({"TERM": "xterm"})
