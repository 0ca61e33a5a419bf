"""How long to bear with a server, as data and one pure rule."""

from __future__ import annotations

from dataclasses import dataclass

PIECE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to bear with a server: ``stall_s`` without a byte ends a connection; ``tries`` in a row without any new byte end
    the download; pauses between them double from ``pause_s`` to ``longest_s``."""

    connections: int = 8
    stall_s: float = 30.0
    tries: int = 8
    pause_s: float = 1.0
    longest_s: float = 60.0
    piece_bytes: int = PIECE_BYTES
    wrong_contents: int = 2

    def pause(self, failures: int, asked_s: float, chance: float) -> float:
        """How long to wait after ``failures`` in a row; ``chance`` from 0 to 1 spreads those who fail at once."""
        wanted = min(self.longest_s, self.pause_s * 2.0 ** (failures - 1)) * (0.5 + chance / 2)
        return max(wanted, min(asked_s, self.longest_s))
