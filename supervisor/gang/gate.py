"""Before a launch: what must hold on this node. Refuses with one line, or waits for memory as long as it may."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Self

from build.errors import Refused
from build.facts import read_meminfo
from build.nodes.hosts import HEAD
from build.units import gib
from supervisor.gang import ports
from supervisor.gang.launch import Blueprint, Plan
from supervisor.memory import largest
from supervisor.memory.policy import Gate, GateState, GateVerdict, GateWatch, Sample, watch_gate
from supervisor.settings import Memory

Say = Callable[[str], None]
DROP_S = 300.0
LEAST_CONTEXT = 1024  # the smallest that a setting can ask for


class Cancelled(Exception):
    """The launch is no longer wanted."""


def check_ports(one: Blueprint) -> None:
    """``Refused`` naming the owner where a port that the ranks listen on is taken."""
    serve = one.configuration.serve
    wanted = [("port", serve.host, serve.port)]
    if one.bundle.world_size > 1:
        wanted.append(("master_port", one.master, serve.master_port))
    for name, host, port in wanted:
        if ports.taken(host, port):
            raise Refused(f"port {port} is taken by {ports.owner(port)}: stop it, or set {name} to another")


def available_bytes(memory: Memory) -> int:
    """MemAvailable of this node. ``Refused`` where it cannot be read: then nothing can be promised."""
    try:
        return read_meminfo(memory.proc_root).available_bytes
    except (OSError, ValueError) as error:
        raise Refused(f"{memory.proc_root}/meminfo cannot be read ({error}): set proc_root") from None


def drop_own_pages(one: Blueprint, tool: Path, say: Say) -> None:
    """Give back the page cache of what the launch will load: copying and hashing left it there, and a device cannot have it."""
    paths = [str(path) for path in one.loaded_paths]
    try:
        done = subprocess.run([str(tool), "drop", "--", *paths], capture_output=True, timeout=DROP_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        say(f"the page cache of our own files could not be dropped: {error}")
        return
    if done.returncode:
        say(f"not all page cache of our own files was dropped: {done.stderr.decode(errors='replace').strip()}")


class MemoryWait:
    """Waits until the memory of this node that a launch needs has been there for a while.

    A context manager: until :meth:`wait` it looks in a thread of its own, so that the while passes beside all else that
    the gate asks for.
    """

    def __init__(self, one: Blueprint, cancelled: threading.Event, say: Say, clock: Callable[[], float] = time.monotonic) -> None:
        asked, memory = one.asked_context, one.configuration.memory
        self._need = one.running_at(LEAST_CONTEXT if isinstance(asked, str) else asked).need_bytes
        self._gate = Gate(self._need, memory.gate_stable_s, memory.gate_wait_s, memory.sample_stale_s, on_free=one.gate_on_free)
        self._memory, self._cancelled, self._say, self._clock = memory, cancelled, say, clock
        self._watch = GateWatch(clock())
        self._asked_for = threading.Event()
        self._beside = threading.Thread(target=self._look_on, name="gate-memory", daemon=True)

    def __enter__(self) -> Self:
        self._beside.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._asked_for.set()
        self._beside.join()

    def wait(self) -> None:
        """Return once it is there. ``Refused`` where it is not within ``gate_wait_s`` from now; ``Cancelled``."""
        self._asked_for.set()
        self._beside.join()
        self._watch, told = replace(self._watch, began_s=self._clock()), False
        while True:
            if self._cancelled.is_set():
                raise Cancelled
            verdict = self._look()
            if verdict.state is GateState.OPEN:
                return
            if verdict.state is GateState.REFUSED:
                raise Refused(_short(self._need, verdict, self._memory))
            if verdict.short_bytes and not told:
                told = True
                self._tell(verdict.short_bytes)
            self._cancelled.wait(self._memory.sample_period_s)

    def _look_on(self) -> None:
        while not self._cancelled.is_set():
            self._look()
            if self._asked_for.wait(self._memory.sample_period_s):
                return

    def _look(self) -> GateVerdict:
        now_s = self._clock()
        self._watch, verdict = watch_gate(self._gate, self._watch, _sample(self._memory, now_s), self._clock())
        return verdict

    def _tell(self, short_bytes: int) -> None:
        self._say(
            f"waiting for memory, at most {self._memory.gate_wait_s:g} s: {gib(self._need, 2)} must be available,"
            f" {gib(short_bytes, 2)} are short{_largest(self._memory)}"
        )


def plan_when_it_fits(one: Blueprint, memory_wait: MemoryWait, elsewhere: Callable[[], Mapping[str, int]] = dict) -> Plan:
    """Wait until the least that was asked for fits, then choose the context by what is there.

    What was asked for is bounded by the ladder's rung where an eviction has lowered it. ``elsewhere`` gives what the workers have
    available, by name; they have been waited for.

    ``Refused`` says which context would fit, where one would.
    """
    memory = one.configuration.memory
    try:
        memory_wait.wait()
    except Refused:
        one.at({HEAD: available_bytes(memory)})
        raise
    return one.at({HEAD: available_bytes(memory), **elsewhere()})


def _sample(memory: Memory, at_s: float) -> Sample | None:
    try:
        seen = read_meminfo(memory.proc_root)
    except (OSError, ValueError):
        return None
    return Sample(at_s, seen.available_bytes, seen.free_bytes)


def _largest(memory: Memory) -> str:
    named = largest.as_text(largest.largest(memory.proc_root))
    return f" (the largest: {named})" if named else ""


def _short(need: int, verdict: GateVerdict, memory: Memory) -> str:
    missing = "its memory cannot be read" if verdict.short_bytes is None else f"{gib(verdict.short_bytes, 2)} are short"
    return (
        f"too little memory on head: a launch needs {gib(need, 2)} available"
        f" (the floor of {memory.min_avail_gib:g} GiB beside it), {missing} after {memory.gate_wait_s:g} s:"
        f" stop other programs{_largest(memory)}, or lower min_avail_gib"
    )
