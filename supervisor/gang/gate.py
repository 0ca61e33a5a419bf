"""Before a launch: what must hold on this node. Refuses with one line, or waits for memory as long as it may."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from build.errors import Refused
from build.facts import read_meminfo
from build.nodes.hosts import HEAD
from build.units import gib
from supervisor.gang import ports
from supervisor.gang.launch import Blueprint, Plan
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


def plan_when_it_fits(
    one: Blueprint, cancelled: threading.Event, say: Say, elsewhere: Callable[[], Mapping[str, int]] = dict
) -> Plan:
    """Wait until the least that was asked for fits, then choose the context by what is there.

    What was asked for is bounded by the ladder's rung where an eviction has lowered it. ``elsewhere`` gives what the workers have
    available, by name; they have been waited for.

    ``Refused`` says which context would fit, where one would.
    """
    asked, memory = one.asked_context, one.configuration.memory
    least = one.running_at(LEAST_CONTEXT if isinstance(asked, str) else asked)
    try:
        wait_for_memory(least, cancelled, say)
    except Refused:
        one.at({HEAD: available_bytes(memory)})
        raise
    return one.at({HEAD: available_bytes(memory), **elsewhere()})


def wait_for_memory(plan: Plan, cancelled: threading.Event, say: Say, clock: Callable[[], float] = time.monotonic) -> None:
    """Return once the memory that the launch needs has been there for a while. ``Refused`` after ``gate_wait_s``."""
    memory = plan.blueprint.configuration.memory
    need = plan.need_bytes
    gate = Gate(need, memory.gate_stable_s, memory.gate_wait_s, memory.sample_stale_s, on_free=plan.blueprint.gate_on_free)
    watch, told = GateWatch(clock()), False
    while True:
        watch, verdict = watch_gate(gate, watch, _sample(memory, clock()), clock())
        if verdict.state is GateState.OPEN:
            return
        if verdict.state is GateState.REFUSED:
            raise Refused(_short(need, verdict, memory))
        if verdict.short_bytes and not told:
            told = True
            short = gib(verdict.short_bytes, 2)
            say(f"waiting for memory, at most {memory.gate_wait_s:g} s: {gib(need, 2)} must be available, {short} are short")
        if cancelled.wait(memory.sample_period_s):
            raise Cancelled


def _sample(memory: Memory, at_s: float) -> Sample | None:
    try:
        seen = read_meminfo(memory.proc_root)
    except (OSError, ValueError):
        return None
    return Sample(at_s, seen.available_bytes, seen.free_bytes)


def _short(need: int, verdict: GateVerdict, memory: Memory) -> str:
    missing = "its memory cannot be read" if verdict.short_bytes is None else f"{gib(verdict.short_bytes, 2)} are short"
    return (
        f"too little memory on head: a launch needs {gib(need, 2)} available"
        f" (the floor of {memory.min_avail_gib:g} GiB beside it), {missing} after {memory.gate_wait_s:g} s:"
        " stop other programs, or lower min_avail_gib"
    )
