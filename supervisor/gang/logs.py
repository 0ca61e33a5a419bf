"""Ranks' logs of ended launches: compressed, with how the launch ended, the newest few launches kept.

``<UTC time>-<launch id>-rank<N>.log.gz`` for every rank, ``…-guard<N>.jsonl`` with the last seconds of its guard's samples
(all of the two seconds before a kill) and ``<UTC time>-<launch id>-end.json`` last. Each file appears whole or not at all, and a
rank is removed only after its log is saved: what it printed is often the only evidence.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType

from build.store import durable
from supervisor.engine.log import LINE_LIMIT
from supervisor.engine.nccl import NcclFailure, cause
from supervisor.runners.protocol import RankExit, RankHandle, Runner
from supervisor.runners.records import write_json

_FILE = re.compile(r"^(?P<launch>\d{8}T\d{6}Z-.+)-(?:rank\d+\.log\.gz|guard\d+\.jsonl|end\.json)$")
_POLL = re.compile(r'"GET /(?:health|metrics) HTTP/1\.[01]" 200\b')
_SCANNED_BYTES = 64 << 20  # of each rank's log, for a network failure: the first one is the cause
_MODE = 0o600  # logs may hold what users wrote
_LEVEL = 3  # a log of 200 MiB within seconds: the next launch waits for it


@dataclass(frozen=True, slots=True)
class Keeping:
    """Where logs go, how many launches are kept, and how much of one rank's log."""

    folder: Path
    launches: int
    rank_bytes: int


@dataclass(frozen=True, slots=True)
class Ended:
    """How a launch ended. ``at`` is in UTC."""

    launch_id: str
    reason: str
    detail: str
    at: datetime
    exits: Mapping[int, RankExit]

    @property
    def stem(self) -> str:
        """The beginning of its files' names."""
        return f"{self.at:%Y%m%dT%H%M%SZ}-{self.launch_id}"


def save(
    runner: Runner,
    handles: Sequence[RankHandle],
    ended: Ended,
    keeping: Keeping,
    evidence: Mapping[int, bytes] = MappingProxyType({}),
) -> None:
    """Save every rank's log and its guard's, then how the launch ended; drop the oldest launches. ``OSError`` passes through.

    ``evidence`` is JSON lines by rank; a rank without any gets no file.
    """
    keeping.folder.mkdir(parents=True, exist_ok=True)
    for handle in handles:
        path = keeping.folder / f"{ended.stem}-rank{handle.rank}.log.gz"
        _write_compressed(path, _bounded(runner.whole_log(handle), keeping.rank_bytes))
    for rank, lines_ in evidence.items():
        if lines_:
            durable.replace_file(keeping.folder / f"{ended.stem}-guard{rank}.jsonl", lines_, _MODE)
    write_json(keeping.folder / f"{ended.stem}-end.json", _end(ended))
    prune(keeping.folder, keeping.launches)


def network_failure(folder: Path, ended: Ended) -> NcclFailure | None:
    """What NCCL said of the network in a saved launch's logs: the first failure of the lowest rank that has one."""
    for path in sorted(folder.glob(f"{ended.stem}-rank*.log.gz")):
        with gzip.open(path) as file:
            if found := cause(line.decode("utf-8", "replace") for line in _head(file) if b"NCCL WARN" in line):
                return found
    return None


def _head(file: gzip.GzipFile) -> Iterator[bytes]:
    """The lines of a log's beginning, one at a time: a flood is not held in memory."""
    while file.tell() < _SCANNED_BYTES and (line := file.readline(LINE_LIMIT)):
        yield line.rstrip(b"\r\n")


def prune(folder: Path, launches: int) -> None:
    """Keep the newest ``launches`` launches; files that are not ours stay."""
    by_launch: dict[str, list[Path]] = {}
    for path in folder.iterdir():
        match = _FILE.match(path.name)
        if match:
            by_launch.setdefault(match["launch"], []).append(path)
    for name in sorted(by_launch)[:-launches]:
        for path in by_launch[name]:
            path.unlink(missing_ok=True)


def lines(
    runner: Runner, handles: Callable[[], Sequence[RankHandle]], *, follow: bool, wait: Callable[[], bool]
) -> Iterator[tuple[int, str]]:
    """Every rank's lines as (rank, line): what was written so far, rank after rank.

    With ``follow`` they are interleaved as they come, over launches too, until ``wait`` (which sleeps a little) says no. A last
    line without an end is given when its rank has ended.
    """
    if not follow:
        yield from _written(runner, handles())
        return
    cursors: dict[RankHandle, tuple[str, bytes]] = {}
    while True:
        found = False
        for handle in handles():
            cursor, rest = cursors.get(handle, ("", b""))
            chunk = runner.read_log(handle, cursor)
            *whole, rest = (rest + chunk.data).split(b"\n")
            cursors[handle] = (chunk.cursor, rest)
            found = found or bool(chunk.data)
            yield from ((handle.rank, line.decode(errors="replace")) for line in whole)
        if not found and not wait():
            yield from ((handle.rank, rest.decode(errors="replace")) for handle, (_, rest) in cursors.items() if rest)
            return


def _written(runner: Runner, handles: Sequence[RankHandle]) -> Iterator[tuple[int, str]]:
    """What is there now, a piece of each rank in turn. (Followers of containers have nothing to give in their first moment.)"""
    pieces = {handle.rank: runner.whole_log(handle) for handle in handles}
    rests = dict.fromkeys(pieces, b"")
    while pieces:
        for rank in tuple(pieces):
            piece = next(pieces[rank], None)
            *whole, rests[rank] = (rests[rank] + (piece or b"")).split(b"\n")
            if piece is None:
                del pieces[rank]
                whole = [rests[rank]] if rests[rank] else []
            yield from ((rank, line.decode(errors="replace")) for line in whole)


def is_poll(line: str) -> bool:
    """Whether the line tells of a look at the engine's health, such as the supervisor takes every second or two."""
    return _POLL.search(line) is not None


def _end(ended: Ended) -> dict[str, object]:
    return {
        "launch": ended.launch_id,
        "ended": f"{ended.at:%Y-%m-%dT%H:%M:%SZ}",
        "reason": ended.reason,
        "detail": ended.detail,
        "ranks": [
            {"rank": rank, "code": e.code, "signal": e.signal or None, "out_of_memory": e.out_of_memory}
            for rank, e in sorted(ended.exits.items())
        ],
    }


def _bounded(pieces: Iterable[bytes], limit: int) -> Iterator[bytes]:
    left = limit
    for piece in pieces:
        yield piece[:left]
        left -= len(piece)
        if left < 0:
            yield f"\n[cut: more than {limit >> 20} MiB]\n".encode()
            return


def _write_compressed(path: Path, pieces: Iterable[bytes]) -> None:
    with (
        durable.replacing(path, _MODE) as raw,
        gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=raw, mtime=0) as out,
    ):
        for piece in pieces:
            out.write(piece)
