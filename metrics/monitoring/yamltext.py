"""Plain data as YAML text: mappings, lists and scalars, in the order given; strings quoted as JSON, which YAML takes. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

Value = str | int | float | bool | Mapping[str, "Value"] | Sequence["Value"]
_PLAIN = re.compile(r"[A-Za-z_/.][A-Za-z0-9_/.-]*")
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n", "."})  # YAML 1.1 reads these as something else


def dump(value: Mapping[str, Value], comment: str = "") -> str:
    """A document. ``comment`` lines come first."""
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    return head + "\n".join(_mapping(value, 0)) + "\n"


def _mapping(value: Mapping[str, Value], depth: int) -> list[str]:
    lines = []
    for key, item in value.items():
        lines += _entry(f"{' ' * depth}{_scalar(key)}:", item, depth)
    return lines


def _entry(head: str, item: Value, depth: int) -> list[str]:
    if isinstance(item, str) and "\n" in item:
        return [f"{head} |-", *(f"{' ' * (depth + 2)}{line}".rstrip() for line in item.splitlines())]
    if isinstance(item, Mapping) and item:
        return [head, *_mapping(item, depth + 2)]
    if isinstance(item, Sequence) and not isinstance(item, str) and item:
        return [head, *_list(item, depth + 2)]
    return [f"{head} {_scalar(item)}"]


def _list(items: Sequence[Value], depth: int) -> list[str]:
    lines = []
    for item in items:
        if isinstance(item, Mapping) and item:
            inner = _mapping(item, depth + 2)
            lines += [f"{' ' * depth}- {inner[0].lstrip()}", *inner[1:]]
        else:
            lines += [f"{' ' * depth}- {_scalar(item)}"]
    return lines


def _scalar(value: Value) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)
