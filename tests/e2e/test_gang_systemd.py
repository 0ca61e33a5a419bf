"""The supervisor as systemd starts it: what it tells the manager, and what it writes to the journal."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testing.demo import demo_state
from tests.testing.supervised import Supervised
from tests.testing.waiting import until

pytestmark = pytest.mark.timeout(1500)


class Manager:
    """The receiving end of a notify socket."""

    def __init__(self, path: Path) -> None:
        self.path, self.heard = path, [""]
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.setblocking(False)

    def told(self, line: str) -> bool:
        """Whether the line has come by now."""
        while True:
            try:
                self.heard += self._socket.recv(65536).decode().splitlines()
            except BlockingIOError:
                return line in self.heard

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    one = Manager(tmp_path / "notify")
    yield one
    one.close()


@pytest.fixture
def gang(tmp_path: Path, manager: Manager) -> Iterator[Supervised]:
    one = Supervised(demo_state(tmp_path), tmp_path)
    one.env |= {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "3000000"}
    try:
        yield one
    finally:
        one.close()


def test_a_service_is_ready_when_it_serves_pings_while_it_lives_and_says_that_it_stops(
    gang: Supervised, manager: Manager
) -> None:
    gang.start()
    until("a ping", lambda: manager.told("WATCHDOG=1"))
    until("READY", lambda: manager.told("READY=1"))
    assert manager.told("STATUS=serving, launch 1")
    assert manager.heard.index("STATUS=gating, launch 1") < manager.heard.index("STATUS=serving, launch 1")
    gang.running.send_signal(signal.SIGTERM)
    until("the end", lambda: gang.running.poll() is not None)
    assert gang.running.returncode == 0
    assert manager.told("STOPPING=1")
    assert json.loads(gang.out)["url"].endswith(f":{gang.port}/v1")
    messages = [json.loads(line) for line in gang.err.splitlines()]
    assert {"info"} <= {one["level"] for one in messages}
    assert any("launch 1" in one["message"] for one in messages)
