"""What only processes can do wrong: reused pids, supervisors that die at any moment, floods of output, children of children."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.engine.contract import RankCommand
from supervisor.runners import procid
from supervisor.runners.process import ProcessRunner
from supervisor.runners.protocol import MARKER, RankExit, RankHandle, RankSpec, StartRefused
from tests.testing.waiting import exists, until

PATIENCE_S = 30.0
FOREVER = "while :; do sleep 0.05; done"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def runner(run_dir: Path) -> Iterator[ProcessRunner]:
    runner = ProcessRunner(run_dir)
    yield runner
    for left in runner.leftovers():
        runner.kill(left.handle)
        runner.wait([left.handle], PATIENCE_S)


def spec(script: str, rank: int = 0, **env: str) -> RankSpec:
    command = RankCommand(rank, ("/bin/sh", "-c", script), tuple(sorted(env.items())))
    return RankSpec("20260101T000000Z-aa", rank, 2, "head", command, "hash", "entry", 4096)


def ended(runner: ProcessRunner, handle: RankHandle) -> RankExit:
    (found,) = runner.wait([handle], PATIENCE_S)
    return found


def output(runner: ProcessRunner, handle: RankHandle) -> str:
    return b"".join(runner.whole_log(handle)).decode()


def test_an_exit_is_seen_within_50_ms(runner: ProcessRunner) -> None:
    handle = runner.start(spec(FOREVER))
    began = time.monotonic()
    os.kill(int(handle.key), signal.SIGKILL)
    assert ended(runner, handle).signal == signal.SIGKILL
    assert time.monotonic() - began < 0.5  # ten times the goal


def test_a_rank_has_a_session_of_its_own_no_input_and_goes_first_when_memory_is_short(runner: ProcessRunner) -> None:
    handle = runner.start(spec("readlink /proc/self/fd/0; " + FOREVER))
    pid = int(handle.key)
    assert os.getsid(pid) == pid
    until("its input", lambda: output(runner, handle) == "/dev/null\n")
    until("its score", lambda: Path(f"/proc/{pid}/oom_score_adj").read_text() == "1000\n")


def test_a_rank_gets_its_own_variables_and_no_secret_of_ours(runner: ProcessRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    handle = runner.start(spec("env", TF_X="1"))
    ended(runner, handle)
    seen = output(runner, handle).splitlines()
    assert "TF_X=1" in seen
    assert f"{MARKER}=20260101T000000Z-aa/0" in seen
    assert not any("secret" in line for line in seen)


def test_no_descriptor_of_ours_is_inherited(runner: ProcessRunner, tmp_path: Path) -> None:
    with (tmp_path / "held").open("w"):
        handle = runner.start(spec("ls -l /proc/$$/fd"))
        ended(runner, handle)
    assert "held" not in output(runner, handle)


def test_what_a_rank_started_ends_with_it(runner: ProcessRunner) -> None:
    handle = runner.start(spec(f"({FOREVER}) & echo $!; wait"))
    child = int(until("the child's pid", lambda: output(runner, handle).strip()))
    os.kill(int(handle.key), signal.SIGKILL)
    ended(runner, handle)
    until("the child's end", lambda: not exists(child), PATIENCE_S)


def test_a_stopped_rank_can_be_killed(runner: ProcessRunner) -> None:
    handle = runner.start(spec(FOREVER))
    os.kill(int(handle.key), signal.SIGSTOP)
    runner.kill(handle)
    assert ended(runner, handle).code == 137


@pytest.mark.parametrize("program", ["/nowhere/engine", "/etc/passwd"])
def test_a_program_that_cannot_run_is_hopeless_and_leaves_no_record(runner: ProcessRunner, program: str) -> None:
    command = RankCommand(0, (program,), ())
    with pytest.raises(StartRefused, match=program):
        runner.start(replace(spec(""), command=command))
    assert runner.leftovers() == ()


def test_a_rank_outlives_the_runner_and_the_next_one_watches_and_ends_it(run_dir: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from supervisor.runners.process import ProcessRunner;"
        "from tests.contract.test_runner_process import spec, FOREVER;"
        "print(ProcessRunner(Path(sys.argv[1])).start(spec('echo hello; ' + FOREVER)).key)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(run_dir)], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    runner = ProcessRunner(run_dir)
    (left,) = runner.leftovers()
    assert (left.alive, left.handle.key, left.handle.spec_hash) == (True, done.stdout.strip(), "hash")
    until("its output", lambda: output(runner, left.handle) == "hello\n")
    assert runner.poll(left.handle) is None
    runner.kill(left.handle)
    assert ended(runner, left.handle) == RankExit(left.handle.launch_id, 0, None)
    runner.remove(left.handle)
    assert runner.leftovers() == ()
    assert list((run_dir / "ranks").iterdir()) == []


def record(run_dir: Path, change: Callable[[dict[str, Any]], None]) -> None:
    (path,) = (run_dir / "ranks").iterdir()
    raw = json.loads(path.read_text())
    change(raw)
    path.write_text(json.dumps(raw))


def test_a_rank_whose_start_was_not_recorded_any_more_is_found_by_its_environment(run_dir: Path, runner: ProcessRunner) -> None:
    handle = runner.start(spec(FOREVER))
    record(run_dir, lambda raw: raw.update(pid=0, start_ticks=0, boot_id=""))
    (left,) = ProcessRunner(run_dir).leftovers()
    assert (left.alive, left.handle.key) == (True, handle.key)


@pytest.mark.parametrize("other", [{"start_ticks": 1}, {"boot_id": "another"}])
def test_a_process_that_only_has_the_pid_is_never_signalled(run_dir: Path, other: dict[str, Any]) -> None:
    stranger = subprocess.Popen(["/bin/sh", "-c", FOREVER], start_new_session=True)
    try:
        first = ProcessRunner(run_dir)
        first.start(spec("exit 0"))
        who = procid.identify(stranger.pid)
        assert who is not None
        ours = {"pid": who.pid, "start_ticks": who.start_ticks, "boot_id": who.boot_id}
        record(run_dir, lambda raw: raw.update({**ours, **other}))
        runner = ProcessRunner(run_dir)
        (left,) = runner.leftovers()
        assert not left.alive
        runner.terminate(left.handle)
        runner.kill(left.handle)
        assert runner.poll(left.handle) == RankExit(left.handle.launch_id, 0, None)
        assert stranger.poll() is None
        runner.remove(left.handle)
    finally:
        stranger.kill()
        stranger.wait()


def test_a_half_written_record_is_no_rank(run_dir: Path, runner: ProcessRunner) -> None:
    (run_dir / "ranks").mkdir(parents=True)
    (run_dir / "ranks" / "x-rank0.json").write_text('{"launch_id": "x"')
    assert runner.leftovers() == ()


def test_a_flood_of_output_stays_bounded_and_keeps_its_beginning_and_end(run_dir: Path) -> None:
    cap = 1 << 20
    runner = ProcessRunner(run_dir, log_cap_bytes=cap)
    burst = "head -c 131072 /dev/zero | tr '\\0' x; echo; i=$((i+1)); sleep 0.01"
    handle = runner.start(spec(f"echo first; i=0; while [ $i -lt 60 ]; do {burst}; done; echo last"))
    cursor, seen = "", b""
    while runner.poll(handle) is None or seen.count(b"last") == 0:
        chunk = runner.read_log(handle, cursor)
        cursor, seen = chunk.cursor, seen + chunk.data[-64:]
        size = sum(path.stat().st_size for path in (run_dir / handle.launch_id).iterdir())
        assert size < 6 * cap
    kept = output(runner, handle)
    assert kept.startswith("first\n")
    assert kept.endswith("last\n")


def test_an_unknown_rank_counts_as_ended(runner: ProcessRunner) -> None:
    ghost = RankHandle("never", 0, "head", "1", "hash")
    assert runner.poll(ghost) == RankExit("never", 0, None)
    runner.kill(ghost)
    assert runner.wait([ghost], PATIENCE_S) == (RankExit("never", 0, None),)
