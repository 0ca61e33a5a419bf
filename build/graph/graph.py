"""The build graph, pure: artefacts, their keys, and what is known of them.

A key is the sha256 of canonical JSON over the builder's name and version, its parameters, and the **output hashes** of the
inputs. A changed source whose output comes out the same therefore leaves everything behind it as it was (early cutoff).
One function, :func:`resolve`, serves doit, the dry run, ``gc`` and ``lock --check``; only the index differs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
KEY_HEX = 32  # 128 bits name a path; the record beside it holds full hashes


@dataclass(frozen=True, slots=True)
class Artefact:
    """One thing to be made.

    ``inputs``: role -> artefact name. ``params``: JSON values. ``known_output``: the tree hash, where it is known before
    anything is made (sources, pinned downloads). ``by_place``: the content names its inputs' store entries, so these count
    in the key beside their hashes. ``platform``: what its bytes are for, or "" for any.
    """

    name: str
    builder: str
    version: int
    params: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    known_output: str | None = None
    by_place: bool = False
    platform: str = ""


@dataclass(frozen=True, slots=True)
class Resolved:
    """What is known of an artefact: ``key`` is None until every input's output is known, ``output`` until it was made."""

    artefact: Artefact
    key: str | None
    output: str | None

    @property
    def entry(self) -> str | None:
        """The name of its store path."""
        return None if self.key is None else entry_name(self.key, self.artefact.name)


Index = Callable[[str, str], str | None]
"""(key, name) -> output hash of what was made for that key, or None."""


def entry_name(key: str, name: str) -> str:
    """The store path of an artefact."""
    return f"{key}-{name}"


def canonical(value: object) -> bytes:
    """JSON that is the same bytes for equal values: sorted keys, no spaces, no NaN."""
    return CANONICAL.encode(value).encode()


def key(artefact: Artefact, inputs: Mapping[str, tuple[str, str]]) -> str:
    """The artefact's key from its inputs' (entry, output hash) by role."""
    content: dict[str, object] = {
        "builder": artefact.builder,
        "version": artefact.version,
        "params": artefact.params,
        "inputs": {role: output for role, (_, output) in inputs.items()},
    }
    if artefact.by_place:
        content["places"] = {role: entry for role, (entry, _) in inputs.items()}
    return hashlib.sha256(canonical(content)).hexdigest()[:KEY_HEX]


def key_of(artefact: Artefact, inputs: Mapping[str, Resolved]) -> str | None:
    """The artefact's key, or None where an input's output is not known yet. ``inputs`` by role."""
    known = {role: (i.entry, i.output) for role, i in inputs.items() if i.entry is not None and i.output is not None}
    return key(artefact, known) if len(known) == len(inputs) else None


def resolve_one(artefact: Artefact, resolved: Mapping[str, Resolved], index: Index) -> Resolved:
    """One artefact, given its inputs' resolutions by name."""
    found = key_of(artefact, {role: resolved[name] for role, name in artefact.inputs.items()})
    if found is None:
        return Resolved(artefact, None, None)
    made = index(found, artefact.name)
    return Resolved(artefact, found, made if made is not None else artefact.known_output)


def resolve(graph: Iterable[Artefact], index: Index) -> dict[str, Resolved]:
    """Every artefact's key and output as far as ``index`` knows them, in an order in which inputs come first."""
    resolved: dict[str, Resolved] = {}
    for artefact in ordered(graph):
        resolved[artefact.name] = resolve_one(artefact, resolved, index)
    return resolved


def ordered(graph: Iterable[Artefact]) -> tuple[Artefact, ...]:
    """Inputs before what needs them, else as given; ``ValueError`` for a cycle, an unknown input or a name used twice."""
    artefacts = tuple(graph)
    by_name = {a.name: a for a in artefacts}
    if len(by_name) != len(artefacts):
        twice = sorted({a.name for a in artefacts if by_name[a.name] is not a})
        raise ValueError(f"two artefacts are called {', '.join(twice)}")
    done: dict[str, Artefact] = {}
    for artefact in artefacts:
        _visit(artefact, by_name, done)
    return tuple(done.values())


def _visit(first: Artefact, by_name: Mapping[str, Artefact], done: dict[str, Artefact]) -> None:
    """Depth-first without recursion, so that a chain of thousands of artefacts is fine."""
    open_: dict[str, None] = {}
    waiting = [first.name]
    while waiting:
        name = waiting[-1]
        if name in done:
            open_.pop(name, None)
            waiting.pop()
            continue
        if name not in by_name:
            raise ValueError(f"no artefact is called {name}")
        needed = [n for n in by_name[name].inputs.values() if n not in done]
        if not needed:
            done[name] = by_name[name]
        elif name in open_:
            raise ValueError(f"{name} needs itself")
        else:
            open_[name] = None
            waiting += needed[::-1]


def closure(names: Iterable[str], graph: Mapping[str, Artefact]) -> frozenset[str]:
    """The named artefacts and everything that they are made from."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += graph[name].inputs.values()
    return frozenset(found)
