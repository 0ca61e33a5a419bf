"""``doit testbed``: two hosts on this machine, to try workers on."""

from __future__ import annotations

import subprocess
import sys

from doit.cmd_base import Command

from build.commands.edge import Guarded, option
from build.errors import Refused

HOSTS = option("hosts", 2, "how many hosts, the head counted: 2 or 4")
DOWN = option("down", False, "take it down again")


class Testbed(Guarded, Command):  # type: ignore[misc] # doit is untyped
    """Start the testbed, and say how to run the supervisor against it."""

    name = "testbed"
    doc_purpose = "start two hosts (or four) on this machine, each with its own sshd and Docker, and say how to use them (root)"
    cmd_options = (HOSTS, DOWN)

    def execute(self, params: dict[str, object], _args: list[str]) -> int:
        """Run it as the program that it is: it is part of the tests."""
        words = ["down"] if params["down"] else ["up", "--hosts", str(params["hosts"])]
        done = subprocess.run([sys.executable, "-m", "tests.testbed", *words], check=False)
        if done.returncode:
            raise Refused("the testbed did not come up: the line above says why")
        return 0
