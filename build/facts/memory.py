"""``/proc/meminfo`` and ``/proc/pressure/memory``: kernel formats, the same in every language."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

KIB = 1024


@dataclass(frozen=True, slots=True)
class Meminfo:
    """Memory of one node in bytes. The CMA fields are None on kernels without CMA."""

    total_bytes: int
    free_bytes: int
    available_bytes: int
    cached_bytes: int = 0
    buffers_bytes: int = 0
    swap_total_bytes: int = 0
    swap_free_bytes: int = 0
    cma_total_bytes: int | None = None
    cma_free_bytes: int | None = None

    @property
    def page_cache_bytes(self) -> int:
        """What Linux counts as available but CUDA does not."""
        return self.cached_bytes + self.buffers_bytes


@dataclass(frozen=True, slots=True)
class Pressure:
    """Pressure stall information: share of time in percent over 10, 60 and 300 s, and the total stalled time."""

    some_avg10: float
    some_total_us: int
    full_avg10: float
    full_total_us: int


@dataclass(frozen=True, slots=True)
class CmaFinding:
    """Memory that a kernel has lost to a broken CMA account, with the advice that gives it back."""

    reason: str
    message: str


def meminfo(text: str) -> Meminfo:
    """Read ``/proc/meminfo``. ``ValueError`` where one of the three figures that everything rests on is missing."""
    kib = {m[1]: int(m[2]) for m in re.finditer(r"^(\w+(?:\(\w+\))?):[ \t]+(\d+)(?: kB)?\s*$", text, re.MULTILINE)}
    missing = [name for name in ("MemTotal", "MemFree", "MemAvailable") if name not in kib]
    if missing:
        raise ValueError(f"meminfo lacks {', '.join(missing)}")
    return Meminfo(
        kib["MemTotal"] * KIB,
        kib["MemFree"] * KIB,
        kib["MemAvailable"] * KIB,
        kib.get("Cached", 0) * KIB,
        kib.get("Buffers", 0) * KIB,
        kib.get("SwapTotal", 0) * KIB,
        kib.get("SwapFree", 0) * KIB,
        kib["CmaTotal"] * KIB if "CmaTotal" in kib else None,
        kib["CmaFree"] * KIB if "CmaFree" in kib else None,
    )


def pressure(text: str) -> Pressure | None:
    """Read ``/proc/pressure/memory``; None where the text is none (kernels without PSI)."""
    rows = {
        m[1]: (float(m[2]), int(m[3])) for m in re.finditer(r"^(some|full) avg10=([\d.]+) .*total=(\d+)\s*$", text, re.MULTILINE)
    }
    if "some" not in rows:
        return None
    some, full = rows["some"], rows.get("full", (0.0, 0))
    return Pressure(some[0], some[1], full[0], full[1])


def read_meminfo(proc: Path) -> Meminfo:
    """Memory of the node whose proc tree is at ``proc``. ``OSError`` and ``ValueError`` pass through."""
    return meminfo((proc / "meminfo").read_text(encoding="ascii", errors="replace"))


def read_pressure(proc: Path) -> Pressure | None:
    """Memory pressure below a proc tree; None where the kernel has none."""
    try:
        return pressure((proc / "pressure" / "memory").read_text(encoding="ascii", errors="replace"))
    except OSError:
        return None


def cma_finding(seen: Meminfo, cmdline: str) -> CmaFinding | None:
    """A free CMA amount above CMA's total: the trace of kernels that keep memory for a kexec handover (KHO) and lose it.

    A total of zero alone is a kernel without CMA areas and says nothing.
    """
    total, free = seen.cma_total_bytes, seen.cma_free_bytes
    if total is None or free is None or free <= total:
        return None
    off = "kho=off" in cmdline.split()
    advice = "it was booted with kho=off and still shows it" if off else "boot with kho=off on the kernel's command line"
    return CmaFinding(
        "cma_free_exceeds_total",
        f"CmaFree is {free // KIB} kB above a CmaTotal of {total // KIB} kB, so memory is lost that no program holds: {advice}",
    )
