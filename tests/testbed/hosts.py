"""One running host: run programs on it, and break its cables, its memory readings and its daemons."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from supervisor.runners import procid
from supervisor.runners.procid import ProcessId
from tests.testbed import daemons, network, processes, readings
from tests.testbed.layout import NETWORKS, RAIL0, HostPlan, Network
from tests.testbed.state import Running

CHAIN = "TESTBED"  # every packet rule of ours is in this chain, so that heal() takes nothing of anyone else's


@dataclass(slots=True)
class Host:
    """A host that is up. ``changed`` is told when a daemon of it was started anew, so that the state file names the new one."""

    plan: HostPlan
    running: Running
    changed: Callable[[], None]

    @property
    def name(self) -> str:
        """Its name, which is also its ssh alias on the head."""
        return self.plan.name

    @property
    def prefix(self) -> tuple[str, ...]:
        """Words in front of a command that make it run here, for who starts programs himself."""
        return tuple(daemons.entry(self.plan, self.running.holder))

    def command(self, argv: Sequence[str], folder: Path | None = None) -> list[str]:
        """``argv`` as a command that runs on this host, in ``folder`` (default: the home folder)."""
        return [*daemons.entry(self.plan, self.running.holder, folder), *argv]

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """What a login on this host has, and ``extra``."""
        return {"HOME": str(self.plan.home), "PATH": self.plan.path, "LANG": "C.UTF-8", "USER": "root", **(extra or {})}

    def run(
        self,
        argv: Sequence[str],
        *,
        folder: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program here to its end; its words come back. Raises when it fails and ``check`` is set."""
        command = self.command(argv, folder)
        done = subprocess.run(
            command,
            env=self.environment(env),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if check and done.returncode:
            raise RuntimeError(
                f"{' '.join(argv)} on {self.name} ended with {done.returncode}: {done.stderr.strip() or done.stdout.strip()}"
            )
        return done

    def popen(
        self, argv: Sequence[str], *, folder: Path | None = None, env: Mapping[str, str] | None = None, **kwargs: object
    ) -> subprocess.Popen[bytes]:
        """Start a program here; the caller ends it."""
        return subprocess.Popen(self.command(argv, folder), env=self.environment(env), **kwargs)  # type: ignore[call-overload,no-any-return]

    def link(self, rail: Network, *, up: bool) -> None:
        """Pull the cable of one network out of this host, or put it back."""
        self._ip("link", "set", rail.device, "up" if up else "down")

    def set_mtu(self, rail: Network, mtu: int) -> None:
        """Change this end's MTU."""
        self._ip("link", "set", rail.device, "mtu", str(mtu))

    def slow(self, rail: Network, bytes_per_s: int) -> None:
        """Let this end send no faster than this."""
        rate, burst = f"{bytes_per_s * 8}bit", str(max(rail.mtu * 2, bytes_per_s // 100))
        self._net("tc", "qdisc", "replace", "dev", rail.device, "root", "tbf", "rate", rate, "burst", burst, "latency", "200ms")

    def lose(self, rail: Network, probability: float) -> None:
        """Drop this share of the packets that arrive here, at random; 1.0 is every one."""
        self._chain()
        drop = ["-i", rail.device, *_chance(probability), "-j", "DROP"]
        for tool in ("iptables", "ip6tables"):
            self._net(tool, "-A", CHAIN, *drop)

    def cut_from(self, other: HostPlan, *networks: Network) -> None:
        """Drop what the other host sends on these networks, as a broken switch does: links stay up."""
        self._chain()
        for rail in networks:
            self._net("iptables", "-A", CHAIN, "-s", other.address(rail), "-j", "DROP")

    def heal(self) -> None:
        """Undo loss, cuts and slowness, put MTUs back and cables in."""
        for tool in ("iptables", "ip6tables"):
            if self._has_chain(tool):
                self._net(tool, "-F", CHAIN)
        for rail in NETWORKS:
            self._net("sh", "-c", f"tc qdisc del dev {rail.device} root 2>/dev/null || true")
            self.set_mtu(rail, rail.mtu)
            self.link(rail, up=True)

    def mtu(self, rail: Network = RAIL0) -> int:
        """This end's MTU now."""
        return int(json.loads(self._net("ip", "-j", "link", "show", rail.device))[0]["mtu"])

    def carries(self, rail: Network) -> bool:
        """Whether this end sees a carrier."""
        return bool(json.loads(self._net("ip", "-j", "link", "show", rail.device))[0]["operstate"] == "UP")

    def restart_sshd(self) -> None:
        """End sshd and every connection of it, and start it anew."""
        self.stop_sshd()
        self.running = replace(self.running, sshd=daemons.start_sshd(self.plan, self.running.holder))
        self.changed()

    def stop_sshd(self) -> None:
        """End sshd and every connection of it; commands that ran over them go on until they notice."""
        processes.end(self.running.sshd)
        processes.end_all(lambda: (pid for pid in network.members(self.name) if _is_sshd(pid)))

    def freeze_dockerd(self) -> None:
        """Stop dockerd as SIGSTOP does: its socket still takes connections, and nobody answers."""
        signal_to(self.running.dockerd, signal.SIGSTOP)

    def thaw_dockerd(self) -> None:
        """Let it go on."""
        signal_to(self.running.dockerd, signal.SIGCONT)

    def stop_dockerd(self) -> None:
        """End dockerd in order; its containers end with it."""
        processes.end(self.running.dockerd, signal.SIGTERM, wait_s=60.0)

    def start_dockerd(self) -> None:
        """Start dockerd anew."""
        self.running = replace(self.running, dockerd=daemons.start_dockerd(self.plan, self.running.holder))
        self.changed()
        daemons.wait_docker(self.plan, self.running.dockerd)

    def set_meminfo(self, **kilobytes: int) -> None:
        """Rewrite this host's meminfo with these fields changed."""
        readings.write_meminfo(self.plan.proc, {**readings.MEMINFO_KB, **kilobytes})

    def _ip(self, *words: str) -> None:
        self._net("ip", *words)

    def _net(self, *argv: str) -> str:
        return network.in_namespace(self.name, list(argv))

    def _chain(self) -> None:
        for tool in ("iptables", "ip6tables"):
            if not self._has_chain(tool):
                self._net(tool, "-N", CHAIN)
                self._net(tool, "-I", "INPUT", "-j", CHAIN)

    def _has_chain(self, tool: str) -> bool:
        return f"-N {CHAIN}" in self._net(tool, "-S")


def signal_to(who: ProcessId, number: int) -> None:
    """Send a signal to exactly this process."""
    fd = procid.open_pidfd(who)
    if fd is None:
        raise RuntimeError(f"process {who.pid} of the testbed has ended")
    try:
        signal.pidfd_send_signal(fd, number)
    finally:
        os.close(fd)


def _chance(probability: float) -> list[str]:
    if not 0.0 < probability <= 1.0:
        raise ValueError("a share of the packets above 0, up to 1")
    return [] if probability == 1.0 else ["-m", "statistic", "--mode", "random", "--probability", f"{probability:.6f}"]


def _is_sshd(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "comm").read_text().strip().startswith("sshd")
    except OSError:
        return False
