"""The guard on real processes, over a proc tree of plain files."""

from __future__ import annotations

import itertools
import signal
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.memory import policy as memory
from tests.testing.node_tool import GIB, GuardProcess, Listener, ProcTree, Victim, ask

CASE = Path(__file__).parents[1] / "cases/memory-collapse-series/input.tsv"


@dataclass
class Room:
    """One test's guard, victim and tree, ended with it."""

    folder: Path
    started: list[Any] = field(default_factory=list)

    def keep(self, thing: Any) -> Any:
        self.started.append(thing)
        return thing

    def victim(self, *argv: str) -> Victim:
        victim: Victim = self.keep(Victim(*argv))
        return victim

    def tree(self, available_bytes: int = 30 * GIB) -> ProcTree:
        return ProcTree(self.folder / "proc", available_bytes)

    def guard(self, victim: Victim, proc: ProcTree, *more: str, **given: object) -> GuardProcess:
        guard: GuardProcess = self.keep(GuardProcess(self.folder, victim, proc, *more, **given))
        return guard

    def listen(self, guard: GuardProcess) -> Listener:
        listener: Listener = self.keep(guard.listen())
        return listener


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    made = Room(tmp_path)
    yield made
    for thing in reversed(made.started):
        thing.close()


@pytest.mark.parametrize("in_place", [False, True])
def test_kills_at_the_hard_floor_and_says_why(room: Room, in_place: bool) -> None:
    victim, proc = room.victim(), room.tree()
    guard = room.guard(victim, proc)
    listener = room.listen(guard)
    assert listener.next()["hello"]["phase"] == "watching"
    listener.until(sample=...)
    proc.set(2 * GIB - 1024, in_place=in_place)
    kill = listener.until(event="kill")
    assert victim.wait() == -signal.SIGKILL
    assert (kill["cause"], kill["available_bytes"], kill["pid"], kill["launch"]) == (
        "hard",
        2 * GIB - 1024,
        victim.pid,
        "launch-1",
    )
    assert listener.until(event="dead")["cause"] == "hard"
    assert guard.wait() == 10
    first, *samples, last = guard.logged()
    assert (first["event"], last["event"]) == ("kill", "dead")
    assert samples[-1]["available_bytes"] == 2 * GIB - 1024
    assert samples[-1]["t_ms"] - samples[0]["t_ms"] <= 2000


def test_at_the_floor_itself_nothing_is_killed(room: Room) -> None:
    victim, proc = room.victim(), room.tree()
    listener = room.listen(room.guard(victim, proc))
    proc.set(2 * GIB)
    listener.until(event="soft", available_bytes=2 * GIB)
    for _ in range(10):
        assert listener.until(sample=...)["level"] in {"soft", "slope"}
    proc.set(4 * GIB)
    listener.until(event="soft_cleared")
    assert victim.process.poll() is None


def test_the_collapse_from_the_field_is_met_before_memory_is_gone(room: Room) -> None:
    victim, proc = room.victim(), room.tree()
    guard = room.guard(victim, proc, hard_bytes=5 * GIB // 2, soft_bytes=5 * GIB)
    listener = room.listen(guard)
    rows = [[float(cell) for cell in line.split("\t")] for line in CASE.read_text().splitlines()[1:]]
    listener.until(sample=...)
    began, written = time.monotonic(), 0.0
    for at_s, available_kb, free_kb, _ in rows:
        time.sleep(max(0.0, began + at_s - time.monotonic()))
        if victim.process.poll() is not None:
            break
        proc.set(int(available_kb) << 10, int(free_kb) << 10)
        written = at_s
    kill = listener.until(event="kill")
    assert kill["available_bytes"] > 0
    assert written > 0.6
    assert guard.wait() in {10, 11}
    assert victim.wait() == -signal.SIGKILL


def test_the_collapse_from_the_field_is_answered_by_the_sample_at_2_6_s() -> None:
    rows = [[float(cell) for cell in line.split("\t")] for line in CASE.read_text().splitlines()[1:]]
    argv = ["guard", "--replay", "--hard-bytes", str(5 * GIB // 2), "--soft-bytes", str(5 * GIB), "--horizon-ms", "500"]
    answer = ask(*argv, stdin="\n".join(f"{at_s * 1000:.0f} {int(kb) << 10}" for at_s, kb, *_ in rows).encode())
    kills = [at_s for (at_s, *_), line in zip(rows, answer.lines, strict=True) if line["level"] in {"hard", "slope"}]
    assert 0.6 < kills[0] <= 2.6


def series() -> st.SearchStrategy[list[tuple[int, int]]]:
    """Samples a step apart that is well off the slope's limits, so that no rounding decides."""
    step = st.tuples(st.sampled_from([50, 100, 110, 250, 700]), st.integers(0, 64 * 1024).map(lambda mib: mib << 20))
    return st.lists(step, min_size=1, max_size=30)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=series())
def test_decides_as_the_supervisors_policy_does(steps: list[tuple[int, int]]) -> None:
    floor = memory.Floor(4 * GIB, 2 * GIB, 1e9, 0.5, 0.5)
    watch, now_ms, lines, expected = memory.FloorWatch(), 0, [], []
    for step_ms, available in steps:
        now_ms += step_ms
        lines.append(f"{now_ms} {available}")
        watch, verdict = memory.watch_floor(floor, watch, memory.Sample(now_ms / 1000, available, available), now_ms / 1000)
        graced = verdict.stage in {memory.Stage.GRACE, memory.Stage.SOFT}
        expected.append(("soft" if graced else verdict.stage.value, verdict.falling_bytes_per_s))
    argv = ["guard", "--replay", "--hard-bytes", str(2 * GIB), "--soft-bytes", str(4 * GIB), "--horizon-ms", "500"]
    answer = ask(*argv, stdin="\n".join(lines).encode())
    assert [line["level"] for line in answer.lines] == [level for level, _ in expected]
    assert [line["falling_bytes_per_s"] for line in answer.lines] == pytest.approx(
        [fall for _, fall in expected], abs=1, rel=1e-6
    )


def test_the_rank_that_ends_by_itself_ends_the_guard_with_0_and_memory_is_watched_until_bye(room: Room) -> None:
    victim, proc = room.victim(), room.tree(available_bytes=3 * GIB)
    guard = room.guard(victim, proc, linger_s=300)
    listener = room.listen(guard)
    victim.process.terminate()
    victim.wait()
    assert listener.until(event="dead")["cause"] is None
    proc.set(20 * GIB)
    assert listener.until(event="recovered")["available_bytes"] == 20 * GIB
    listener.send({"bye": True})
    assert guard.wait() == 0
    assert not guard.socket_path.exists()


def test_bye_leaves_a_living_rank_guarded(room: Room) -> None:
    victim, proc = room.victim(), room.tree()
    guard = room.guard(victim, proc)
    listener = room.listen(guard)
    listener.send({"bye": True})
    listener.close()
    time.sleep(0.5)
    assert guard.process.poll() is None
    proc.set(GIB)
    assert victim.wait() == -signal.SIGKILL


@pytest.mark.parametrize(("wrong", "status"), [("ticks", 3), ("gone", 3)])
def test_only_the_registered_process_is_taken(room: Room, wrong: str, status: int) -> None:
    victim, proc = room.victim(), room.tree()
    ticks = victim.start_ticks + (1 if wrong == "ticks" else 0)
    if wrong == "gone":
        victim.close()
    guard = room.guard(victim, proc, start_ticks=ticks)
    assert guard.wait() == status
    assert guard.process.stderr
    assert str(victim.pid) in guard.process.stderr.read().decode()
    assert wrong == "gone" or victim.process.poll() is None


def test_figures_that_are_half_written_or_gone_never_act(room: Room) -> None:
    victim, proc = room.victim(), room.tree()
    listener = room.listen(room.guard(victim, proc))
    listener.until(sample=...)
    (proc.root / "meminfo").write_text("MemTotal: 134217728 kB\nMemFree:  1 kB\nMemAvailable:   1")
    listener.until(event="unreadable")
    (proc.root / "meminfo").unlink()
    time.sleep(0.3)
    proc.set(9 * GIB)
    listener.until(event="readable")
    assert listener.until(sample=...)["available_bytes"] == 9 * GIB
    assert victim.process.poll() is None


def test_pressure_is_in_the_samples_and_null_where_there_is_none(room: Room) -> None:
    victim, proc = room.victim(), room.tree()
    listener = room.listen(room.guard(victim, proc))
    assert listener.until(sample=...)["psi_some_avg10"] is None
    proc.set_pressure("1.53", "0.07")
    line = listener.until(psi_some_avg10=1.53)
    assert line["psi_full_avg10"] == 0.07


def test_its_socket_is_private_and_a_dead_guards_socket_is_replaced(room: Room) -> None:
    victim, proc = room.victim(), room.tree()
    first = room.guard(victim, proc)
    assert stat.S_IMODE(first.socket_path.stat().st_mode) == 0o600
    second = room.guard(victim, proc)
    assert second.wait() == 1
    first.process.kill()
    first.process.wait()
    third = room.guard(victim, proc)
    room.listen(third).until(sample=...)


def deaf(guard: GuardProcess, room: Room) -> None:
    """A client that connects and never reads."""
    room.keep(guard.listen())


def closed_pipes(guard: GuardProcess, _room: Room) -> None:
    """Nobody at the other end of standard output and error."""
    for stream in (guard.process.stdout, guard.process.stderr):
        assert stream
        stream.close()


def hangup(guard: GuardProcess, _room: Room) -> None:
    guard.process.send_signal(signal.SIGHUP)
    guard.process.send_signal(signal.SIGPIPE)


@pytest.mark.parametrize("trouble", [deaf, closed_pipes, hangup])
def test_kills_whatever_its_readers_do(room: Room, trouble: Callable[[GuardProcess, Room], None]) -> None:
    victim, proc = room.victim(), room.tree()
    guard = room.guard(victim, proc, period_ms=10)
    trouble(guard, room)
    time.sleep(2)
    at_s = proc.set(GIB)
    assert victim.wait() == -signal.SIGKILL
    assert time.monotonic() - at_s < 1.5
    assert guard.wait() == 10


def test_while_memory_is_calm_samples_are_told_half_a_second_apart_and_every_move_at_once(room: Room) -> None:
    victim, proc = room.victim(), room.tree(30 * GIB)
    listener = room.listen(room.guard(victim, proc, period_ms=20))
    told = [listener.until(sample=...) for _ in range(6)]
    assert all(later["t_ms"] - earlier["t_ms"] >= 450 for earlier, later in itertools.pairwise(told[2:]))
    for number in range(20):
        proc.set((29 + number % 2) * GIB)
        time.sleep(0.05)
    over_s = proc.set(28 * GIB)
    while (line := listener.until(sample=...))["available_bytes"] != 28 * GIB:
        told.append(line)
    assert len(told) >= 6 + 8, "calm samples alone would be three"
    while listener.until(sample=...)["t_ms"] < over_s * 1000 + 700:  # longer than the two steps of a slope
        pass
    proc.set(3 * GIB)
    soft = [listener.until(level="soft")["sample"] for _ in range(4)]
    assert [later - earlier for earlier, later in itertools.pairwise(soft)] == [1, 1, 1]


def test_a_slow_reader_is_told_how_many_lines_it_missed(room: Room) -> None:
    victim, proc = room.victim(), room.tree()
    guard = room.guard(victim, proc, period_ms=10)
    proc.set(3 * GIB)  # under the soft floor every sample is told
    slow, quick = room.listen(guard), room.listen(guard)
    last = 0
    while last < 400:
        last = quick.until(sample=...)["sample"]
    slow.next()
    seen, missed = 0, 0
    numbers: list[int] = []
    while missed == 0 or seen == 0 or numbers[-1] < 400:
        line = slow.next()
        missed += line.get("missed", 0)
        if "sample" in line:
            seen += 1
            numbers.append(line["sample"])
    assert missed == numbers[-1] - numbers[0] + 1 - seen


def test_a_full_log_disk_delays_nothing_and_is_told(room: Room) -> None:
    victim, proc = room.victim(), room.tree()
    guard = room.guard(victim, proc, log="/dev/full")
    listener = room.listen(guard)
    listener.until(sample=...)
    proc.set(GIB)
    assert victim.wait() == -signal.SIGKILL
    assert listener.until(event="log_failed")["error"] == "no space left on the device"
    assert guard.wait() == 10


def test_asked_to_leave_it_leaves_the_rank_alone(room: Room) -> None:
    victim, proc = room.victim(), room.tree()
    guard = room.guard(victim, proc)
    guard.process.terminate()
    assert guard.wait() == 15
    assert victim.process.poll() is None


def test_it_is_small_and_locked(room: Room) -> None:
    victim, proc = room.victim(), room.tree()
    guard = room.guard(victim, proc)
    room.listen(guard).until(sample=...)
    fields = dict(
        line.split(":\t") for line in Path(f"/proc/{guard.process.pid}/status").read_text().splitlines() if ":\t" in line
    )
    assert int(fields["VmRSS"].split()[0]) <= 4096
    assert int(fields["Threads"]) == 1
    assert guard.hello["locked"] is (int(fields["VmLck"].split()[0]) > 0)


def test_a_silent_supervisor_stops_the_rank_in_order_and_one_that_speaks_does_not(room: Room) -> None:
    stubborn = "trap 'echo term' TERM; echo up; while :; do sleep 0.05; done"
    victim, proc = room.victim("sh", "-c", stubborn), room.tree()
    assert victim.process.stdout
    assert victim.process.stdout.readline() == b"up\n"
    guard = room.guard(victim, proc, "--supervised", orphan_s=1, stop_timeout_s=1)
    listener = room.listen(guard)
    for number in range(12):
        listener.send({"alive": number})
        time.sleep(0.2)
    assert victim.process.poll() is None
    term, kill = listener.until(event="term"), listener.until(event="kill")
    assert term["cause"] == kill["cause"] == "supervisor"
    assert 900 <= kill["t_ms"] - term["t_ms"] <= 3000
    assert victim.wait() == -signal.SIGKILL
    assert victim.process.stdout.readline() == b"term\n"
    assert guard.wait() == 14


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "--hard-bytes and --soft-bytes are needed"),
        (["--hard-bytes", "2", "--soft-bytes", "1"], "--soft-bytes is below"),
        (["--hard-bytes", "1", "--soft-bytes", "1"], "--pid and --start-ticks"),
        (["--lease-listen", "spark-b:1"], "ADDR a literal"),
        (["--lease-from", "127.0.0.1"], "comes after its --lease-send"),
        (["--secret", "x"], "unknown option --secret"),
    ],
)
def test_wrong_arguments_exit_2(argv: list[str], said: str) -> None:
    answer = ask("guard", *argv)
    assert answer.status == 2
    assert said in answer.errors


def test_a_memory_hog_of_its_own_kind_is_gone_when_dead_is_said(room: Room) -> None:
    """`dead` means that the rank's memory is on its way back: its address space is gone by then."""
    hog = "import sys; b = bytearray(300 << 20); print('up', flush=True); sys.stdin.read(); __import__('time').sleep(1000)"
    victim, proc = room.victim("python3", "-c", hog), room.tree()
    assert victim.process.stdout
    assert victim.process.stdout.readline() == b"up\n"
    listener = room.listen(room.guard(victim, proc))
    listener.until(sample=...)
    proc.set(GIB)
    listener.until(event="dead")
    status = Path(f"/proc/{victim.pid}/status").read_text()
    assert "VmRSS" not in status
    assert victim.wait() == -signal.SIGKILL
