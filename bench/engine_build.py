"""A real `zig build` through the code that compiles an engine: in its container of the pinned base, with no network.

``python -m bench.engine_build`` (as root, with Docker installed) takes minutes: `zig build` compiles its own build runner first.
It builds the small engine of the tests twice, in two state folders with a cache each, and compares every output.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.testing.small_engine import BUILD, PROGRAM, SHORT, Bench, Small, bench_in

PATCHED_ANSWER = 3


def main() -> int:
    """Build, run, compare; 0 where the program is the patched one and both builds gave the same bytes."""
    with tempfile.TemporaryDirectory(prefix="tf-") as name, bench_in(Path(name)) as bench:
        first, answer = _build(bench, Path(name) / "one")
        second, _ = _build(bench, Path(name) / "two" / "deeper")
    print(f"the program answers {answer} (patched: {PATCHED_ANSWER}); outputs {'are the same' if first == second else 'DIFFER'}")
    return 0 if answer == PATCHED_ANSWER and first == second else 1


def _build(bench: Bench, state: Path) -> tuple[dict[str, str], int]:
    """Every artefact's output, and what the engine's program answers."""
    project = Small(bench, state, words=BUILD)
    began = time.monotonic()
    made = project.make_all()
    print(f"fetched, patched, built and put on its base in {time.monotonic() - began:.0f} s", flush=True)
    program = project.store.path(str(project.resolve(f"{PROGRAM}-{SHORT}").entry)) / PROGRAM
    answer = subprocess.run([program], check=False, timeout=60).returncode
    project.close()
    return made, answer


if __name__ == "__main__":
    sys.exit(main())
