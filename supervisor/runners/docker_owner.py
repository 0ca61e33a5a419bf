"""Which container a process of this machine is in, from its control groups: no daemon is asked, so it works for any of them.

Docker puts a container's whole id into the path: ``…/docker/<64 hex>`` under cgroup v1, ``…/docker-<64 hex>.scope`` under v2 with
systemd. See cgroups(7), "/proc files".
"""

from __future__ import annotations

import re
from pathlib import Path

SHOWN_HEX = 12  # as `docker ps` shows it
_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


def container_of(pid: int, proc: Path) -> str:
    """The beginning of the container's id, "" for a process in none or one that hides."""
    try:
        return container_in((proc / str(pid) / "cgroup").read_text())
    except OSError:
        return ""


def container_in(cgroup: str) -> str:
    """The same from the file's text."""
    found = _ID.search(cgroup)
    return found[0][:SHOWN_HEX] if found else ""
