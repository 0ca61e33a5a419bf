"""Two bare hosts and a fresh checkout: `init`, `doctor`, `doit` and `run` alone lead to READY; `init` asks all that is needed."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.testbed.bed import Testbed
from tests.testbed.hosts import Host
from tests.testing.demo import CHECKOUT, built_store, cache_root
from tests.testing.fleet import clear, containers
from tests.testing.waiting import until

pytestmark = [pytest.mark.testbed, pytest.mark.timeout(1500)]
LOCAL = ".local"  # in a user's home: state on the head, the store on a worker


@pytest.fixture
def checkout(testbed: Testbed, tmp_path: Path) -> Iterator[Path]:
    """The files that git tracks, as a clone has them, on hosts whose Docker is where it is by default."""
    clear(testbed)
    copy = tmp_path / "twinfold"
    copy.mkdir()
    listed = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--", ":!tests/cases"]
    names = subprocess.run(listed, cwd=CHECKOUT, capture_output=True, check=True).stdout
    subprocess.run(["rsync", "-a", "--from0", "--files-from=-", ".", str(copy)], cwd=CHECKOUT, input=names, check=True)
    for host in testbed.hosts:
        socket = host.plan.docker_socket
        host.run(["sh", "-ec", f"mount -t tmpfs tmpfs /run; mkdir /run/sshd; ln -s '{socket}' /run/docker.sock"])
    yield copy
    for host in testbed.hosts:
        host.run(["umount", "/run"])
        host.run(["sh", "-c", f"chmod -R u+w {LOCAL} 2>/dev/null; rm -rf {LOCAL}"])
    clear(testbed)


def lend_store(head: Host) -> None:
    """What `doit` makes takes minutes once: the default state folder gets a store in which it is made."""
    built_store()
    state = head.plan.home / LOCAL / "share/twinfold"
    state.mkdir(parents=True)
    (state / "store").symlink_to(cache_root() / "state/store")


def answered(head: Host, folder: Path, argv: list[str], *answers: str) -> tuple[int, str]:
    """Run a program on a terminal and give each of its questions an answer; its exit code, and what stood there."""
    ours, theirs = pty.openpty()
    program = head.popen(argv, folder=folder, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    said = b""
    with suppress(OSError):  # Linux ends a terminal's output so
        while piece := os.read(ours, 4096):
            said += piece
            if answers and said.endswith(b"]: "):
                os.write(ours, answers[0].encode() + b"\n")
                answers = answers[1:]
    os.close(ours)
    return program.wait(60), said.decode()


def test_from_bare_hosts_to_ready(checkout: Path, testbed: Testbed) -> None:
    head, worker = testbed.head, testbed.worker
    lend_store(head)
    # a real machine's own readings are those of its kernel: the testbed has them in files
    roots = {"proc_root": head.plan.proc, "sys_root": head.plan.sys, "worker_proc_root": "../proc", "worker_sys_root": "../sys"}
    flags = [word for key, value in roots.items() for word in ("--set", f"{key}={value}")]

    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        return head.run([sys.executable, "-m", *argv], folder=checkout, check=False, timeout_s=900)

    code, said = answered(head, checkout, [sys.executable, "-m", "supervisor", "init", *flags], "", f"{worker.name}-lan")
    assert code == 0, said
    written = tomllib.loads((checkout / "config.toml").read_text())
    assert {key: written[key] for key in written.keys() - roots.keys()} == {
        "target": "demo",
        "worker": f"{worker.name}-lan",
        "runner": "docker",
        "fabric_peer": "192.0.2.2",
    }
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
