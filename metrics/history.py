"""The last minutes of what the status page draws, so that a page just opened has its curves at once. Thread-safe."""

from __future__ import annotations

import json
from collections import deque

from metrics.readings import Snapshot

POINTS = 300
APART_S = 1.0


class History:
    """At most one point a second, fewer while nobody asks: tokens a second, and each node's available memory."""

    def __init__(self) -> None:
        self._points: deque[str] = deque(maxlen=POINTS)
        self._last_s = float("-inf")

    def add(self, snapshot: Snapshot) -> None:
        """Take the snapshot's figures, unless the last point is not yet a second old."""
        at_s, status = snapshot.taken_at_s, snapshot.status
        if 0 <= at_s - self._last_s < APART_S:
            return
        self._last_s = at_s
        point = {
            "t": round(at_s, 2),
            "decode_tokens_per_s": status.get("throughput", {}).get("decode_tokens_per_s"),
            "available_bytes": {one["node"]: one["available_bytes"] for one in status.get("memory", ())},
        }
        self._points.append(json.dumps(point, separators=(",", ":")))

    def json(self) -> bytes:
        """The points, oldest first."""
        return f'{{"points":[{",".join(tuple(self._points))}]}}\n'.encode()
