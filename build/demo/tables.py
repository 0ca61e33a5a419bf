"""Counting: token sequences -> the dense tables, the draft table and the Engram blocks."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from build.demo.corpus import Sequence as TrainingSequence
from build.demo.keys import Windows, key, topic_key
from build.demo.vocab import VOCAB_SIZE, canonical

DENSE_ROWS = {0: 1, 1: VOCAB_SIZE, 2: 4096, 3: 8192, 4: 16384}
DRAFT_ORDER = 4
NO_DRAFT = 0xFFFF
ENGRAM_ORDERS = ((6, 10), (16, 28))  # of the first and of the second table
TOPIC_SALT = 255  # in the second table
TOPIC_WINDOW = 6
BLOCK_BYTES = 4096
BLOCKS = 1024
RECORD = struct.Struct("<IHH")  # tag, next token, weight 1..255; weight 0 ends a block
FULL_WEIGHT = 255

Counts = dict[int, dict[int, int]]


@dataclass(frozen=True, slots=True)
class Trained:
    """``dense[order]``: rows x vocabulary, one byte each. ``draft``: rows of u16. ``engram``: two tables of 4 KiB blocks."""

    dense: dict[int, bytes]
    draft: bytes
    engram: tuple[bytes, bytes]


def count(sequences: Iterable[TrainingSequence]) -> Trained:
    """Train on ``sequences``; the same sequences give the same bytes."""
    dense: dict[int, Counts] = {order: {} for order in DENSE_ROWS}
    engram: tuple[Counts, Counts] = ({}, {})
    for sequence in sequences:
        _count_dense(dense, sequence.tokens)
        _count_engram(engram, sequence)
    return Trained(
        {order: _dense_bytes(DENSE_ROWS[order], counts) for order, counts in dense.items()},
        _draft_bytes(dense[DRAFT_ORDER]),
        (_block_bytes(engram[0]), _block_bytes(engram[1])),
    )


def dense_row(order: int, value: int, newest: int) -> int:
    """The row of a context: none for order 0, the token itself for order 1, a hash above."""
    if order < 2:
        return newest * order
    return key(order, value) % DENSE_ROWS[order]


def _add(counts: Counts, row: int, token: int) -> None:
    following = counts.setdefault(row, {})
    following[token] = following.get(token, 0) + 1


def _count_dense(dense: dict[int, Counts], tokens: Sequence[int]) -> None:
    windows = Windows(tokens)
    for place in range(1, len(tokens)):
        for order, counts in dense.items():
            if place >= order:
                _add(counts, dense_row(order, windows.before(place, order), tokens[place - 1]), tokens[place])


def _count_engram(engram: tuple[Counts, Counts], sequence: TrainingSequence) -> None:
    tokens = sequence.tokens
    windows = Windows([canonical(token) for token in tokens])
    for counts, orders in zip(engram, ENGRAM_ORDERS, strict=True):
        for order in orders:
            for place in range(order, len(tokens)):
                _add(counts, key(order, windows.before(place, order)), tokens[place])
    for place in range(sequence.answer_at + 1, len(tokens)):
        value = windows.before(place, min(TOPIC_WINDOW, place - sequence.answer_at + 1))
        for topic in sequence.topics:
            _add(engram[1], topic_key(TOPIC_SALT, value, topic), tokens[place])


def _weights(following: dict[int, int]) -> list[tuple[int, int]]:
    total = sum(following.values())
    return [(token, max(1, FULL_WEIGHT * following[token] // total)) for token in sorted(following)]


def _dense_bytes(rows: int, counts: Counts) -> bytes:
    table = bytearray(rows * VOCAB_SIZE)
    for row, following in counts.items():
        for token, weight in _weights(following):
            table[row * VOCAB_SIZE + token] = weight
    return bytes(table)


def _draft_bytes(counts: Counts) -> bytes:
    best = [NO_DRAFT] * DENSE_ROWS[DRAFT_ORDER]
    for row, following in counts.items():
        best[row] = min(following, key=lambda token: (-following[token], token))
    return struct.pack(f"<{len(best)}H", *best)


def _block_bytes(counts: Counts) -> bytes:
    blocks: list[list[tuple[int, int, int]]] = [[] for _ in range(BLOCKS)]
    for context, following in counts.items():
        records = blocks[(context >> 32) % BLOCKS]
        records.extend((context & 0xFFFFFFFF, token, weight) for token, weight in _weights(following))
    return b"".join(_block(records) for records in blocks)


def _block(records: list[tuple[int, int, int]]) -> bytes:
    """One block: what does not fit is dropped, lightest first."""
    room = BLOCK_BYTES // RECORD.size
    kept = sorted(sorted(records, key=lambda record: (-record[2], record))[:room])
    return b"".join(RECORD.pack(*record) for record in kept).ljust(BLOCK_BYTES, b"\0")
