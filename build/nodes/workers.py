"""Which other hosts take part, as users name them: the settings of workers. Pure; what ssh makes of a name is in ``named``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from build.errors import UsageError
from build.settings import Change, one_of, optional, path, setting, text


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """Which other hosts take part, and where things are on them."""

    worker: str = setting(
        text, "", "ssh target of the worker (of several: separated by spaces, in rank order); empty: one host", change=Change.RUN
    )
    fabric_peer: str = setting(
        text, "", "the worker's IPv4 address on the link, where ssh takes another route (as many as workers)"
    )
    worker_store: str = setting(
        text,
        ".local/share/twinfold/store",
        "the store on the workers, relative to the ssh user's home (one for all, or one for each)",
        change=Change.RUN,
        recipe=False,
    )
    worker_hf_cache: str = setting(
        text,
        "",
        "the hub's cache on the workers: files that are whole there are copied from it, not sent (one for all, or one for each)",
        change=Change.RUN,
    )
    worker_docker_socket: str = setting(
        text,
        "/var/run/docker.sock",
        "Docker's socket on the workers (one for all, or one for each)",
        change=Change.RUN,
        recipe=False,
    )
    ssh_config: Path | None = setting(
        optional(path), None, "ssh configuration to use in place of the user's own", change=Change.RUN, recipe=False
    )
    prepare: str = setting(
        one_of("auto", "1", "0"),
        "auto",
        "before a launch, auto: copy to the workers what they lack; 1: also read every byte there; 0: copy nothing, check all",
        change=Change.RUN,
    )


def each(name: str, said: str, count: int, *, shared: bool = True) -> tuple[str, ...]:
    """A setting's words, one a worker. ``shared``: a single word holds for all; no word is none for each."""
    words = said.split()
    if not words or (shared and len(words) == 1):
        return (words[0] if words else "",) * count
    if len(words) != count:
        raise UsageError(f"{name} names {len(words)}, and `worker` {count}: give one for each, in their order")
    return tuple(words)


def unsafe(destination: str) -> str:
    """Why a value must not reach ssh at all, or an empty string."""
    if not destination:
        return "is empty: name a host"
    if destination.startswith("-"):
        return "starts with a dash, which ssh would read as an option: name a host"
    if any(c.isspace() or not c.isprintable() for c in destination):
        return "holds white space or control characters: name one host"
    return ""
