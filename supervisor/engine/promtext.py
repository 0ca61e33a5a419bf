"""Prometheus text, read: families with their samples, names and labels kept as they are. Pure.

Format: prometheus.io, "Exposition formats", text version 0.0.4. Lines that are no part of it are left out, since an engine's
text may carry more than the format.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

_COMMENT = re.compile(r"^# (TYPE|HELP) (\S+)(?: (.*))?$")
_SERIES = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s*")
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*(?:\{.*\})?)\s+(\S+)(?:\s+-?\d+)?\s*$")
_LABEL = re.compile(r'\s*([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")
SERIES_KEPT = 4096
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count"), "counter": ("_total",)}


@dataclass(frozen=True, slots=True)
class Point:
    """One sample line."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its samples in their order. ``type`` is untyped where the text does not say."""

    name: str
    type: str
    help: str
    points: tuple[Point, ...]


def parse(text: str) -> tuple[Family, ...]:
    """The families of one exposition, in order of first appearance."""
    types: dict[str, str] = {}
    helps: dict[str, str] = {}
    points: dict[str, list[Point]] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            comment = _COMMENT.match(line)
            if comment:
                (types if comment[1] == "TYPE" else helps)[comment[2]] = comment[3] or ""
                if comment[1] == "TYPE":
                    points.setdefault(comment[2], [])
            continue
        point = _point(line)
        if point is not None:
            points.setdefault(_family_of(point.name, types), []).append(point)
    return tuple(
        Family(name, types.get(name, "untyped"), _unescape(helps.get(name, "")), tuple(rows)) for name, rows in points.items()
    )


def _point(line: str) -> Point | None:
    """Mostly the last word is the value, and what stands before it was read last time too."""
    before, _, value = line.rpartition(" ")
    series = _series(before) if before else None
    if series is None:
        match = _SAMPLE.match(line)
        series, value = (_series(match[1]), match[2]) if match else (None, "")
    try:
        return Point(*series, float(value)) if series else None
    except ValueError:
        return None


@functools.lru_cache(SERIES_KEPT)
def _series(text: str) -> tuple[str, Mapping[str, str]] | None:
    """Name and labels of a series; None for no series. The same ones come with every reading."""
    match = _SERIES.fullmatch(text)
    labels = _labels(match[2] or "") if match else None
    return None if match is None or labels is None else (match[1], MappingProxyType(labels))


def _labels(text: str) -> dict[str, str] | None:
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _LABEL.match(text, at)
        if match is None:
            return None if text[at:].strip() else found
        found[match[1]] = _unescape(match[2])
        at = match.end()
    return found


def _family_of(name: str, types: Mapping[str, str]) -> str:
    if name in types:
        return name
    for family_type, suffixes in _SUFFIXES.items():
        for suffix in suffixes:
            base = name.removesuffix(suffix)
            if base != name and types.get(base) == family_type:
                return base
    return name


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda m: "\n" if m[1] == "n" else m[1], text)
