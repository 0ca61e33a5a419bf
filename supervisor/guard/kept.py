"""What the supervisor holds of one guard: its last words, its last sample's age, why it ended its rank. Pure data."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

from supervisor.guard.client import GuardClient
from supervisor.guard.spec import GuardSpec
from supervisor.guard.wire import GuardEvent, GuardSample, Hello, Line, SenderClock
from supervisor.memory.policy import Sample

EVIDENCE_S = 5.0  # while memory is calm a guard says little
WAITING_SAMPLES = 100  # ten seconds of them by default where each is told: they are read every few seconds


@dataclass(slots=True)
class Kept:
    """One guard in hand. Its watcher writes; others read ``samples`` through :meth:`newer`, and wait for ``ended``."""

    spec: GuardSpec
    client: GuardClient | None = None
    hello: Hello | None = None
    last: GuardSample | None = None
    heard_s: float = 0.0
    clock: SenderClock = SenderClock()
    recent: deque[tuple[float, bytes]] = field(default_factory=deque)
    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=WAITING_SAMPLES))
    cause: str | None = None
    ended: threading.Event = field(default_factory=threading.Event)
    connected: threading.Event = field(default_factory=threading.Event)
    starts: int = 1  # in a row, none of which lasted
    began_s: float = 0.0  # of the newest
    retry_s: float = 0.0

    def take(self, raw: bytes, line: Line, now_s: float) -> None:
        """One line more."""
        self.recent.append((now_s, raw))
        while self.recent and self.recent[0][0] < now_s - EVIDENCE_S:
            self.recent.popleft()
        match line:
            case Hello():
                self.hello, self.cause = line, line.cause or self.cause
                if line.phase == "ended":
                    self.ended.set()
            case GuardSample():
                self.heard_s, self.last = now_s, line
                self.clock, at_s = self.clock.hear(line.t_ms / 1000, now_s)
                self.samples.append(Sample(at_s, line.available_bytes, line.free_bytes))
            case GuardEvent("kill" | "term" | "dead"):
                self.cause = self.cause or line.cause
                if line.name == "dead":
                    self.ended.set()
            case _:
                pass

    def newer(self, after_s: float) -> tuple[Sample, ...]:
        """Samples taken after a moment, oldest first."""
        return tuple(one for one in tuple(self.samples) if one.at_s > after_s)

    @property
    def evidence(self) -> bytes:
        """The lines of the last seconds, as they came."""
        return b"".join(line + b"\n" for _, line in tuple(self.recent))
