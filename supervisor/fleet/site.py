"""What only a node itself can tell of how ranks run on it, and what a launch asks of the nodes together."""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from build.machine import platform_of
from build.nodes.hosts import HEAD

if TYPE_CHECKING:
    from build.bundle import ImageRef
    from build.image.docker_api import Api
    from supervisor.configuration import Configuration
    from supervisor.doctor.links import Links
    from supervisor.gang.launch import Blueprint
    from supervisor.guard.places import Place


@dataclass(frozen=True, slots=True)
class Site:
    """One node. ``store`` is absolute as seen there; ``user`` is the ``uid:gid`` that containers run as, "" the image's own.

    ``cache`` is a folder of the node that ranks may write to; None where they run as processes. ``volume`` is the Docker volume
    that holds the store there, "" where it is at ``store``.
    """

    node: str
    store: Path
    platform: str
    user: str = ""
    cache: Path | None = None
    volume: str = ""


@dataclass(frozen=True, slots=True)
class GuardPost:
    """What guards in containers need of a node: its daemon, the loading of an image, and a place for their files."""

    site: Callable[[], Site]
    api: Api
    image_id: Callable[[ImageRef], str]
    place: Place


class Nodes(Protocol):
    """What a launch asks of its nodes."""

    def site(self, node: str) -> Site:
        """What a node says of itself. A ``NodeError`` where it cannot be asked."""

    def examine(self, one: Configuration, cancelled: threading.Event, say: Callable[[str, str], None]) -> Links:
        """Say what is wrong with the nodes, refuse what forbids a launch, and give the links that it will use."""

    def prepare(self, one: Blueprint, cancelled: threading.Event) -> None:
        """Make every node ready for its ranks, or refuse with the reason."""

    def prove(self, one: Configuration, links: Links, say: Callable[[str, str], None]) -> Links:
        """Full-size packets over the links, once every node has what sends them; the links that are left."""

    def available(self, one: Configuration) -> Mapping[str, int]:
        """What each worker has available now, in bytes by name. ``Refused`` where it cannot be read."""

    def close(self) -> None:
        """Let connections go; ranks stay as they are."""


def head_site(node: str, store: Path, user: str = "", cache: Path | None = None) -> Site:
    """A node of this host's machine type."""
    return Site(node, store, platform_of(platform.machine()), user, cache)


def local_site(state_dir: Path) -> Site:
    """This host, for containers: they run as the launching user, so that nothing a rank writes belongs to root."""
    return head_site(HEAD, state_dir / "store", f"{os.getuid()}:{os.getgid()}", state_dir / "cache" / "ranks")
