"""Two bare hosts and a fresh checkout: `init`, `doctor`, `doit` and `run` alone lead to READY."""

from __future__ import annotations

import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbed.bed import Testbed
from tests.testing.checkout import CHECKOUT
from tests.testing.demo import built_store, cache_root
from tests.testing.fleet import STORE, clear, containers
from tests.testing.supervised import until

pytestmark = [pytest.mark.testbed, pytest.mark.timeout(1500)]


@pytest.fixture
def checkout(testbed: Testbed, tmp_path: Path) -> Iterator[Path]:
    """The files that git tracks, as a clone has them."""
    clear(testbed)
    copy = tmp_path / "twinfold"
    copy.mkdir()
    listed = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--", ":!tests/cases"]
    names = subprocess.run(listed, cwd=CHECKOUT, capture_output=True, check=True).stdout
    subprocess.run(["rsync", "-a", "--from0", "--files-from=-", ".", str(copy)], cwd=CHECKOUT, input=names, check=True)
    yield copy
    clear(testbed)


def test_from_bare_hosts_to_ready(checkout: Path, testbed: Testbed) -> None:
    built_store()  # what `doit` makes takes minutes once
    head, worker = testbed.head, testbed.workers[0]
    known = {
        "state_dir": cache_root() / "state",
        "docker_socket": head.plan.docker_socket,
        "worker_docker_socket": worker.plan.docker_socket,
        "worker_store": STORE,
        "ssh_config": head.plan.home / ".ssh/config",
        "proc_root": head.plan.proc,
        "sys_root": head.plan.sys,
        "worker_proc_root": "../proc",
        "worker_sys_root": "../sys",
        "container_name": "twinfold-new",
    }
    flags = [word for key, value in known.items() for word in ("--set", f"{key}={value}")]

    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        return head.run([sys.executable, "-m", *argv], folder=checkout, check=False, timeout_s=900)

    begun = run("supervisor", "init", "--worker", f"{worker.name}-lan", *flags)
    assert begun.returncode == 0, begun.stdout + begun.stderr
    written = tomllib.loads((checkout / "config.toml").read_text())
    assert (written["fabric_peer"], written["runner"], written["target"]) == ("192.0.2.2", "docker", "demo")
    for argv in (("supervisor", "doctor"), ("doit",), ("supervisor", "doctor", "--strict")):
        done = run(*argv)
        assert done.returncode == 0, done.stdout + done.stderr
    with (checkout / "out").open("wb") as out:
        serving = head.popen([sys.executable, "-m", "supervisor", "run"], folder=checkout, stdout=out, stderr=out)
    try:
        until("READY", lambda: "READY twinfold-demo" in (checkout / "out").read_text() or serving.poll() is not None, 300)
        assert serving.poll() is None, (checkout / "out").read_text()
        assert len(containers(worker)) == 1
    finally:
        serving.send_signal(signal.SIGINT)
        serving.wait(120)
    assert containers(worker) == []
