"""Guards in containers of a host that nobody reaches: dockerd stopped, sshd gone, every cable out, the supervisor stopped.

Guards and ranks are started as a gang's are; what follows happens without any of these, as on a machine that is about to freeze.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from build.image.docker_api import Api, connect
from build.image.recipes import NODE_TOOL_AT
from supervisor.guard.containers import ContainerGuards
from supervisor.guard.places import HeadPlace
from supervisor.guard.spec import GuardSpec, Limits, name
from supervisor.guard.wire import GuardEvent, parse
from tests.testbed.hosts import Host
from tests.testbed.layout import NETWORKS
from tests.testing.node_tool import GIB, ProcTree, node_tool, start_ticks

VICTIM, TOOL = "guard-bench-victim", "guard-bench-tool"
# The supervisor's part: it hears every guard, and is stopped in the middle of it.
LISTEN = "import os,signal,socket,sys\nheld=[]\nfor path in sys.argv[1:]:\n s=socket.socket(socket.AF_UNIX); s.connect(path)"
LISTEN += "; held.append((s, s.recv(1)))\nprint('up', flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)"


class GuardedContainer:
    """A container that sleeps, and its guard in another one."""

    def __init__(self, api: Api, folder: Path, number: int, above_bytes: int) -> None:
        self._api, self._folder, self.launch = api, folder, f"trial{number}"
        self.proc = ProcTree(folder / f"{self.launch}-proc", above_bytes)
        self.host = ContainerGuards(
            api,
            HeadPlace(folder),
            image=lambda: TOOL,
            user=lambda: f"{os.getuid()}:{os.getgid()}",
            proc=PurePosixPath(self.proc.root),
        )
        self.pid = start_sleeper(api, self.launch)
        limits = Limits(2 * GIB, 4 * GIB, 0.5, 0.1, str(self.proc.root), 0, 10, linger_s=0)
        self.host.start(GuardSpec(self.launch, 0, "bench", self.pid, start_ticks(self.pid), limits), b"")
        self.pidfd = os.pidfd_open(self.pid)

    @property
    def socket(self) -> Path:
        """Of the guard's stream."""
        return self._folder / self.launch / f"{name(0)}.sock"

    def sample_to_death_ms(self) -> float:
        """From the sample that saw the low figure to the death, as the guard logged it."""
        log = (self._folder / self.launch / f"{name(0)}.log").read_bytes()
        told = [line.told for raw in log.splitlines() if isinstance(line := parse(raw), GuardEvent)]
        dead = next(one for one in told if one["event"] == "dead")
        return float(told[0]["read_to_signal_us"] + dead["us_after_signal"]) / 1000

    def close(self) -> None:
        """Remove both containers."""
        os.close(self.pidfd)
        self.host.remove(self.launch, 0)
        self._api.delete(f"/containers/{self.launch}", {"force": "1"})


def start_sleeper(api: Api, called: str) -> int:
    """A container that only sleeps; its pid as the host sees it."""
    body = {"Image": VICTIM, "Entrypoint": ["/busybox", "sleep", "1000"], "HostConfig": {"NetworkMode": "none"}}
    made = api.post("/containers/create", {"name": called}, body)
    if made.status != 201 or api.post(f"/containers/{called}/start").status != 204:
        raise SystemExit(f"error: no container could be started: {made.message}")
    return int(api.get(f"/containers/{called}/json").document["State"]["Pid"])


@contextlib.contextmanager
def batch(host: Host, folder: Path, numbers: range, above_bytes: int) -> Iterator[list[GuardedContainer]]:
    """Guarded containers of a host that is then cut off from everything until the end."""
    with contextlib.ExitStack() as stack:
        api = stack.enter_context(contextlib.closing(connect(str(host.plan.docker_socket), host.name)))
        found = []
        for number in numbers:
            found.append(GuardedContainer(api, folder, number, above_bytes))
            stack.callback(found[-1].close)
        stack.enter_context(stopped_listener([str(one.socket) for one in found]))
        stack.enter_context(cut_off(host))
        yield found


@contextlib.contextmanager
def cut_off(host: Host) -> Iterator[None]:
    """No dockerd, no sshd, no cable."""
    host.freeze_dockerd()
    host.stop_sshd()
    for network in NETWORKS:
        host.link(network, up=False)
    try:
        yield
    finally:
        host.heal()
        host.restart_sshd()
        host.thaw_dockerd()


@contextlib.contextmanager
def stopped_listener(sockets: list[str]) -> Iterator[None]:
    """A process that hears every guard and is stopped."""
    listener = subprocess.Popen([sys.executable, "-c", LISTEN, *sockets], stdout=subprocess.PIPE)
    assert listener.stdout is not None
    try:
        if listener.stdout.readline() != b"up\n":
            raise SystemExit("error: the guards' streams could not be heard")
        os.waitid(os.P_PID, listener.pid, os.WSTOPPED | os.WNOWAIT)
        yield
    finally:
        listener.send_signal(signal.SIGKILL)
        listener.wait()
        listener.stdout.close()


def import_images(host: Host, folder: Path, busybox: Path) -> None:
    """The victims' image and the node tool's, as small as they can be."""
    for image, file, at in ((VICTIM, busybox, "/busybox"), (TOOL, node_tool(), NODE_TOOL_AT)):
        archive = folder / f"{image}.tar"
        tar = ["tar", "-C", str(file.parent), "-cf", str(archive), f"--transform=s,.*,{at.strip('/')},", file.name]
        subprocess.run(tar, check=True)
        docker = ["docker", "-H", f"unix://{host.plan.docker_socket}", "import", str(archive), image]
        subprocess.run(docker, check=True, stdout=subprocess.DEVNULL, timeout=60)
