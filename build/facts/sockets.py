"""``/proc/net/udp`` and ``udp6``: which ports somebody listens at. Format: proc_net_tcp(5), which UDP's tables share."""

from __future__ import annotations


def udp_ports(text: str) -> frozenset[int]:
    """The local ports of every row; heads of tables and lines that are none are passed over."""
    found = set()
    for line in text.splitlines():
        words = line.split()
        _, colon, port = words[1].rpartition(":") if len(words) > 3 else ("", "", "")
        if colon and len(port) == 4:
            try:
                found.add(int(port, 16))
            except ValueError:
                continue
    return frozenset(found)
