"""Rate of ``twinfold-node hash`` on cold files, beside what the disk and sha256 give alone, in one run.

``python -m bench.hash_rate [--gib N] [--files N] [--dir DIR] [--rounds N]``. The goal is 0.9 of the smaller of dd with
iflag=direct and the sha256 rate times the threads, with the page cache grown by less than 64 MB. The sha256 rate is our own
over a file in memory (/dev/shm).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.testing.node_tool import ask

BLOCK = 16 << 20


def seconds(run: Callable[[], object]) -> float:
    began = time.monotonic()
    run()
    return time.monotonic() - began


def write_direct(path: Path, size: int) -> None:
    """Random bytes that leave no pages behind."""
    with path.open("wb") as file:
        for _ in range(size // BLOCK):
            file.write(os.urandom(BLOCK))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def dd(path: Path) -> None:
    subprocess.run(["dd", f"if={path}", "of=/dev/null", "bs=4M", "iflag=direct", "status=none"], check=True)


def cached_bytes() -> int:
    rows = Path("/proc/meminfo").read_text().splitlines()
    return next(int(row.split()[1]) * 1024 for row in rows if row.startswith("Cached:"))


def kept_bytes(paths: list[Path]) -> int:
    return sum(line["pages_before"] * line["page_bytes"] for line in ask("drop", *paths).lines)


def main(argv: list[str]) -> int:
    """Measure and print one JSON line; rates in GB/s, medians over the rounds, which take turns."""
    parser = argparse.ArgumentParser(prog="python -m bench.hash_rate", description=__doc__)
    parser.add_argument("--gib", type=int, default=4)
    parser.add_argument("--files", type=int, default=2)
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp"))  # noqa: S108 - a folder of its own is made in it
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(dir=args.dir) as name, tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        paths = [Path(name) / str(number) for number in range(args.files)]
        size = (args.gib << 30) // args.files // BLOCK * BLOCK
        for path in paths:
            write_direct(path, size)
        held = Path(memory) / "held"
        write_direct(held, 1 << 30)
        took: dict[str, list[float]] = {"disk": [], "sha256": [], "one": [], "all": []}
        for _ in range(args.rounds):
            took["disk"].append(size / seconds(lambda: dd(paths[0])))
            took["sha256"].append((1 << 30) / seconds(lambda: ask("hash", held)))
            took["one"].append(size / seconds(lambda: ask("hash", paths[0])))
            took["all"].append(size * len(paths) / seconds(lambda: ask("hash", *paths, deadline_s=600)))
        before = cached_bytes()
        ask("hash", *paths, deadline_s=600)
        grown = cached_bytes() - before
        rates = {name: statistics.median(values) / 1e9 for name, values in took.items()}
        threads = min(len(paths), os.cpu_count() or 1)
        found = {
            "direct_read_gb_s": rates["disk"], "sha256_one_thread_gb_s": rates["sha256"], "hash_one_file_gb_s": rates["one"],
            "hash_all_files_gb_s": rates["all"], "of_bound_one": rates["one"] / min(rates["disk"], rates["sha256"]),
            "of_bound_all": rates["all"] / min(rates["disk"], rates["sha256"] * threads),
        }  # fmt: skip
        kept = kept_bytes(paths)
    print(json.dumps({key: round(value, 3) for key, value in found.items()} | {"page_cache_grown": grown, "pages_kept": kept}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
