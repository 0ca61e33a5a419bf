"""What ``docker info``, ``docker ps`` and ``docker volume inspect`` print as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class DockerInfo:
    """A daemon. ``keeps_blobs``: images are kept by containerd, where their Ids differ from those of the classic store."""

    version: str
    driver: str
    keeps_blobs: bool
    runtimes: tuple[str, ...]

    @property
    def nvidia(self) -> bool:
        """Whether containers can be given GPUs: the NVIDIA runtime is registered."""
        return any("nvidia" in name for name in self.runtimes)


@dataclass(frozen=True, slots=True)
class Container:
    """One row of ``docker ps -a --no-trunc --format '{{json .}}'``."""

    name: str
    image: str
    command: str
    state: str
    labels: Mapping[str, str]

    @property
    def running(self) -> bool:
        """Whether its first process lives."""
        return self.state in {"running", "paused", "restarting"}


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume and how it is mounted; ``options`` are the local driver's ``type``, ``device`` and ``o``."""

    name: str
    driver: str
    options: Mapping[str, str]


def docker_info(text: str) -> DockerInfo | None:
    """Read ``docker info --format '{{json .}}'``, or a part of it; None where the daemon did not answer."""
    found = next(_objects(text), None)
    if not found or not found.get("ServerVersion"):
        return None
    status = found.get("DriverStatus") or []
    keeps = any(list(pair)[1:] == ["io.containerd.snapshotter.v1"] for pair in status)
    return DockerInfo(
        str(found["ServerVersion"]), str(found.get("Driver", "")), keeps, tuple(sorted(found.get("Runtimes") or {}))
    )


def containers(text: str) -> tuple[Container, ...]:
    """Read one object a line."""
    return tuple(
        Container(
            str(one.get("Names", "")),
            str(one.get("Image", "")),
            str(one.get("Command", "")).strip('"'),
            str(one.get("State", "")),
            dict(pair.split("=", 1) for pair in str(one.get("Labels", "")).split(",") if "=" in pair),
        )
        for one in _objects(text)
    )


def volume(text: str) -> Volume | None:
    """Read ``docker volume inspect NAME``; None where there is no such volume (``[]``)."""
    try:
        rows = json.loads(text)
    except ValueError:
        return None
    if not isinstance(rows, list) or not rows:
        return None
    one = rows[0]
    return Volume(str(one.get("Name", "")), str(one.get("Driver", "")), dict(one.get("Options") or {}))


def layers(text: str) -> frozenset[tuple[str, ...]]:
    """Read ``docker image inspect NAME…``: the diff ids of each image that is there. ``ValueError`` where it is not that.

    An error about the missing ones stands behind the list.
    """
    found, _ = json.JSONDecoder().raw_decode(text.lstrip())
    return frozenset(tuple((one.get("RootFS") or {}).get("Layers") or ()) for one in found)


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """JSON objects, one a line; warnings between them are skipped."""
    for line in text.splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found
