"""Figures that others published for a target, for a bench to print beside its own: ``[[published]]`` of its file.

```toml
[[published]]
source = "who measured it, and where it stands"
engine = "TensorFold Zig"
checkpoint = "2.9 bpw"
decode = { prose_1 = 74.9, code_4 = 155.5 }   # tokens/s of all streams together, by prompts and streams
prefill = { 8192 = [2000, 2180] }             # tokens/s by prompt tokens; two numbers are a range
```
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from build.errors import UsageError
from build.locks import lockfile

DECODE = re.compile(r"(prose|code)_([1-9]\d*)")
KEYS = ("source", "engine", "checkpoint", "decode", "prefill")


@dataclass(frozen=True, slots=True)
class Published:
    """Figures of one source, in tokens/s, each a lowest and a highest (the same where one was given).

    ``decode`` is keyed by prompts and streams, e.g. ``("prose", 4)``, ``prefill`` by prompt tokens.
    """

    source: str
    engine: str
    checkpoint: str
    decode: Mapping[tuple[str, int], tuple[float, float]]
    prefill: Mapping[int, tuple[float, float]]


def read(checkout: Path, target: str) -> tuple[Published, ...]:
    """The published figures of a target; none where its file has none, or there is no such file."""
    path = checkout / "lockfiles" / f"{target}.toml"
    if not target or "/" in target or not path.is_file():
        return ()
    return figures(lockfile.read_table(path).get("published", []), str(path))


def read_for_model(checkout: Path, served_name: str) -> tuple[Published, ...]:
    """Those of the target that serves a model of this name; none where no target does."""
    for path in sorted((checkout / "lockfiles").glob("*.toml")):
        if not path.name.endswith(".lock.toml") and lockfile.read_table(path).get("served_name") == served_name:
            return read(checkout, path.stem)
    return ()


def figures(raw: object, where: str) -> tuple[Published, ...]:
    """The tables as they stand in a target's file; ``UsageError`` names what is wrong."""
    if not isinstance(raw, list):
        raise UsageError(f"{where}: published is no list of tables")
    return tuple(_one(table, f"{where}: [[published]]") for table in raw)


def _one(table: object, where: str) -> Published:
    if not isinstance(table, dict):
        raise UsageError(f"{where} is no table")
    for key in sorted(table.keys() ^ set(KEYS)):
        if key not in ("decode", "prefill"):
            raise UsageError(f"{where}: {key} is {'missing' if key in KEYS else 'not a key of it'}")
    source, engine, checkpoint = (table[key] for key in KEYS[:3])
    if not all(isinstance(word, str) and word for word in (source, engine, checkpoint)):
        raise UsageError(f"{where}: source, engine and checkpoint are words")
    decode = {_prompts(key, where): _range(value, key, where) for key, value in _entries(table, "decode", where)}
    prefill = {_tokens(key, where): _range(value, key, where) for key, value in _entries(table, "prefill", where)}
    return Published(source, engine, checkpoint, decode, prefill)


def _entries(table: Mapping[str, Any], key: str, where: str) -> list[tuple[str, object]]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise UsageError(f"{where}: {key} is no table")
    return list(value.items())


def _prompts(key: str, where: str) -> tuple[str, int]:
    found = DECODE.fullmatch(key)
    if found is None:
        raise UsageError(f"{where}: decode.{key}: wanted prompts and streams, like prose_1 or code_4")
    return found[1], int(found[2])


def _tokens(key: str, where: str) -> int:
    if not key.isdigit():
        raise UsageError(f"{where}: prefill.{key}: wanted a number of prompt tokens")
    return int(key)


def _range(value: object, key: str, where: str) -> tuple[float, float]:
    ends = value if isinstance(value, list) else [value, value]
    numbers = [end for end in ends if isinstance(end, int | float) and not isinstance(end, bool) and end > 0]
    if len(ends) != 2 or len(numbers) != 2 or numbers[0] > numbers[1]:
        raise UsageError(f"{where}: {key} = {value!r}: wanted tokens/s, or the lowest and the highest of them")
    return float(numbers[0]), float(numbers[1])
