"""Up, down and status of a whole testbed.

Everything is under one folder, and ``state.json`` in it names every daemon by pid, start time and boot. ``down`` also finds
what no state file names (a crash in the middle of ``up``): every process in one of the testbed's network name spaces.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from supervisor.runners import procid
from tests.testbed import daemons, network, processes, readings, state
from tests.testbed.hosts import Host
from tests.testbed.layout import NETWORKS, HostPlan, Layout
from tests.testbed.state import Running, State

TOOLS = ("ip", "nsenter", "unshare", "iptables", "tc", "dockerd", "containerd", "/usr/sbin/sshd", "ssh", "ssh-keygen", "mount")


class Busy(RuntimeError):
    """Someone else is at work on this testbed, or has left it up; or none can be made here."""


def why_not() -> str:
    """Why no testbed can be made here, or an empty string."""
    if os.geteuid() != 0:
        return "the testbed needs root (network name spaces, dockerd, sshd)"
    missing = [tool for tool in TOOLS if shutil.which(tool, path=os.defpath + ":/usr/sbin:/sbin:/usr/local/bin") is None]
    return "the testbed needs " + ", ".join(missing) if missing else ""


@dataclass(slots=True)
class Testbed:
    """A testbed that is up."""

    __test__ = False  # not a test class

    layout: Layout
    hosts: tuple[Host, ...]

    @property
    def head(self) -> Host:
        """The host that the programs of the head run on."""
        return self.hosts[0]

    @property
    def workers(self) -> tuple[Host, ...]:
        """All the others."""
        return self.hosts[1:]

    @property
    def worker(self) -> Host:
        """The first of them."""
        return self.hosts[1]

    def on(self, name: str) -> Host:
        """A host by name."""
        return next(host for host in self.hosts if host.name == name)

    def heal(self) -> None:
        """Undo every fault of every cable, and wait until all carry again."""
        for host in self.hosts:
            host.heal()
        processes.wait_until(
            lambda: all(host.carries(n) for host in self.hosts for n in NETWORKS), 10.0, "a cable stays without carrier"
        )


@contextmanager
def locked(layout: Layout, wait_s: float = 0.0) -> Iterator[None]:
    """Be the only one at work on this testbed; ``Busy`` where another one still is after ``wait_s``."""
    layout.folder.mkdir(parents=True, exist_ok=True)
    lock = layout.folder / "lock"
    fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _take(fd, lock, wait_s)
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(fd)


def _take(fd: int, lock: Path, wait_s: float) -> None:
    until = time.monotonic() + wait_s
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                owner = lock.read_text().strip()
                raise Busy(f"process {owner} is at work on the testbed in {lock.parent}: wait for it, or end it") from None
        time.sleep(0.1)


@contextmanager
def own(layout: Layout, wait_s: float = 0.0) -> Iterator[Testbed]:
    """A testbed for this block alone: made for it, and down after it. ``Busy`` where there can be none within ``wait_s``."""
    if reason := why_not():
        raise Busy(reason)
    with locked(layout, wait_s):
        try:
            yield up(layout, keep=False)
        finally:
            if opened(layout) is None:  # a person's testbed was not ours to use, so it is not ours to end
                down(layout)


def up(layout: Layout, *, keep: bool) -> Testbed:
    """Make the testbed; the lock must be held. What a crash left is taken down first.

    ``keep``: it stays until ``down`` (a person's); one without it that is found here was left by a crash. ``Busy`` where a
    person's is still up.
    """
    found = state.read(layout.folder)
    if found.keep and found.alive():
        raise Busy(f"the testbed in {layout.folder} is up: `python -m tests.testbed down` ends it")
    down(layout)
    for plan in layout.hosts:
        plan.folder.mkdir(parents=True)
        daemons.write_accounts(plan)
        readings.write(plan)
    daemons.write_keys(layout)
    network.make(layout)
    with ThreadPoolExecutor(layout.size) as pool:
        running = list(pool.map(lambda plan: _start(layout, plan), layout.hosts))
    bed = _bed(layout, running, keep=keep)
    for host in bed.hosts:
        daemons.wait_docker(host.plan, host.running.dockerd)
    return bed


def _start(layout: Layout, plan: HostPlan) -> Running:
    holder = daemons.start_holder(layout, plan)
    dockerd = daemons.start_dockerd(plan, holder)
    return Running(holder, daemons.start_sshd(plan, holder), dockerd)


def _bed(layout: Layout, running: list[Running], *, keep: bool) -> Testbed:
    bed = Testbed(layout, ())
    bed.hosts = tuple(Host(plan, run, lambda: _write(bed, keep=keep)) for plan, run in zip(layout.hosts, running, strict=True))
    _write(bed, keep=keep)
    return bed


def opened(layout: Layout) -> Testbed | None:
    """The testbed that a person left up in this folder, whatever its size is; None where there is none."""
    found = state.read(layout.folder)
    if not found.keep or not found.alive():
        return None
    layout = Layout(layout.folder, len(found.hosts), layout.prefix)
    return _bed(layout, [found.hosts[plan.name] for plan in layout.hosts], keep=True)


def down(layout: Layout) -> None:
    """End every process, remove every name space and all below the folder, as far as there is any. The lock must be held."""
    pids = [pid for name in layout.namespaces for pid in network.members(name)]
    if os.getpid() in pids:
        raise Busy("this program runs on a host of the testbed itself: end the testbed from outside")
    processes.end_all(lambda: _members(layout))
    network.remove(layout)
    _unmount(layout.folder)
    for item in layout.folder.iterdir() if layout.folder.exists() else ():
        if item.is_dir():
            shutil.rmtree(item)
        elif item.name != "lock":
            item.unlink()


def _members(layout: Layout) -> set[int]:
    found = {pid for name in layout.namespaces for pid in network.members(name)}
    for running in state.read(layout.folder).hosts.values():
        found |= {who.pid for who in running.all() if procid.runs(who)}
    for plan in Layout(layout.folder, 4, layout.prefix).hosts:
        found |= set(daemons.container_pids(plan))
    return found


def _unmount(folder: Path) -> None:
    """Mounts below the folder that some other mount name space of ours let slip; the innermost first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [line.split()[4] for line in lines if line.split()[4].startswith(f"{folder}/")]
    for point in sorted(points, key=len, reverse=True):
        subprocess.run(["umount", "--lazy", point], check=False, capture_output=True)


def _write(bed: Testbed, *, keep: bool) -> None:
    state.write(bed.layout.folder, State(keep, {host.name: host.running for host in bed.hosts}))
