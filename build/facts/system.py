"""What a host says of itself in ``key value`` lines: name, kernel, machine, time, limits, and what is installed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class System:
    """A host. Times are seconds since the epoch by its own clock, None where it did not say.

    ``ids`` is uid:gid of the user that asked, ``store`` the store's place without links in it.
    ``memlock`` is ``ulimit -l`` (KiB or "unlimited"); ``mount_nfs``: the helper that mounts NFS is installed, None unknown.
    """

    hostname: str
    kernel: str
    machine: str
    user: str
    home: str
    cmdline: str
    memlock: str
    ids: str
    store: str
    time_end_s: float | None
    mount_nfs: bool | None


def pairs(text: str) -> Mapping[str, str]:
    """``key value`` lines; the value goes to the end of the line."""
    return dict(line.split(" ", 1) for line in text.splitlines() if " " in line)


def system(text: str, end: str = "") -> System:
    """Read the lines; what is missing is "" or None. ``end`` is the host's clock when all else had been read."""
    said = pairs(text)
    return System(
        hostname=said.get("hostname", ""),
        kernel=said.get("kernel", ""),
        machine=said.get("machine", ""),
        user=said.get("user", ""),
        home=said.get("home", ""),
        cmdline=said.get("cmdline", ""),
        memlock=said.get("memlock", ""),
        ids=said.get("ids", ""),
        store=said.get("store", ""),
        time_end_s=_number(end),
        mount_nfs={"yes": True, "no": False}.get(said.get("mount_nfs", "")),
    )


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
