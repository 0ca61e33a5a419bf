"""How long from memory below the hard floor to the rank's death: the guard, a 0.5 s loop with ``docker kill``, earlyoom.

``python -m bench.guard_latency [--trials N] [--slow-trials N]`` as root. All read the same kind of file: the guard through
--proc, the loop by its path, earlyoom through a mount name space in which the file covers /proc/meminfo (with a pid name space of
its own, so that it sees nobody else). The fall comes at a random moment of the reader's period. The guard has a client that never
reads all the while. Over containers the guards are containers too, on a host of the testbed that is cut off from everything: its
dockerd and the client stopped (SIGSTOP), its sshd gone, its cables out. Loop and earlyoom are slow: they get fewer trials.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench import guard_cut_off
from bench.hosts import two_hosts
from build.image.docker_api import Api, connect
from tests.testbed import bed
from tests.testbed.hosts import Host
from tests.testing.node_tool import GIB, GuardProcess, ProcTree, Victim, start_ticks

ABOVE_BYTES, BELOW_BYTES = 30 * GIB, GIB
DEADLINE_S = 20.0
BATCH = 10
HOG = "import sys,time; b=bytearray(int(sys.argv[1])<<20); print('up',flush=True); time.sleep(1000)"


@dataclass(slots=True)
class Row:
    """One way's figures in milliseconds: from the write of the low figure to the death, and from the sample that saw it."""

    way: str
    from_write_ms: list[float] = field(default_factory=list)
    from_sample_ms: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, object]:
        """For a person and for a program."""
        found: dict[str, object] = {"way": self.way, "trials": len(self.from_write_ms)}
        for name, values in (("from_write", self.from_write_ms), ("from_sample", self.from_sample_ms)):
            if values:
                found |= {f"{name}_ms": {key: round(quantile(values, q), 2) for key, q in QUANTILES.items()}}
        return found


@dataclass(frozen=True, slots=True)
class Rank:
    """A process that a guard is put over."""

    pid: int
    start_ticks: int


QUANTILES = {"p50": 0.5, "p99": 0.99, "max": 1.0}


def quantile(values: list[float], q: float) -> float:
    """The smallest value that at least ``q`` of all do not exceed."""
    ranked = sorted(values)
    return ranked[math.ceil(q * len(ranked)) - 1]


def fall(proc: ProcTree, period_s: float, readable: int) -> float:
    """Let memory fall at a random moment; milliseconds until ``readable`` says that the victim is dead."""
    time.sleep(3 * period_s + random.random() * period_s)  # noqa: S311 - a moment, no secret
    began = proc.set(BELOW_BYTES, in_place=True)
    if not select.select([readable], [], [], DEADLINE_S)[0]:
        raise SystemExit("error: the victim was never killed")
    return (time.monotonic() - began) * 1000


def guard_trial(folder: Path, pid: int, row: Row) -> None:
    """One guard over one process, with a client that never reads."""
    proc = ProcTree(folder / "proc", ABOVE_BYTES)
    guard = GuardProcess(folder, Rank(pid, start_ticks(pid)), proc)
    deaf, pidfd = guard.listen(), os.pidfd_open(pid)
    with contextlib.closing(deaf), contextlib.closing(guard):
        row.from_write_ms.append(fall(proc, 0.1, pidfd))
        guard.wait()
        kill, *_, dead = guard.logged()
        row.from_sample_ms.append((kill["read_to_signal_us"] + dead["us_after_signal"]) / 1000)
    os.close(pidfd)


def guard_over_processes(root: Path, trials: int, victim_mib: int) -> Row:
    row = Row(f"guard, process of {victim_mib} MiB")
    for number in range(trials):
        victim = Victim(sys.executable, "-c", HOG, str(victim_mib))
        assert victim.process.stdout
        victim.process.stdout.readline()
        guard_trial(fresh(root, f"g{number}"), victim.pid, row)
        victim.close()
    return row


def guard_cut_off_from_all(root: Path, host: Host, trials: int) -> Row:
    row = Row("guard in a container; dockerd and supervisor stopped, ssh and cables cut")
    for first in range(0, trials, BATCH):
        with guard_cut_off.batch(host, root, range(first, min(first + BATCH, trials)), ABOVE_BYTES) as guarded:
            for one in guarded:
                row.from_write_ms.append(fall(one.proc, 0.1, one.pidfd))
                until_said(one)
                row.from_sample_ms.append(one.sample_to_death_ms())
    return row


def until_said(one: guard_cut_off.GuardedContainer) -> None:
    """The guard's last line is written after the death."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        with contextlib.suppress(OSError, StopIteration):
            one.sample_to_death_ms()
            return
        time.sleep(0.01)


def shell_loop(root: Path, host: Host, trials: int) -> Row:
    row = Row("shell loop 0.5 s, docker kill")
    with contextlib.closing(connect(str(host.plan.docker_socket), host.name)) as api:
        for number in range(trials):
            row.from_write_ms.append(loop_trial(ProcTree(fresh(root, f"s{number}") / "proc", ABOVE_BYTES), host, api))
    return row


def loop_trial(proc: ProcTree, host: Host, api: Api) -> float:
    """One fall under the loop, in milliseconds; its daemon works."""
    pidfd = os.pidfd_open(guard_cut_off.start_sleeper(api, "victim"))
    script = (
        'while :; do a=$(awk \'/MemAvailable/{print $2}\' "$1"); [ "$a" -lt "$2" ] && docker -H "$3" kill victim; sleep 0.5; done'
    )
    argv = ["sh", "-c", script, "sh", str(proc.root / "meminfo"), str((2 * GIB) >> 10), f"unix://{host.plan.docker_socket}"]
    try:
        with ended(subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)):
            return fall(proc, 0.5, pidfd)
    finally:
        os.close(pidfd)
        api.delete("/containers/victim", {"force": "1"})


def earlyoom(root: Path, trials: int) -> Row:
    row = Row("earlyoom, default period")
    script = 'mount --bind "$1" /proc/meminfo; sleep 1000 & exec earlyoom -M "$2,$2" -r 0'
    for number in range(trials):
        proc = ProcTree(fresh(root, f"e{number}") / "proc", ABOVE_BYTES)
        argv = ["unshare", "-m", "-p", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, "sh"]
        argv += [str(proc.root / "meminfo"), str((2 * GIB) >> 10)]
        with ended(subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)) as started:
            pidfd = os.pidfd_open(child_of(child_of(started.pid), "sleep"))
            time.sleep(0.5)
            row.from_write_ms.append(fall(proc, 0.5, pidfd))
            os.close(pidfd)
    return row


def child_of(pid: int, called: str = "") -> int:
    """The first child that a process comes to have, or the first that runs the program of that name."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with contextlib.suppress(OSError):
                if not called or Path(f"/proc/{child}/comm").read_text().strip() == called:
                    return int(child)
        time.sleep(0.01)
    raise SystemExit(f"error: process {pid} started nothing")


@contextlib.contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def fresh(root: Path, name: str) -> Path:
    folder = root / name
    folder.mkdir()
    return folder


def main(argv: list[str]) -> int:
    """Measure and print, a JSON line a way."""
    parser = argparse.ArgumentParser(prog="python -m bench.guard_latency", description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--slow-trials", type=int, default=20)
    parser.add_argument("--victim-mib", type=int, default=64)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="tf-") as name:
        root = Path(name)
        show(lambda: guard_over_processes(root, args.trials, args.victim_mib))
        if shutil.which("earlyoom"):
            show(lambda: earlyoom(root, args.slow_trials))
        on_the_testbed(root, args.trials, args.slow_trials)
    return 0


def on_the_testbed(root: Path, trials: int, slow_trials: int) -> None:
    """What needs a daemon, on a testbed of this run's own; nothing, with the reason, where none can be made."""
    busybox = shutil.which("busybox")
    if why := bed.why_not() or ("" if busybox else "busybox-static is not installed"):
        print(f"left out: {why}", file=sys.stderr)
        return
    with two_hosts() as testbed:
        (worker,) = testbed.workers
        guard_cut_off.import_images(worker, root, Path(str(busybox)))
        show(lambda: shell_loop(root, worker, slow_trials))
        show(lambda: guard_cut_off_from_all(fresh(root, "c"), worker, trials))


def show(measure: Callable[[], Row]) -> None:
    print(json.dumps(measure().summary()), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
