"""The control socket and the service's lock, with real sockets and locks."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from build.errors import GaveUp, Refused
from supervisor import control, service
from supervisor.gang import ports


def count(request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from ({"n": n} for n in range(int(request["to"])))
    yield {"exit": 0}


def fail(_request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    raise GaveUp("stuck")
    yield {}


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[Path]:
    deep = tmp_path / ("d" * 120) / "run"  # a socket's own path could not be this long
    deep.mkdir(parents=True)
    server = control.ControlServer(deep, {"count": count, "fail": fail})
    server.start()
    yield deep
    server.close()
    assert not (deep / control.NAME).exists()


def test_answers_come_in_order_and_end_with_an_exit_code(run_dir: Path) -> None:
    answers = control.ask(run_dir, {"do": "count", "to": 3})
    assert answers is not None
    assert list(answers) == [{"n": 0}, {"n": 1}, {"n": 2}, {"exit": 0}]


def test_an_error_travels_with_its_exit_code(run_dir: Path) -> None:
    assert list(control.ask(run_dir, {"do": "fail"}) or ()) == [{"exit": 5, "error": "stuck"}]
    (answer,) = control.ask(run_dir, {"do": "unheard of"}) or ()
    assert answer["exit"] == 2


def test_the_socket_is_for_its_owner_only(run_dir: Path) -> None:
    assert stat.S_IMODE((run_dir / control.NAME).stat().st_mode) == 0o600


def test_no_listener_is_none_and_an_old_socket_is_in_nobodys_way(tmp_path: Path) -> None:
    assert control.ask(tmp_path, {"do": "count"}) is None
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / control.NAME))
    assert control.ask(tmp_path, {"do": "count"}) is None
    server = control.ControlServer(tmp_path, {"count": count})
    server.start()
    assert list(control.ask(tmp_path, {"do": "count", "to": 0}) or ()) == [{"exit": 0}]
    server.close()


def test_one_supervisor_at_a_time_also_over_processes(tmp_path: Path) -> None:
    assert service.alive(tmp_path) is None
    with service.only_one(tmp_path):
        assert service.alive(tmp_path) == os.getpid()
        code = (
            "import sys; from pathlib import Path; from supervisor import service;"
            "from build.errors import Refused\n"
            "try:\n  service.only_one(Path(sys.argv[1])).__enter__()\nexcept Refused as e: print(e)"
        )
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60)
        assert f"(pid {os.getpid()})" in done.stdout
    assert service.alive(tmp_path) is None
    with service.only_one(tmp_path):
        pass


def test_the_lock_is_free_again_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(Refused), service.only_one(tmp_path):
        raise Refused("x")
    assert service.alive(tmp_path) is None


def test_systemd_is_told_where_it_asked(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "n"))
        service.notify({"NOTIFY_SOCKET": str(tmp_path / "n")}, "READY=1", "STATUS=serving")
        assert manager.recv(100) == b"READY=1\nSTATUS=serving"
    service.notify({"NOTIFY_SOCKET": str(tmp_path / "gone")}, "READY=1")
    service.notify({}, "READY=1")


def test_a_taken_port_has_an_owner_with_a_name() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert ports.taken("127.0.0.1", port)
        assert ports.taken("0.0.0.0", port)
        assert ports.owner(port).startswith(f"pid {os.getpid()} (")
    assert not ports.taken("127.0.0.1", port)
    assert ports.owner(port) == "an unknown process"


def test_connections_that_are_only_closing_do_not_take_a_port() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    client = socket.create_connection(("127.0.0.1", port))
    accepted, _ = server.accept()
    accepted.close()  # this end closes first and keeps the port in TIME_WAIT
    client.close()
    server.close()
    assert not ports.taken("127.0.0.1", port)
