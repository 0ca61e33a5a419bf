"""A Docker daemon and a containerd of a test's own, under its own folder, ended by their own process ids.

Nothing here reaches a network: no bridge, no iptables. Root is needed, and the Debian packages docker.io and containerd; without
them the tests that ask are skipped with the reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from build.image.docker_api import DockerApi, connect
from build.image.load import LoadRefused
from build.image.oci import Platform
from build.machine import ARCHITECTURES
from tests.testbed.processes import gone

START_S = 60.0
STOP_S = 60.0
HERE = Platform("linux", ARCHITECTURES.get(platform.machine(), platform.machine()))


def need(*programs: str) -> None:
    """Skip the test unless this is root and the programs are installed."""
    if os.geteuid() != 0:
        pytest.skip("a private container daemon needs root")
    for program in programs:
        if shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None:
            pytest.skip(f"{program} is not installed")


@dataclass(frozen=True, slots=True)
class Dockerd:
    """A running daemon: its socket's path, its process, and the file that it logs to."""

    socket: str
    process: subprocess.Popen[bytes]
    log: Path

    def kill(self) -> None:
        """As a crash does: its containers' processes stay."""
        self.process.kill()
        self.process.wait(STOP_S)


@contextlib.contextmanager
def dockerd(folder: Path, keep: bool = False, path: str = "") -> Iterator[Dockerd]:
    """Run a Docker daemon whose files all lie under ``folder``. The path must be short: a socket's name has 107 bytes.

    ``keep`` leaves the files, and a crashed daemon's containers, for another daemon to go on with. ``path`` is where the daemon
    finds its helpers, if not everywhere.
    """
    need("dockerd", "containerd", "runc")
    sock, log = folder / "d.sock", folder / "dockerd.log"
    _forget_dead(folder / "exec/containerd/containerd.pid")
    argv: list[str | Path] = ["dockerd", "--data-root", folder / "data", "--exec-root", folder / "exec", "-H", f"unix://{sock}"]
    argv += ["--pidfile", folder / "d.pid", "--iptables=false", "--bridge=none"]
    try:
        with _running(argv, log, path) as process:
            _wait_until(lambda: _answers(sock), process, log)
            yield Dockerd(str(sock), process, log)
    finally:
        # a test that failed, or a daemon that did not start, leaves mounts as well: pytest cannot delete what is mounted
        if keep:
            _unmount_below(folder / "exec/netns")
        else:
            _end_shims(folder)
            _remove(folder)


@contextlib.contextmanager
def docker_api(folder: Path) -> Iterator[DockerApi]:
    """The API of a daemon as :func:`dockerd` runs it."""
    with dockerd(folder) as running, contextlib.closing(connect(running.socket, "the test's Docker")) as api:
        yield api


@contextlib.contextmanager
def containerd(folder: Path) -> Iterator[Containerd]:
    """Run a containerd whose files all lie under ``folder``."""
    need("containerd", "ctr")
    address, config, log = folder / "c.sock", folder / "config.toml", folder / "containerd.log"
    config.write_text(
        f'version = 2\nroot = "{folder}/root"\nstate = "{folder}/state"\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
        f'[grpc]\naddress = "{address}"\n[ttrpc]\naddress = "{folder}/c.ttrpc"\n'
    )
    try:
        with _running(["containerd", "--config", config], log) as process:
            daemon = Containerd(str(address))
            _wait_until(daemon.answers, process, log)
            yield daemon
    finally:
        _remove(folder)


@dataclass(slots=True)
class Containerd:
    """What loading asks of a daemon (:class:`build.image.load.Daemon`), answered by containerd itself through ``ctr``."""

    address: str
    where: str = "the test's containerd"

    def answers(self) -> bool:
        """Whether it takes calls."""
        return self._run("version").returncode == 0

    def platform(self) -> Platform:
        """This machine's."""
        return HERE

    def keeps_blobs(self) -> bool:
        """It does."""
        return True

    def stacks(self) -> Sequence[tuple[str, ...]]:
        """The diff ids of each image's config."""
        return [tuple(self._config(name)["rootfs"]["diff_ids"]) for name in self.names()]

    def load(self, archive: Iterable[bytes], platform: Platform) -> None:
        """``ctr images import``, unpacking included; its error is the refusal."""
        argv = ["ctr", "-a", self.address, "images", "import", "--platform", str(platform), "-"]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            assert process.stdin
            assert process.stdout
            with contextlib.suppress(BrokenPipeError), process.stdin:
                for part in archive:
                    process.stdin.write(part)
            said = process.stdout.read().decode(errors="replace")
        if process.returncode != 0:
            raise LoadRefused(" ".join(said.split()))

    def inspect(self, name: str, manifest_digest: str) -> dict[str, Any] | None:  # noqa: ARG002 containerd checks by name
        """As Docker answers on a containerd store: the Id is the manifest's digest; None where a blob is missing."""
        if name not in self.names() or "incomplete" in self._said("images", "check", f"name=={name}"):
            return None
        config = self._config(name)
        return {
            "Id": self._target(name),
            "Config": config["config"],
            "Architecture": config["architecture"],
            "Os": config["os"],
            "RootFS": {"Type": "layers", "Layers": config["rootfs"]["diff_ids"]},
        }

    def names(self) -> list[str]:
        """Every image's name."""
        return self._said("images", "ls", "-q").split()

    def remove_blob(self, digest: str) -> None:
        """Take a blob out of the content store, as if it had never come."""
        self._said("content", "rm", digest)

    def snapshots(self) -> set[str]:
        """Chain ids of the layers that are unpacked."""
        return {line.split()[0] for line in self._said("snapshots", "ls").splitlines()[1:]}

    def remove_image(self, name: str) -> None:
        """Remove an image and, at once, whatever only it needed."""
        self._said("images", "rm", "--sync", name)

    def _target(self, name: str) -> str:
        rows = (line.split() for line in self._said("images", "ls", f"name=={name}").splitlines()[1:])
        return next(row[2] for row in rows)

    def _config(self, name: str) -> dict[str, Any]:
        manifest = json.loads(self._said("content", "get", self._target(name)))
        config: dict[str, Any] = json.loads(self._said("content", "get", manifest["config"]["digest"]))
        return config

    def _said(self, *arguments: str) -> str:
        done = self._run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        argv = ["ctr", "-a", self.address, *arguments]
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


@contextlib.contextmanager
def _running(argv: Sequence[str | Path], log: Path, path: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """The program, its output in a file. It is told to end with this process, should that be killed."""
    everywhere = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    program = shutil.which(str(argv[0]), path=everywhere)
    assert program is not None
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["/usr/bin/setpriv", "--pdeathsig", "TERM", program, *map(str, argv[1:])],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            # containerd writes its stacks into the folder for temporary files when dockerd loses patience with it
            env={**os.environ, "PATH": path or everywhere, "TMPDIR": str(log.parent)},
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_S)


def _forget_dead(pidfile: Path) -> None:
    """A containerd dies with its dockerd; where nobody reaps it, its number answers on, and a next dockerd would wait."""
    with contextlib.suppress(OSError, ValueError):
        pid = int(pidfile.read_text())
        end = time.monotonic() + STOP_S
        while not gone(pid) and time.monotonic() < end:
            time.sleep(0.02)
        pidfile.unlink()


def _end_shims(folder: Path) -> None:
    """Containers that a crashed daemon left: each has a shim that names the daemon's socket, and the rank is the shim's child."""
    processes = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    for process in processes:
        with contextlib.suppress(OSError):
            if f"{folder}/".encode() in (process / "cmdline").read_bytes() and (process / "comm").read_text().startswith(
                "containerd-shim"
            ):
                children = (process / f"task/{process.name}/children").read_text().split()
                for pid in (*map(int, children), int(process.name)):
                    os.kill(pid, signal.SIGKILL)


def _wait_until(ready: Any, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_S
    while not ready():
        if process.poll() is not None or time.monotonic() > end:
            pytest.skip(f"the daemon does not start here: {log.read_text(errors='replace')[-400:]}")
        time.sleep(0.05)


def _answers(sock: Path) -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(5)
        probe.connect(str(sock))
        probe.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
        return b"200" in probe.recv(64)
    return False


def _remove(folder: Path) -> None:
    """Unmount what is left below and delete it: layers are large, and pytest keeps old folders."""
    _unmount_below(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _unmount_below(folder: Path) -> None:
    """Deepest first. dockerd leaves ``exec/netns/default`` mounted at its end."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "-l", mount], check=False)
