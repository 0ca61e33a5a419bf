"""``doit soak``: every kind of fault again and again on two hosts of this machine, or a mixed soak of so many minutes."""

from __future__ import annotations

import subprocess
import sys

from doit.cmd_base import Command

from build.commands.edge import Guarded, option
from build.errors import CheckFailed

TRIALS = option("trials", 20, "how many trials of each kind")
KINDS = option("kinds", "", "only kinds whose name holds one of these parts; separated by ';'")
WITHIN = option("within", 0, "begin no trial after so many minutes; 0: no limit")
MINUTES = option("minutes", 0, "instead of the trials: faults every few seconds for so many minutes")
SEED = option("seed", 1, "what the random moments and orders come from")
RESULTS = option("results", "", "keep every trial in this file, and count those in it as made: a matrix in parts")
PAGE = "docs/faults.md"


class Soak(Guarded, Command):  # type: ignore[misc] # doit is untyped
    """Run the fault matrix or the mixed soak, and write what came of it into the docs."""

    name = "soak"
    doc_purpose = f"try every kind of fault on two hosts of this machine, and write the figures into {PAGE} (root; hours)"
    cmd_options = (TRIALS, KINDS, WITHIN, MINUTES, SEED, RESULTS)

    def execute(self, params: dict[str, object], _args: list[str]) -> int:
        """Run it as the program that it is: it needs the tests' testbed."""
        words = [f"--{name}={params[name]}" for name in ("trials", "kinds", "within", "minutes", "seed")]
        words += [f"--results={params['results']}"] if params["results"] else []
        done = subprocess.run([sys.executable, "-m", "bench.soak", f"--page={PAGE}", *words], check=False)
        if done.returncode:
            raise CheckFailed("not every trial held: the last lines above say which, and what came of it")
        return 0
