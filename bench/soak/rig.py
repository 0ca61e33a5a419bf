"""One gang over two hosts with clients at work, and all that a fault and its judge need of it."""

from __future__ import annotations

import contextlib
import json
import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.soak.clients import Load
from bench.soak.clock import Clock
from bench.soak.volume import HeadVolume, WorkerVolume, end_left_volumes
from build.errors import TwinfoldError
from supervisor.runners import procid
from supervisor.runners.procid import ProcessId
from tests.testbed import network, readings
from tests.testbed.bed import Testbed
from tests.testbed.hosts import Host
from tests.testbed.layout import LAN, RAIL0
from tests.testing.demo import demo_state
from tests.testing.fleet import STORE, SupervisedFleet, api, clear, containers, everything

CLIENTS = 3
STATE_MIB, STORE_MIB = 64, 400
SETTINGS = "min_avail_gib = 0.25\n"  # the live file; one of the faults breaks it
# The whole supervisor, with config.toml in a folder of ours.
PROGRAM = """
import sys
from pathlib import Path
from supervisor import cli
cli.CHECKOUT = Path(sys.argv.pop(1))
sys.exit(cli.main())
"""


class SoakedFleet(SupervisedFleet):
    """A fleet's supervisor whose config.toml lies in a folder of the rig's own."""

    def argv(self, *args: str) -> list[str]:
        """In the head's name spaces, with that folder for the checkout's settings."""
        words = super().argv(*args)
        at = words.index("-m")
        return [*words[:at], "-c", PROGRAM, str(self.folder), *words[at + 2 :]]


@dataclass(frozen=True, slots=True)
class RankSeen:
    """One rank of a launch: its container, and every process in it (the container's first one first)."""

    rank: int
    host: Host
    container: str
    processes: tuple[ProcessId, ...]

    @property
    def pid(self) -> int:
        """The engine's own process."""
        return self.processes[-1].pid

    @property
    def runs(self) -> bool:
        """Whether any process of it is left."""
        return any(procid.runs(who) for who in self.processes)


@dataclass(frozen=True, slots=True)
class LaunchSeen:
    """A launch that serves: its id, and its ranks in order."""

    launch_id: str
    ranks: tuple[RankSeen, ...]

    @property
    def runs(self) -> bool:
        """Whether any rank of it is left on any host."""
        return any(rank.runs for rank in self.ranks)


class Rig:
    """Up from construction to :meth:`close`. The testbed is lent."""

    def __init__(self, bed: Testbed, folder: Path, seed: int, **settings: object) -> None:
        self.bed, self.folder, self.seed, self.chance = bed, folder, seed, random.Random(seed)  # noqa: S311 - spreads faults, guards nothing
        (self.worker,) = bed.workers
        self.head = bed.head
        self._ends = contextlib.ExitStack()  # what was made is taken away again, also where the rest cannot be
        try:
            self._make(seed, settings)
        except BaseException:
            self._ends.close()
            raise

    def _make(self, seed: int, settings: Mapping[str, object]) -> None:
        clear(self.bed)
        self._ends.callback(self.reset_readings)
        self.reset_readings()
        volume = self.folder / "volume"
        end_left_volumes()
        self.disk = HeadVolume(self.head, volume, STATE_MIB)
        self._ends.callback(self.disk.close)
        self._ends.callback(clear, self.bed)
        self.far_disk = WorkerVolume(self.worker, STORE, STORE_MIB)
        self._ends.callback(self.far_disk.close)
        self.clock = Clock(self.folder)
        self.gang = SoakedFleet(self.bed, demo_state(volume), self.folder, **{**_settings(self.bed), **settings})
        self._ends.callback(self.gang.close)
        self._ends.callback(self.bed.heal)
        del self.gang.env["TWINFOLD_MIN_AVAIL_GIB"]
        self.gang.env |= self.clock.environment
        self.write_settings(SETTINGS)
        self.gang.start().wait_ready()
        self.load = Load(network.NETNS / self.head.name, self.gang.port, CLIENTS, seed)
        self._ends.callback(self.load.close)

    def close(self) -> None:
        """End the clients, the gang and the volumes, in this order; the testbed stays."""
        self._ends.close()

    def write_settings(self, text: str) -> None:
        """Replace config.toml."""
        readings.replace(self.folder / "config.toml", text)

    def reset_readings(self) -> None:
        """Every host shows plenty of memory, and its GIDs where they were."""
        for host in self.bed.hosts:
            readings.write(host.plan)

    def status(self) -> dict[str, Any]:
        """What the supervisor says; {} while none answers."""
        try:
            return dict(self.gang.status())
        except (OSError, ValueError, TwinfoldError):  # the last where it is stopped
            return {}

    def serving(self) -> str:
        """The id of the launch that serves, or ""."""
        status = self.status()
        return str(status["launch_id"]) if status.get("state") == "serving" else ""

    def start_supervisor(self) -> None:
        """Another one in the place of the last."""
        if self.gang.process:
            self.gang.process.wait(60)
        self.gang.start()

    def launch(self) -> LaunchSeen:
        """The launch that serves now, with its processes."""
        return LaunchSeen(self.serving(), tuple(_rank(host) for host in self.bed.hosts))

    def end_of(self, launch_id: str) -> dict[str, Any] | None:
        """How a launch ended, as it was saved; None where nothing was."""
        for path in (self.gang.state / "logs").glob(f"*-{launch_id}-end.json"):
            found: dict[str, Any] = json.loads(path.read_text())
            return found
        return None

    def saved(self, launch_id: str) -> list[Path]:
        """Every file that was saved of a launch."""
        return sorted((self.gang.state / "logs").glob(f"*-{launch_id}-*"))

    def strangers(self) -> list[str]:
        """Containers and processes of ranks that belong to no launch which serves, each as a line."""
        serving = self.serving()
        found = []
        for host in self.bed.hosts:
            launches = [one["Labels"].get("twinfold.launch") for one in everything(host)]
            found += [f"{host.name} has a container of launch {one}" for one in launches if one != serving]
            kept = set(_rank(host).processes) if containers(host) else set()
            for pid in network.members(host.name):
                who = procid.identify(pid)
                if who and who not in kept and _is_rank(pid):
                    found.append(f"{host.name} has a rank's process {pid} outside the launch that serves")
        return found

    def inside(self, host: Host, path: Path) -> Path:
        """A path as the host's own mounts show it, for reading and writing from here."""
        return Path(f"/proc/{host.running.holder.pid}/root") / path.relative_to("/")


def until(holds: Callable[[], Any], limit_s: float, step_s: float = 0.02) -> float | None:
    """Seconds until it held; None where it did not within the limit."""
    began_s = time.monotonic()
    while not holds():
        if time.monotonic() - began_s > limit_s:
            return None
        time.sleep(step_s)
    return time.monotonic() - began_s


def _settings(bed: Testbed) -> dict[str, object]:
    head, (worker,) = bed.head.plan, bed.workers
    return {
        # ssh goes over the LAN, so that the guards have two paths
        "fabric_peer": worker.plan.address(RAIL0),
        "worker": worker.plan.address(LAN),
        "proc_root": head.proc,
        "sys_root": head.sys,
        "worker_proc_root": worker.plan.proc,
        "worker_sys_root": worker.plan.sys,
        "rails": "auto",
        "context": 8192,
        "gate_wait_s": 60,
        "log_keep": 10000,
        "restart_limit": 1000,
        "restart_pause_max_s": 0.5,
        "TF_STANDIN_ROUND_MS": "20",
    }


def _rank(host: Host) -> RankSeen:
    (one,) = containers(host)
    daemon = api(host)
    try:
        first = int(daemon.get(f"/containers/{one['Id']}/json").document["State"]["Pid"])
    finally:
        daemon.close()
    found = [who for pid in _family(first) if (who := procid.identify(pid))]
    return RankSeen(int(one["Labels"]["twinfold.rank"]), host, one["Id"], tuple(found))


def _family(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        children = []
    return [pid, *(below for child in children for below in _family(int(child)))]


def _is_rank(pid: int) -> bool:
    """Whether the process is an engine's: ranks, and nothing else, carry the launch in their environment."""
    try:
        return b"TWINFOLD_RANK=" in (Path("/proc") / str(pid) / "environ").read_bytes()
    except OSError:
        return False


def say(text: str) -> None:
    """One line of a run, at once."""
    print(text, flush=True)


def warn(text: str) -> None:
    """One line beside the run."""
    print(text, file=sys.stderr, flush=True)
