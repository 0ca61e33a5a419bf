"""What loading images asks of a daemon, answered by Docker."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from build.errors import Refused
from build.image.docker_api import Answer, Api, DaemonUnreachable
from build.image.identity import Json
from build.image.load import LoadRefused
from build.image.oci import Platform
from build.machine import ARCHITECTURES

# From 1.48 (Docker 28) on, a load names its platform and inspect lists whether every blob is there.
PLATFORM_API = (1, 48)
LOAD_TIMEOUT_S = 1800.0


class DockerDaemon:
    """:class:`build.image.load.Daemon` over the Engine API."""

    def __init__(self, api: Api) -> None:
        self.where = api.where
        self._api = api

    def platform(self) -> Platform:
        """The daemon's own platform."""
        info = self._api.info()
        machine = info["Architecture"]
        return Platform(info["OSType"], ARCHITECTURES.get(machine, machine))

    def keeps_blobs(self) -> bool:
        """Whether images are kept by containerd."""
        status = self._api.info().get("DriverStatus") or []
        return any(value == "io.containerd.snapshotter.v1" for _name, value in status)

    def stacks(self) -> Sequence[tuple[str, ...]]:
        """The diff ids of every image, each image once. One that cannot be inspected (just removed) counts as none."""
        listed = self._api.get("/images/json")
        if listed.status != 200:
            raise Refused(f"Docker on {self.where} does not list its images: {listed.message}: see `docker images` there")
        answers = [self._api.get(f"/images/{name}/json") for name in sorted({one["Id"] for one in listed.document})]
        found = [answer.document for answer in answers if answer.status == 200]
        return [tuple((one.get("RootFS") or {}).get("Layers") or ()) for one in found]

    def load(self, archive: Iterable[bytes], platform: Platform) -> None:
        """``POST /images/load``."""
        params = {"platform": json.dumps(platform.document())} if self._api.version >= PLATFORM_API else {}
        try:
            answer = self._api.send("/images/load", archive, params, LOAD_TIMEOUT_S)
        except DaemonUnreachable as error:  # a daemon that has seen enough hangs up in the middle
            raise LoadRefused(str(error)) from None
        refusal = load_refusal(answer)
        if refusal:
            raise LoadRefused(refusal)

    def inspect(self, name: str, manifest_digest: str) -> Json | None:
        """``GET /images/{name}/json``; None where it is missing or not whole."""
        answer = self._api.get(f"/images/{name}/json", {"manifests": "1"} if self._api.version >= PLATFORM_API else {})
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise Refused(f"Docker on {self.where} cannot inspect image {name}: {answer.message}: see `docker images` there")
        found: Json = answer.document
        return found if is_whole(found, manifest_digest) else None


def is_whole(found: Json, manifest_digest: str) -> bool:
    """Whether every blob of a manifest is there, as far as the daemon says: ``Manifests[].Available`` since API 1.48."""
    said = [one.get("Available") for one in found.get("Manifests") or [] if one.get("ID") == manifest_digest]
    return False not in said


def load_refusal(answer: Answer) -> str:
    """Why a load failed, or "" where it did not: an HTTP error, an error object in the stream, or a line that says so.

    A containerd store imports first and then unpacks, and reports a failed unpacking as mere text of the stream.
    """
    if answer.status != 200:
        return answer.message
    for line in answer.text.splitlines():
        try:
            one: dict[str, Any] = json.loads(line)
        except ValueError:
            continue
        said, told = str(one.get("error") or ""), str(one.get("stream") or "")
        if said or told.startswith("Error unpacking image"):
            return " ".join((said or told).split())
    return ""
