"""Programs of this checkout on the testbed's head, with settings that name its worker and each host's own readings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.testbed.bed import Testbed
from tests.testing.checkout import CHECKOUT


def settings(testbed: Testbed, state: Path, **more: object) -> dict[str, str]:
    """Variables for a supervisor on the head that has the first worker, in containers."""
    head, worker = testbed.head.plan, testbed.worker.plan
    given = {
        "worker": worker.name,
        "state_dir": state,
        "runner": "docker",
        "container_name": "twinfold",
        "proc_root": head.proc,
        "sys_root": head.sys,
        "worker_proc_root": "../proc",
        "worker_sys_root": "../sys",
        "docker_socket": head.docker_socket,
        "worker_docker_socket": worker.docker_socket,
        "ssh_config": head.home / ".ssh/config",
        **more,
    }
    return {f"TWINFOLD_{name.upper()}": str(value) for name, value in given.items()}


def supervisor(
    testbed: Testbed, state: Path, *args: str, timeout_s: float = 120.0, **more: object
) -> subprocess.CompletedProcess[str]:
    """Run one command of the supervisor on the head to its end."""
    argv = [sys.executable, "-m", "supervisor", *args]
    env = settings(testbed, state, **more)
    return testbed.head.run(argv, folder=CHECKOUT, env=env, check=False, timeout_s=timeout_s)


def doctor(testbed: Testbed, state: Path, *args: str, **more: object) -> tuple[int, dict[str, Any]]:
    """The doctor's exit code and what it says to programs."""
    done = supervisor(testbed, state, "doctor", "--json", *args, **more)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, found
