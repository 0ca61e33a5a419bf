"""The control socket and the service's lock, with real sockets and locks."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from build.errors import GaveUp, Refused, TwinfoldError
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


GARBAGE = [b"", b"\n", b"{}", b"[]", b"5", b'"x"', b"\xff\x00", b'{"do": []}', b'{"do": {}}', b"[" * 100_000]
WRONG_FIELDS = [b'{"do": "count", "to": "x"}', b'{"do": "count", "to": [1]}']


@pytest.mark.parametrize("line", [*GARBAGE, *WRONG_FIELDS], ids=lambda line: repr(line[:24]))
def test_garbage_gets_an_answer_and_leaves_the_server_sound(run_dir: Path, line: bytes) -> None:
    with connected(run_dir) as client:
        client.sendall(line + b"\n")
        client.shutdown(socket.SHUT_WR)
        said = client.makefile("rb").read().splitlines()
    assert json.loads(said[-1])["exit"] == 2
    assert list(control.ask(run_dir, {"do": "count", "to": 1}) or ()) == [{"n": 0}, {"exit": 0}]


def test_a_reader_may_rest_for_as_long_as_it_likes(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "CONNECT_S", 0.2)
    many = 200_000  # megabytes of answers: far more than the socket holds
    with connected(run_dir) as client:
        client.sendall(json.dumps({"do": "count", "to": many}).encode() + b"\n")
        time.sleep(0.6)  # three times as long as the request itself may take
        assert len(client.makefile("rb").read().splitlines()) == many + 2


def test_a_supervisor_that_does_not_answer_is_an_error_and_no_wait_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "CONNECT_S", 0.2)
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / control.NAME))
        deaf.listen(4)
        with pytest.raises(TwinfoldError, match="does not answer"):
            control.ask(tmp_path, {"do": "status"})


def connected(run_dir: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    fd = os.open(run_dir, os.O_PATH)
    try:
        client.connect(f"/proc/self/fd/{fd}/{control.NAME}")
    finally:
        os.close(fd)
    return client


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
