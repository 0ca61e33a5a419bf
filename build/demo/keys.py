"""Context keys: how a run of tokens becomes a row or a block.

Integers of 64 bits only, so the trainer and the engine agree on every machine. A context's polynomial is
``h = h * BASE + token + 1`` from its oldest to its newest token; splitmix64 over it and a salt is the key.
"""

from __future__ import annotations

from collections.abc import Sequence

MASK = (1 << 64) - 1
BASE = 0x100000001B3
SALT = 0xD6E8FEB86659FD93


def mix(value: int) -> int:
    """splitmix64's finaliser (Steele, Lea, Flood 2014)."""
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def polynomial(tokens: Sequence[int]) -> int:
    """The polynomial of a whole context."""
    value = 0
    for token in tokens:
        value = (value * BASE + token + 1) & MASK
    return value


def key(salt: int, value: int) -> int:
    """The key of a context's polynomial in the table numbered ``salt``."""
    return mix(value ^ (salt * SALT & MASK))


def topic_key(salt: int, value: int, topic: int) -> int:
    """The key of a context within a topic."""
    return mix(key(salt, value) ^ topic)


def fnv1a(data: bytes) -> int:
    """FNV-1a, 64 bits."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * BASE) & MASK
    return value


class Windows:
    """Every window's polynomial of one sequence in constant time, from prefix sums."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._prefix = [0]
        for token in tokens:
            self._prefix.append((self._prefix[-1] * BASE + token + 1) & MASK)
        self._powers = [1]
        for _ in range(64):
            self._powers.append(self._powers[-1] * BASE & MASK)

    def before(self, end: int, length: int) -> int:
        """The polynomial of the ``length`` tokens (at most 64) that stand before position ``end``."""
        return (self._prefix[end] - self._prefix[end - length] * self._powers[length]) & MASK
