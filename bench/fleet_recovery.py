"""How fast a gang over two hosts is down and serves again after ``kill -9`` of either rank, on the testbed.

``python -m bench.fleet_recovery [--trials 50]`` as root. Goals: the other rank ended within 1 s, serving within 5 s.
One line a trial, then the middle, the slowest, and how many were within the goals.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench.hosts import two_hosts
from tests.testbed.bed import Testbed
from tests.testing.demo import demo_state
from tests.testing.fleet import SupervisedFleet, api, clear, containers
from tests.testing.waiting import exists, until

DOWN_GOAL_S, SERVING_GOAL_S = 1.0, 5.0


def pid_of(testbed: Testbed, rank: int) -> int:
    """The rank's own process: the child of the container's init, or its first process."""
    host = testbed.hosts[rank]
    daemon = api(host)
    try:
        first = int(daemon.get(f"/containers/{containers(host)[0]['Id']}/json").document["State"]["Pid"])
    finally:
        daemon.close()
    children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    return int(children[0]) if children else first


def trial(gang: SupervisedFleet, testbed: Testbed, number: int) -> tuple[float, float]:
    """Kill one rank; seconds until the other has ended, and until the gang serves again."""
    victim = number % 2
    killed, other = pid_of(testbed, victim), pid_of(testbed, 1 - victim)
    launch = gang.wait_state("serving")["launch"]
    began = time.monotonic()
    os.kill(killed, signal.SIGKILL)
    until("the other rank's end", lambda: not exists(other))
    down_s = time.monotonic() - began
    gang.wait_state("serving", launch=launch + 1)
    serving_s = time.monotonic() - began
    print(f"trial {number:>2}: rank {victim} killed: gang down after {down_s:.2f} s, serving after {serving_s:.2f} s", flush=True)
    return down_s, serving_s


def main() -> int:
    """Run the trials; 1 where fewer than all were within a goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=50)
    trials = parser.parse_args().trials
    with two_hosts() as testbed, tempfile.TemporaryDirectory(prefix="tf-bench-") as folder:
        gang = SupervisedFleet(testbed, demo_state(Path(folder)), Path(folder), restart_limit=1000, restart_pause_max_s=0.5)
        try:
            gang.start().wait_ready()
            took = [trial(gang, testbed, number) for number in range(1, trials + 1)]
        finally:
            gang.close()
            clear(testbed)
    return report(took)


def report(took: list[tuple[float, float]]) -> int:
    """Print what it comes to."""
    met = 0
    for name, goal_s, values in (
        ("gang down", DOWN_GOAL_S, [one[0] for one in took]),
        ("serving", SERVING_GOAL_S, [one[1] for one in took]),
    ):
        within = sum(value <= goal_s for value in values)
        met += within == len(values)
        print(
            f"{name}: middle {statistics.median(values):.2f} s, slowest {max(values):.2f} s,"
            f" {within} of {len(values)} within {goal_s:g} s (load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores)"
        )
    return 0 if met == 2 else 1


if __name__ == "__main__":
    sys.exit(main())
