"""The supervisor as a service: ends, refusals, the control socket, saved logs."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from build.store import generations
from tests.testing.demo import demo_state
from tests.testing.supervised import Supervised
from tests.testing.waiting import exists, until

pytestmark = pytest.mark.timeout(1500)


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Supervised]:
    gang = Supervised(demo_state(tmp_path), tmp_path)
    try:
        yield gang
    finally:
        gang.close()


def test_the_ready_line_is_all_of_stdout(shared: Supervised) -> None:
    assert shared.out == f"READY twinfold-demo http://127.0.0.1:{shared.port}/v1\n"


def test_a_second_run_is_refused_and_names_the_first(shared: Supervised) -> None:
    done = shared.command("run")
    assert done.returncode == 3
    assert done.stderr == (
        f"error: a supervisor already serves from {shared.state} (pid {shared.running.pid}): `supervisor status` shows it,"
        " `supervisor stop` ends it\n"
    )


def test_status_tells_people_and_programs_the_same(shared: Supervised) -> None:
    text = shared.command("status").stdout
    assert text.startswith("serving for ")
    assert f"twinfold-demo at http://127.0.0.1:{shared.port}/v1" in text
    told = json.loads(shared.command("status", "--json").stdout)
    assert (told["state"], told["pid"], [rank["up"] for rank in told["ranks"]]) == ("serving", shared.running.pid, [True, True])


def test_logs_of_both_ranks_and_of_one(shared: Supervised) -> None:
    both = shared.command("logs").stdout.splitlines()
    assert any(line.startswith("rank 0 | [tensorfold] serving twinfold-demo") for line in both)
    assert any(line.startswith('rank 1 | {"rank": 1, "loaded_s"') for line in both)
    assert all(line.startswith("rank 1 | ") for line in shared.command("logs", "--rank", "1").stdout.splitlines())


def test_the_socket_is_for_this_user_only_and_refuses_nonsense(shared: Supervised) -> None:
    path = shared.state / "run" / "control.sock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with socket.socket(socket.AF_UNIX) as client:
        folder = str(path.parent)
        assert len(folder) < 90
        client.connect(str(path))
        client.sendall(b"nonsense\n")
        assert json.loads(client.makefile().readlines()[-1])["exit"] == 2


def test_a_running_launch_holds_its_bundle(shared: Supervised) -> None:
    (root,) = (shared.state / "run" / "roots").iterdir()
    assert json.loads(root.read_text())["bundle"] == shared.status()["bundle"]


def test_smoke_and_validate_speak_to_the_gang_by_default(shared: Supervised) -> None:
    done = shared.command("smoke")
    assert (done.returncode, done.stdout[:3]) == (0, "yes")
    done = shared.command("smoke", "--url", f"http://127.0.0.1:{shared.master_port + 1}", "--json")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")


@pytest.mark.parametrize(
    ("args", "code", "line"),
    [
        (("--set", "prot=1"), 2, "error: --set prot: unknown setting: did you mean port?"),
        (("--set", "parallel=0"), 2, 'error: parallel = "0" (command line): wanted a whole number from 1 to 64'),
        (("--target", "none"), 2, "error: target none has no generation yet"),
    ],
)
def test_wrong_usage_is_one_line(gang: Supervised, args: tuple[str, ...], code: int, line: str) -> None:
    done = gang.command("run", *args)
    assert done.returncode == code
    assert done.stderr.startswith(line)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("which", ["port", "metrics_port", "master_port"])
def test_a_taken_port_names_its_owner(gang: Supervised, which: str) -> None:
    port = getattr(gang, which)
    with socket.create_server(("127.0.0.1", port)):
        assert gang.start().ended() == 3
    last = gang.err.splitlines()[-1]
    assert last.startswith("error: ")
    assert str(port) in last
    assert "pid " in last
    assert gang.pids() == {}


def test_too_little_memory_is_refused_before_anything_starts(gang: Supervised, tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "meminfo").write_text("MemTotal: 8000000 kB\nMemFree: 1000000 kB\nMemAvailable: 1000000 kB\n")
    gang.env |= {"TWINFOLD_PROC_ROOT": str(proc), "TWINFOLD_GATE_WAIT_S": "0.3", "TWINFOLD_MIN_AVAIL_GIB": "4"}
    assert gang.start().ended() == 3
    last = gang.err.splitlines()[-1]
    assert last.startswith("error: ")
    assert "GiB" in last
    assert "min_avail_gib" in last
    assert gang.pids() == {}


def test_memory_under_the_hard_floor_kills_and_under_the_floor_stops_in_order(gang: Supervised, tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    proc.mkdir()
    meminfo = proc / "meminfo"

    def has(kib: int) -> None:
        temp = proc / "next"
        temp.write_text(f"MemTotal: 24000000 kB\nMemFree: {kib} kB\nMemAvailable: {kib} kB\n")
        temp.rename(meminfo)

    has(20_000_000)
    gang.env |= {"TWINFOLD_PROC_ROOT": str(proc), "TWINFOLD_MIN_AVAIL_GIB": "4", "TWINFOLD_FLOOR_GRACE_S": "0.5"}
    gang.start().wait_ready()
    has(3_500_000)
    until("an eviction", lambda: gang.status().get("state") != "serving")
    has(20_000_000)
    gang.wait_ready(times=2)
    has(1_000_000)
    until("an eviction", lambda: gang.status().get("state") != "serving")
    has(20_000_000)
    gang.wait_ready(times=3)
    counts = {one["reason"]: one["count"] for one in gang.wait_state("serving", launch=3)["restarts"]}
    assert counts == {"memory soft floor": 1, "memory hard floor": 1}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_in_order_and_leaves_nothing(gang: Supervised, number: int) -> None:
    gang.start().wait_ready()
    pids = gang.pids()
    gang.signal(number)
    assert gang.ended() == 0
    assert not any(exists(pid) for pid in pids.values())
    assert gang.pids() == {}
    left = {path.name for path in (gang.state / "run").iterdir()}
    assert left <= {"supervisor.lock", "ranks", "roots", "build.lock"}
    names = gang.logs()
    assert [name.rpartition("-")[2] for name in names] == ["end.json", "rank0.log.gz", "rank1.log.gz"]
    with gzip.open(gang.state / "logs" / names[1], "rt") as log:
        assert "[tensorfold] serving twinfold-demo" in log.read()
    end = json.loads((gang.state / "logs" / names[0]).read_text())
    assert (end["reason"], [rank["code"] for rank in end["ranks"]]) == ("stop", [0, 0])


def test_a_second_sigint_does_not_wait_for_a_rank_that_does_not_end(gang: Supervised) -> None:
    gang.env["TWINFOLD_STOP_TIMEOUT"] = "3600"
    gang.start().wait_ready()
    pids = gang.pids()
    import os

    os.kill(pids[0], signal.SIGSTOP)
    gang.signal(signal.SIGINT)
    gang.wait_state("draining")
    gang.signal(signal.SIGINT)
    assert gang.ended() == 0
    assert not any(exists(pid) for pid in pids.values())


def test_stop_comes_back_when_all_has_ended(gang: Supervised) -> None:
    gang.start().wait_ready()
    pids = gang.pids()
    done = gang.command("stop")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "stopped"
    assert not any(exists(pid) for pid in pids.values())
    assert gang.ended() == 0
    assert gang.command("status").stdout == "stopped\n"


def test_a_state_folder_that_takes_no_files_fails_a_launch_and_not_the_supervisor(gang: Supervised) -> None:
    """As on a full disk: no root can be held there. It goes on as soon as there is room again."""
    gang.start().wait_ready()
    roots = gang.state / "run" / "roots"
    shutil.rmtree(roots)
    roots.write_text("in the way")
    os.kill(gang.pids()[1], signal.SIGKILL)
    until("a failed start is told", lambda: "start failed" in gang.err)
    roots.unlink()
    gang.wait_ready(2)


def test_a_restart_carries_the_callers_settings_and_shows_them(gang: Supervised) -> None:
    gang.start().wait_ready()
    pids = gang.pids()
    done = gang.command("restart", "--set", "max_tokens=100", TWINFOLD_PARALLEL="2")
    assert done.returncode == 0, done.stderr
    assert "parallel: 4 -> 2 (environment TWINFOLD_PARALLEL)" in done.stdout
    assert "max_tokens: 32768 -> 100 (command line)" in done.stdout
    assert set(gang.pids().values()).isdisjoint(pids.values())
    assert "4 streams at once" not in gang.command("logs").stdout
    assert "2 streams at once" in gang.command("logs").stdout
    assert gang.status()["restarts"] == [{"reason": "asked", "count": 1}]
    refused = gang.command("restart", "--set", "metrics_port=1")
    assert refused.returncode == 3
    assert gang.status()["state"] == "serving"


def test_only_the_newest_launches_logs_are_kept(gang: Supervised) -> None:
    gang.env["TWINFOLD_LOG_KEEP"] = "1"
    gang.start().wait_ready()
    assert gang.command("restart").returncode == 0
    assert gang.command("restart").returncode == 0
    assert len(gang.logs()) == 3


def test_a_missing_store_path_is_named_before_anything_starts(tmp_path: Path) -> None:
    state = demo_state(tmp_path, own_store=True)
    gang = Supervised(state, tmp_path)
    try:
        victim = generations.current(state, "demo").bundle.kit.under(state / "store")
        victim.chmod(0o755)
        shutil.rmtree(victim)
        assert gang.start().ended() == 6
        assert str(victim) in gang.err
    finally:
        gang.close()
