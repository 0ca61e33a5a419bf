"""``supervisor status --watch``: the status again and again in a terminal, with curves of the last minutes. Drawing is pure."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

from build.units import GIB
from supervisor.status.text import as_text

BARS = " ▁▂▃▄▅▆▇█"
POINTS = 600
CLEAR = "\x1b[H\x1b[2J"


@dataclass(slots=True)
class Curves:
    """What was seen so far, oldest first: tokens a second, and headroom by node."""

    tokens: list[float] = field(default_factory=list)
    headroom: dict[str, list[float]] = field(default_factory=dict)

    def add(self, status: Mapping[str, Any]) -> None:
        """Take one status."""
        self.tokens = [*self.tokens, float(status.get("throughput", {}).get("decode_tokens_per_s") or 0.0)][-POINTS:]
        for one in status.get("memory", ()):
            before = self.headroom.get(one["node"], [])
            self.headroom[one["node"]] = [*before, one["headroom_bytes"] / GIB][-POINTS:]


def frame(status: Mapping[str, Any], curves: Curves, width: int) -> str:
    """The status and its curves, no line wider than ``width``."""
    named = [("tokens/s", curves.tokens, "")] + [(f"headroom {node}", seen, " GiB") for node, seen in curves.headroom.items()]
    label = max(len(name) for name, _, _ in named)
    drawn = [
        f"{name:<{label}} {bars(seen, max(8, width - label - 16))} {seen[-1]:.1f}{unit}" for name, seen, unit in named if seen
    ]
    ends = [_end(one) for one in list(status.get("ended_launches", ()))[-3:]]
    return "\n".join(line[:width] for line in [*as_text(status).splitlines(), "", *drawn, *ends])


def bars(values: list[float], width: int) -> str:
    """The last ``width`` values as bars from 0 to the highest; what is below 0 shows as !."""
    shown = values[-width:]
    most = max(shown, default=0.0)
    return "".join("!" if value < 0 else BARS[round(value / most * (len(BARS) - 1)) if most > 0 else 0] for value in shown)


def watch(
    ask: Callable[[], Mapping[str, Any]], out: TextIO, period_s: float = 1.0, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Show until interrupted. A terminal is cleared each time; anything else gets frames one after the other."""
    curves = Curves()
    while True:
        status = ask()
        curves.add(status)
        head = CLEAR if out.isatty() else ""
        out.write(f"{head}{frame(status, curves, shutil.get_terminal_size((100, 30)).columns)}\n")
        out.flush()
        sleep(period_s)


def _end(end: Mapping[str, Any]) -> str:
    proof = f" ({end['exits']})" if end.get("exits") else ""
    return f"ended {end['launch_id']}: {end['reason']} {end['detail']}{proof}".rstrip()
