"""What a guard costs on this machine's own /proc: CPU time and memory, at ten samples a second with one reader.

``python -m bench.guard_cost [--minutes N]``. CPU time is the scheduler's own count (/proc/PID/schedstat, nanoseconds on a CPU).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.testing.node_tool import GuardProcess, Victim


class RealProc:
    """This machine's own proc tree."""

    root = Path("/proc")


def cpu_ns(pid: int) -> int:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def peak_kib(pid: int) -> int:
    rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith("VmHWM"))


def main(argv: list[str]) -> int:
    """Measure and print one JSON line."""
    parser = argparse.ArgumentParser(prog="python -m bench.guard_cost", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="tf-") as name, contextlib.closing(Victim()) as victim:
        guard = GuardProcess(Path(name), victim, RealProc(), hard_bytes=1 << 20, soft_bytes=1 << 20)
        with contextlib.closing(guard), contextlib.closing(guard.listen()) as listener:
            first = last = listener.until(sample=...)["sample"]
            began, before = time.monotonic(), cpu_ns(guard.process.pid)
            while time.monotonic() < began + 60 * args.minutes:
                last = listener.until(sample=...)["sample"]
            samples = last - first
            elapsed_s = time.monotonic() - began
            used_s = (cpu_ns(guard.process.pid) - before) / 1e9
            found = {
                "minutes": round(elapsed_s / 60, 2),
                "samples": samples,
                "core_percent": round(100 * used_s / elapsed_s, 4),
                "us_per_sample": round(1e6 * used_s / samples, 1),
                "peak_rss_kib": peak_kib(guard.process.pid),
            }
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
