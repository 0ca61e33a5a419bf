"""Binary units, and how amounts of memory and disk are written for people."""

from __future__ import annotations

MIB = 1 << 20
GIB = 1 << 30


def gib(size_bytes: float, digits: int = 1) -> str:
    """``12.5 GiB``: binary units, as the kernel and the engine count."""
    return f"{size_bytes / GIB:.{digits}f} GiB"
