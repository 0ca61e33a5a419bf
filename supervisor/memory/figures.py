"""What a target's engine takes beside its weights. Pure.

Published of TensorFold's dsv41 family: about 930 B of pool a token a rank for all streams together (``context_bytes_per_token``),
and 45 to 75 MB of kept prompt state per 32K tokens, of which the higher is planned with, for each stream. The 1.5 GiB of scratch
are inferred from two reports: 5 to 6.4 GiB of headroom at 1048576 tokens and four streams, and a head on which other software
used 6 GiB, where 524288 tokens held the floor and 655360 did not.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figures:
    """Bytes a rank: of kept state for each token and stream, and of scratch beside weights and contexts."""

    state_bytes_per_token: int = 0
    scratch_bytes: int = 0


DSV41 = Figures(state_bytes_per_token=75_000_000 // 32768, scratch_bytes=3 << 29)
PUBLISHED = {"dsv41": DSV41, "dsv41-1017": DSV41}


def published(target: str) -> Figures:
    """A target's figures; one that has none is planned by its weights and its contexts alone."""
    return PUBLISHED.get(target, Figures())
