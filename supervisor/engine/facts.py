"""The facts that log lines of the engine state: one frozen type each. :mod:`supervisor.engine.log` reads them."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field

from supervisor.engine.nccl import NcclFailure


def connectable(host: str) -> str:
    """An address to ask on the same machine, as a URL writes it: loopback for a wildcard, IPv6 in brackets."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return host
    if address.is_unspecified:
        address = ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")
    return str(address) if address.version == 4 else f"[{address}]"


@dataclass(frozen=True, slots=True)
class Ready:
    """Rank 0 listens. ``host`` is what it listens on, which need not be an address to ask (see ``probe_url``)."""

    name: str
    host: str
    port: int
    context_tokens: int | None = None
    drafts: str = ""
    loaded_s: float | None = None

    @property
    def probe_url(self) -> str:
        """Where to ask from the same machine: a wildcard address is not one to connect to."""
        return f"http://{connectable(self.host)}:{self.port}/v1"


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """Rank 0 has loaded its weights, and what room is left. It does not serve yet.

    ``stream_gib`` 0.00 is no fault: streams share one pool that was taken before.
    """

    device: str
    shared: bool
    model_gib: float
    streams: int
    stream_gib: float
    window_tokens: int
    left_gib: float
    reserve_gib: float


@dataclass(frozen=True, slots=True)
class RankLoaded:
    """A follower has loaded its weights and looks for rank 0. Older builds say drafts as true or false, others as a number."""

    rank: int
    loaded_s: float
    pool_tokens: int | None = None
    drafts: bool | None = None
    arena_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Followed:
    """A follower's end: ``error`` is empty after a clean one, else e.g. PeerDown."""

    rank: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class FollowRefused:
    """A follower turned down one frame and goes on."""

    error: str


@dataclass(frozen=True, slots=True)
class Done:
    """A reply was finished. ``fields`` are the line's words as they stand."""

    id: str
    prompt_tokens: int | None
    cached_tokens: int | None
    tokens: int | None
    finish: str
    rounds: int | None
    accepted: int | None
    drafted: int | None
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RequestRefused:
    """A request was turned down before it ran."""

    id: str
    message: str


@dataclass(frozen=True, slots=True)
class RequestEnded:
    """A request ended without a finished reply: ``reason`` is client-left or error, ``detail`` what the line adds."""

    id: str
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class StreamError:
    """A streamed reply broke."""

    message: str


@dataclass(frozen=True, slots=True)
class Access:
    """One HTTP request was answered."""

    client: str
    method: str
    path: str
    status: int


@dataclass(frozen=True, slots=True)
class StartFailure:
    """A start came to nothing. ``restart`` says whether the same start could work another time.

    ``floor_gib``, ``left_gib``, ``asked`` and ``fits_streams`` are given by a refusal for memory.
    """

    kind: str
    message: str
    restart: bool
    asked: str = ""
    left_gib: float | None = None
    floor_gib: float | None = None
    fits_streams: int | None = None


Fact = (
    Ready
    | MemoryLine
    | RankLoaded
    | Followed
    | FollowRefused
    | Done
    | RequestRefused
    | RequestEnded
    | StreamError
    | Access
    | StartFailure
    | NcclFailure
)
