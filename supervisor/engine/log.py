"""What the engine's log lines say, read as they come: readiness, memory, loaded ranks, replies, failures.

Lines are the contract's (rank 0 prefixes ``[tensorfold]``, the others print JSON). A line that is not known is no fact
and no error: builds differ, and they print more than the supervisor needs. Pure, apart from a reader's own carry-over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from supervisor.engine.contract import Logged
from supervisor.engine.facts import (
    Access,
    Done,
    Fact,
    Followed,
    FollowRefused,
    MemoryLine,
    RankLoaded,
    Ready,
    RequestEnded,
    RequestRefused,
    StartFailure,
    StreamError,
)
from supervisor.engine.nccl import nccl_failure

LINE_LIMIT = 64 * 1024  # a longer line is cut: it is no line of the contract


_SERVING = re.compile(r"^\[tensorfold\] serving (?P<name>.+) at http://(?P<host>\S+):(?P<port>\d+)/v1(?: \((?P<rest>.*)\))?$")
_MEMORY = re.compile(
    r"^\[tensorfold\] CUDA sm_\d+ device \d+ \((?P<device>.+)\): model (?P<model>[\d.]+) GiB; (?P<streams>\d+) streams? at once,"
    r" (?P<each>[\d.]+) GiB each at a (?P<window>\d+)-token window, of (?P<left>-?[\d.]+) GiB left after"
    r" a (?P<reserve>[\d.]+) GiB reserve"
)
_SHARED = ", memory shared with the host"
_DONE = re.compile(r"^\[tensorfold\] done (?P<id>\S+)(?P<words>(?: [^\s=]+=\S*)*)\s*$")
_REFUSED = re.compile(r"^\[tensorfold\] refused (?P<id>\S+): (?P<message>.*)$")
_ENDED = re.compile(r"^\[tensorfold\] ended (?P<id>\S+) reason=(?P<reason>[\w-]+)(?: \((?P<detail>.*)\))?(?: [^\s=]+=\S*)*\s*$")
_STREAM = re.compile(r"^\[tensorfold\] stream error: (?P<message>.*)$")
_ACCESS = re.compile(
    r"^(?:\[tensorfold\] )?(?P<client>[0-9a-fA-F.:]+) \"(?P<method>[A-Z]+) (?P<path>\S+) HTTP/[\d.]+\" (?P<status>\d{3})\b"
)
_MEMORY_REFUSED = re.compile(
    r"^tensorfold: (?P<asked>\d+ x \d+) on rank \d+ leaves (?P<left>-?[\d.]+) GiB, under the (?P<floor>[\d.]+) GiB hard floor;"
    r" fit: (?P<fits>\d+) stream"
)
# What ends a start, by a part of its line, and whether the same start could work later. Names are the engine's errors.
_FAILURES: tuple[tuple[re.Pattern[str], str, bool], ...] = (
    (re.compile(r"is neither a directory nor a Hugging Face repo id"), "model_path_missing", False),
    (re.compile(r"\b(?:NoRankCache|SeveralRankCaches|BadRankCache)\b"), "rank_cache_bad", False),
    (re.compile(r"\bShortRopeTable\b"), "rope_table_short", False),
    (re.compile(r"\bBadArgument\b"), "bad_arguments", False),
    (re.compile(r"\b(?:AddressInUse|InUse|EADDRINUSE)\b|[Aa]ddress already in use"), "port_taken", True),
    (re.compile(r"\bConnectFailed\b"), "peer_not_found", True),
)
_ERROR_LINE = re.compile(
    r"^(?:tensorfold(?:-native)?: |tf-dsv41-[\w-]+: |\[tensorfold\] error|error: |error\.|thread \d+ panic|panic)"
)


def read_line(line: str) -> Fact | None:
    """The fact that one line of a rank's log states, if it states one."""
    line = line.rstrip("\r\n")
    if line.startswith("{"):
        return _json_fact(line)
    for pattern, make in _READERS:
        match = pattern.match(line)
        if match is not None:
            return make(match)
    return nccl_failure(line) or _failure(line)


class LogReader:
    """Turns one rank's log into facts as its bytes arrive, in pieces cut anywhere."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> tuple[Fact, ...]:
        """Facts of the lines that this piece ends."""
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop()[:LINE_LIMIT]
        return tuple(fact for line in lines if (fact := self._read(line)) is not None)

    def finish(self) -> tuple[Fact, ...]:
        """Facts of a last line without an end, once the rank has gone."""
        rest, self._rest = self._rest, b""
        fact = self._read(rest)
        return () if fact is None else (fact,)

    @staticmethod
    def _read(line: bytes) -> Fact | None:
        return read_line(line[:LINE_LIMIT].decode("utf-8", "replace"))


def logged(rank: int, facts: Iterable[Fact]) -> Logged:
    """What a rank said of pool, context and drafts, for :func:`supervisor.engine.contract.parity`."""
    said = Logged(rank)
    for fact in facts:
        if rank == 0 and isinstance(fact, Ready):
            said = Logged(0, None, fact.context_tokens, None if not fact.drafts else fact.drafts == "on")
        elif isinstance(fact, RankLoaded) and fact.rank == rank:
            said = Logged(rank, fact.pool_tokens, None, fact.drafts)
    return said


def _ready(match: re.Match[str]) -> Ready:
    parts = (match["rest"] or "").split("; ")
    words = dict(part.split(": ", 1) for part in parts if ": " in part)
    loaded = re.search(r"loaded in ([\d.]+)s", match["rest"] or "")
    return Ready(
        match["name"],
        match["host"],
        int(match["port"]),
        _whole(words.get("context")),
        words.get("drafts", ""),
        float(loaded[1]) if loaded else None,
    )


def _memory(match: re.Match[str]) -> MemoryLine:
    return MemoryLine(
        match["device"].removesuffix(_SHARED),
        match["device"].endswith(_SHARED),
        float(match["model"]),
        int(match["streams"]),
        float(match["each"]),
        int(match["window"]),
        float(match["left"]),
        float(match["reserve"]),
    )


def _done(match: re.Match[str]) -> Done:
    words = dict(word.split("=", 1) for word in match["words"].split())
    accepted, _, drafted = words.get("accepted", "").partition("/")
    return Done(
        match["id"],
        _whole(words.get("prompt")),
        _whole(words.get("cached")),
        _whole(words.get("tokens")),
        words.get("finish", ""),
        _whole(words.get("rounds")),
        _whole(accepted),
        _whole(drafted),
        words,
    )


def _memory_refused(match: re.Match[str]) -> StartFailure:
    return StartFailure(
        "memory_refused",
        match.string,
        restart=False,
        asked=match["asked"],
        left_gib=float(match["left"]),
        floor_gib=float(match["floor"]),
        fits_streams=int(match["fits"]),
    )


def _failure(line: str) -> StartFailure | None:
    if not _ERROR_LINE.match(line):
        return None
    return next((StartFailure(kind, line, restart) for pattern, kind, restart in _FAILURES if pattern.search(line)), None)


def _json_fact(line: str) -> Fact | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    if not isinstance(row, dict):
        return None
    if isinstance(row.get("follow_refused"), str):
        return FollowRefused(row["follow_refused"])
    return _rank_fact(row["rank"], row) if isinstance(row.get("rank"), int) else None


def _rank_fact(rank: int, row: Mapping[str, Any]) -> Fact | None:
    if isinstance(row.get("loaded_s"), (int, float)):
        return RankLoaded(
            rank, float(row["loaded_s"]), _number(row, "pool"), _drafts(row.get("drafts")), _number(row, "arena_used")
        )
    if isinstance(row.get("follow"), str):
        return Followed(rank, row["follow"])
    return Followed(rank) if row.get("followed") is True else None


def _number(row: Mapping[str, Any], name: str) -> int | None:
    value = row.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _drafts(value: object) -> bool | None:
    return bool(value) if isinstance(value, (bool, int)) else None


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


_READERS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Fact]], ...] = (
    (_SERVING, _ready),
    (_MEMORY, _memory),
    (_DONE, _done),
    (_REFUSED, lambda m: RequestRefused(m["id"], m["message"])),
    (_ENDED, lambda m: RequestEnded(m["id"], m["reason"], m["detail"] or "")),
    (_STREAM, lambda m: StreamError(m["message"])),
    (_ACCESS, lambda m: Access(m["client"], m["method"], m["path"], int(m["status"]))),
    (_MEMORY_REFUSED, _memory_refused),
)
