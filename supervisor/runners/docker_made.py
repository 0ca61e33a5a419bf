"""What a container was made as, kept in a label, and what it really is: a hand that edits or remakes one leaves the labels.

The label holds short digests and no text, so that whoever replaces a word everywhere in a container's files does not replace it
there too. All of it is pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MADE = "twinfold.made"
DIGEST_CHARS = 10  # enough to see an accident; a label is no proof against somebody who means harm

Parts = dict[str, str]


def made(body: Mapping[str, Any]) -> str:
    """The label's text for a container that is asked for with this body."""
    mounts = [(one["Target"], one["Type"], one["Source"], one.get("ReadOnly", False)) for one in body["HostConfig"]["Mounts"]]
    parts = _parts(body, body["HostConfig"], mounts)
    return json.dumps({name: _digest(value) for name, value in parts.items()}, sort_keys=True, separators=(",", ":"))


def difference(inspected: Mapping[str, Any], image_env: Sequence[str] | None) -> str:
    """The first thing about a container that is not as it was made, "" where all is. ``image_env``: its image's own variables.

    Without the image's variables (it is gone) those that the container has beside its own are not judged.
    """
    config = inspected.get("Config") or {}
    try:
        was: Mapping[str, str] = json.loads((config.get("Labels") or {}).get(MADE, ""))
        now = _parts(config, inspected.get("HostConfig") or {}, list(_mounted(inspected)))
    except (ValueError, TypeError, KeyError):
        return "it does not say what it was made as"
    brought = {f"variable {pair.partition('=')[0]}" for pair in image_env or ()}
    for name in sorted(was.keys() | now.keys(), key=_rank_of):
        if name not in now:
            return f"{name} is missing"
        if name not in was and name.startswith("variable ") and (image_env is None or name in brought):
            continue
        if was.get(name) != _digest(now[name]):
            return f"{name} is {now[name]!r}" + ("" if name in was else ", which it was made without")
    return ""


def _parts(config: Mapping[str, Any], host: Mapping[str, Any], mounts: Sequence[tuple[str, str, str, bool]]) -> Parts:
    """Everything that decides how a rank runs, by a name for a person."""
    argv = [*(config.get("Entrypoint") or ()), *(config.get("Cmd") or ())]
    parts = {f"argument {at}" + _flag(argv, at): word for at, word in enumerate(argv)}
    for pair in config.get("Env") or ():
        name, _, value = pair.partition("=")
        given = f"variable {name}"
        parts[given] = f"{parts[given]} and {value}" if given in parts else value
    for target, kind, source, read_only in mounts:
        parts[f"mount {target}"] = f"{kind} {source} {'read-only' if read_only else 'writable'}"
    parts["image"], parts["user"] = str(config.get("Image", "")), str(config.get("User") or "")
    for name in ("NetworkMode", "IpcMode", "OomScoreAdj"):
        parts[name] = str(host.get(name))
    return parts


def _flag(argv: Sequence[str], at: int) -> str:
    """Named by the flag before it, where there is one."""
    flagged = at > 0 and argv[at - 1].startswith("--") and not argv[at].startswith("--")
    return f" ({argv[at - 1]})" if flagged else ""


def _mounted(inspected: Mapping[str, Any]) -> Iterator[tuple[str, str, str, bool]]:
    """What is mounted, however it was asked for."""
    for one in inspected.get("Mounts") or ():
        source = one.get("Name") if one["Type"] == "volume" else one.get("Source")
        yield one["Destination"], one["Type"], str(source), not one["RW"]


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode("utf-8", "surrogateescape")).hexdigest()[:DIGEST_CHARS]


def _rank_of(name: str) -> tuple[int, int, str]:
    """Arguments in their order come first: what is said of a flag says more than what follows from it."""
    words = name.split()
    return (0, int(words[1]), name) if words[0] == "argument" else (1, 0, name)
