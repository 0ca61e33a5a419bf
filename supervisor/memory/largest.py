"""Which programs of this node hold the most memory: for people who are to end one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from build.units import GIB, gib

MOST = 3  # are named
LEAST_BYTES = GIB  # what holds less would not help


@dataclass(frozen=True, slots=True)
class Program:
    """A process: its name as the kernel keeps it, and its resident bytes. What a GPU's driver holds for it is not among them."""

    name: str
    pid: int
    resident_bytes: int


def largest(proc: Path) -> tuple[Program, ...]:
    """The largest programs of a proc tree (proc_pid_status(5), ``Name`` and ``VmRSS``), largest first."""
    found = [one for folder in proc.glob("[0-9]*") if (one := _program(folder)) and one.resident_bytes >= LEAST_BYTES]
    return tuple(sorted(found, key=lambda one: (-one.resident_bytes, one.pid))[:MOST])


def as_text(programs: tuple[Program, ...]) -> str:
    """``llama-server, pid 4242, 61.2 GiB; …``, or "" for none."""
    return "; ".join(f"{one.name}, pid {one.pid}, {gib(one.resident_bytes)}" for one in programs)


def _program(folder: Path) -> Program | None:
    """None for one that has ended meanwhile, and for the kernel's own threads."""
    try:
        lines = (folder / "status").read_text(errors="replace").splitlines()
        fields = {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}
        return Program(fields["Name"], int(folder.name), int(fields["VmRSS"].split()[0]) << 10)
    except (OSError, KeyError, ValueError, IndexError):
        return None
