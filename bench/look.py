"""How long it takes to look at two hosts before anything starts, on the testbed: the doctor, with one worker away, and a dry run.

``python -m bench.look [--rounds 11]`` as root. Goals, in the middle: doctor 2 s, with an unreachable worker 8 s, dry run 1.5 s.
One line each: the middle, the fastest and the slowest; 1 where a middle is over its goal.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.hosts import two_hosts
from tests.testbed.bed import Testbed
from tests.testing.demo import demo_state
from tests.testing.on_head import supervisor

Command = Callable[[], int]


def commands(testbed: Testbed, state: Path) -> dict[str, tuple[float, int, Command]]:
    """Each: its goal in seconds, the exit code that it must end with, and what runs it."""

    def run(*args: str, **settings: str) -> Command:
        return lambda: supervisor(testbed, state, *args, min_avail_gib=0.25, worker_store="twinfold-store", **settings).returncode

    return {
        "doctor": (2.0, 0, run("doctor")),
        "doctor, worker away": (8.0, 3, run("doctor", worker="192.0.2.77")),
        "dry run": (1.5, 0, run("run", "--dry-run")),
    }


def measured(command: Command, code: int, rounds: int) -> list[float]:
    """Seconds of each round; the first, with nothing in any cache, is not counted."""
    took = []
    for _ in range(rounds + 1):
        began = time.monotonic()
        ended = command()
        took.append(time.monotonic() - began)
        if ended != code:
            raise SystemExit(f"error: it ended with {ended}, not {code}")
    return took[1:]


def main() -> int:
    """Run them all; 1 where one is over its goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    rounds = parser.parse_args().rounds
    late = 0
    with two_hosts() as testbed, tempfile.TemporaryDirectory(prefix="tf-bench-") as folder:
        for name, (goal_s, code, command) in commands(testbed, demo_state(Path(folder))).items():
            took = measured(command, code, rounds)
            middle = statistics.median(took)
            late += middle > goal_s
            print(f"{name:<20} middle {middle:.2f} s (goal {goal_s:g}), {min(took):.2f} to {max(took):.2f} s", flush=True)
    return int(late > 0)


if __name__ == "__main__":
    sys.exit(main())
