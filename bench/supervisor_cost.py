"""What a supervisor costs beside a serving gang: its CPU time and memory with its children, and the tokens that it takes away.

``python -m bench.supervisor_cost [--minutes 60] [--fleet] [--pairs 20]``. Goals over an hour: at most 0.5% of a core and 70 MB,
no growth, tokens per second with and without it within 1%. "Without": the supervisor is stopped (SIGSTOP) for one half of each
pair of windows, so that the same ranks serve in both. ``--fleet`` (as root) measures a gang over two hosts.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import hosts
from bench.soak import page
from bench.soak.clients import Load
from tests.testbed import network
from tests.testing.demo import demo_state
from tests.testing.fleet import SupervisedFleet, clear
from tests.testing.supervised import Supervised

CPU_GOAL, MEMORY_GOAL_MB, TOKENS_GOAL = 0.005, 70.0, 0.01
TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
SAMPLE_S = 5.0
SETTLE_S = 20.0  # after READY: imports, first readings
WINDOW_S = 8.0
STREAMED = "two hosts with a client that streams all the time"
MB = 1e6


@dataclass(frozen=True, slots=True)
class Sample:
    """CPU seconds so far and resident bytes, of the supervisor with its children, of those that are guards, and of itself."""

    at_s: float
    cpu_s: float
    guards_cpu_s: float
    own_bytes: int
    all_bytes: int


def family(pid: int, but: frozenset[int]) -> list[int]:
    """The process and all that descend from it, without those in ``but`` and theirs."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        below = [int(word) for task in tasks for word in (task / "children").read_text().split()]
    except OSError:
        below = []
    return [pid, *(found for child in below if child not in but for found in family(child, but))]


def cpu_s(pid: int) -> float:
    """User and system time of a process and of its children that were waited for (proc_pid_stat(5), fields 14 to 17)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(word) for word in fields[11:15]) * TICK_S


def pss_bytes(pid: int) -> int:
    """Resident bytes, shared pages counted by their share."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)


def sample(pid: int, ranks: frozenset[int], guards: Sequence[int]) -> Sample:
    """Now."""
    found = family(pid, ranks)
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    own = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS:"))
    return Sample(time.monotonic(), sum(map(cpu_s, found)), sum(map(cpu_s, guards)), own, sum(map(pss_bytes, found)))


def watch(pid: int, ranks: frozenset[int], guards: Sequence[int], minutes: float) -> list[Sample]:
    """Samples over so many minutes."""
    found, until_s = [sample(pid, ranks, guards)], time.monotonic() + minutes * 60.0
    while time.monotonic() < until_s:
        time.sleep(SAMPLE_S)
        found.append(sample(pid, ranks, guards))
    return found


def tokens_in(ask: Callable[[], int], window_s: float) -> float:
    """Tokens a second of one stream that is asked again and again."""
    began_s, tokens = time.monotonic(), 0
    while time.monotonic() - began_s < window_s:
        tokens += ask()
    return tokens / (time.monotonic() - began_s)


def pairs(gang: Supervised, count: int) -> list[tuple[float, float]]:
    """Tokens a second with and without, in windows that follow each other, the order turned round from pair to pair."""

    def ask() -> int:
        _, answer = gang.ask("Tell me all you know about links.", max_tokens=200, ignore_eos=True)
        return int(answer["usage"]["completion_tokens"])

    found = []
    for number in range(count):
        halves = {}
        for without in (number % 2 == 0, number % 2 == 1):
            if without:
                gang.signal(signal.SIGSTOP)
            try:
                halves[without] = tokens_in(ask, WINDOW_S)
            finally:
                gang.signal(signal.SIGCONT)
        found.append((halves[False], halves[True]))
    return found


@contextmanager
def one_host(folder: Path) -> Iterator[tuple[Supervised, frozenset[int]]]:
    """A gang of processes with a quiet client; and its ranks."""
    gang = Supervised(demo_state(folder), folder)
    try:
        gang.start().wait_ready()
        quiet = threading.Event()
        threading.Thread(target=_ask_now_and_then, args=(gang, quiet), daemon=True).start()
        yield gang, frozenset(gang.pids().values())
        quiet.set()
    finally:
        gang.close()


def _ask_now_and_then(gang: Supervised, over: threading.Event) -> None:
    while not over.wait(5.0):
        gang.ask("What is 6 times 7?")


@contextmanager
def two_hosts(folder: Path) -> Iterator[tuple[Supervised, frozenset[int]]]:
    """A gang over the testbed with a client that asks all the time, at 20 ms a round."""
    with hosts.two_hosts() as testbed:
        gang = SupervisedFleet(testbed, demo_state(folder), folder, TF_STANDIN_ROUND_MS="20")
        try:
            gang.start().wait_ready()
            load = Load(network.NETNS / testbed.head.name, gang.port, 1, 1)
            yield gang, frozenset()
            load.close()
        finally:
            gang.close()
            clear(testbed)


def main() -> int:
    """1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--pairs", type=int, default=20, help="pairs of windows, at least 2 for the tokens; one host only")
    parser.add_argument("--fleet", action="store_true", help="over two hosts")
    parser.add_argument("--page", type=Path, default=None, help="write the figures into this page of the docs")
    args = parser.parse_args()
    begin = two_hosts if args.fleet else one_host
    with tempfile.TemporaryDirectory(prefix="tf-bench-") as made, begin(Path(made)) as (gang, ranks):
        time.sleep(SETTLE_S)
        guards = () if args.fleet else tuple(gang.guards().values())  # in containers they are nobody's children here
        samples = watch(gang.running.pid, ranks, guards, args.minutes)
        both = [] if args.fleet else pairs(gang, args.pairs)
    text, met = report(samples, both, STREAMED if args.fleet else "one host")
    print(text)
    if args.page:
        page.replace_part(args.page, "cost of two hosts" if args.fleet else "cost", text)
    return 0 if met else 1


def report(samples: list[Sample], both: list[tuple[float, float]], where: str) -> tuple[str, bool]:
    """What it comes to, in lines, and whether every goal was met."""
    first, last = samples[0], samples[-1]
    lasted_s = last.at_s - first.at_s
    core, guards = (last.cpu_s - first.cpu_s) / lasted_s, (last.guards_cpu_s - first.guards_cpu_s) / lasted_s
    own, whole = max(one.own_bytes for one in samples) / MB, max(one.all_bytes for one in samples) / MB
    tenth = max(1, len(samples) // 10)
    begin, end = (statistics.median(one.own_bytes for one in part) / MB for part in (samples[:tenth], samples[-tenth:]))
    lines = [
        f"A gang over {where}, {lasted_s / 60:.1f} minutes (load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores):",
        f"- CPU, supervisor with its children: {100 * core:.2f}% of a core (goal {100 * CPU_GOAL:g}%)",
        f"- of it the ranks' guards: {100 * guards:.2f}%" if guards else "- guards run in containers: none is its child",
        f"- memory: {own:.1f} MB at most, {whole:.1f} MB with its children (goal {MEMORY_GOAL_MB:g} MB)",
        f"- growth: {begin:.1f} MB in the first tenth of the time, {end:.1f} MB in the last",
    ]
    met = core <= CPU_GOAL and own <= MEMORY_GOAL_MB and end <= begin * 1.02
    if both:
        ratios = [with_ / without for with_, without in both]
        middle = statistics.median(ratios)
        spread = statistics.quantiles(ratios, n=4)
        lines.append(
            f"- tokens/s with it over without: {middle:.4f} in the middle of {len(both)} pairs of {WINDOW_S:g} s"
            f" (quartiles {spread[0]:.4f} to {spread[2]:.4f}; goal within {100 * TOKENS_GOAL:g}%)"
        )
        met = met and abs(1.0 - middle) <= TOKENS_GOAL
    return "\n".join(lines), met


if __name__ == "__main__":
    sys.exit(main())
