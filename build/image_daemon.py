"""Docker over its socket: one clear line for each way it can be unusable, and what loading images asks of it.

The only module of the build that imports the Docker SDK, and only when a daemon is spoken to.
"""

from __future__ import annotations

import errno
import json
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from build.errors import Refused
from build.image_identity import Json
from build.image_load import LoadRefused
from build.oci import Platform

if TYPE_CHECKING:
    from docker import APIClient

DEFAULT_SOCKET = "/var/run/docker.sock"
# 1.40 is Docker 19.03: the first whose containers can ask for GPUs by DeviceRequests.
OLDEST_API = (1, 40)
# From 1.48 (Docker 28) on, a load names its platform and inspect lists whether every blob is there.
PLATFORM_API = (1, 48)
LOAD_TIMEOUT_S = 1800.0
# What `uname -m` says, in Go's words.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class DaemonUnreachable(Refused):
    """The socket is there no more, or nothing answers on it."""


def connect(path: str = DEFAULT_SOCKET, where: str = "this node", timeout_s: int = 30) -> APIClient:
    """A client of the daemon behind a unix socket; ``Refused`` with what to do where there is none that can be used."""
    _knock(path, where, min(timeout_s, 5))
    import docker

    with reaching(where):
        version = _api_version(path, where, timeout_s)
        return docker.APIClient(base_url=f"unix://{path}", version=version, timeout=timeout_s)


def api_of(client: APIClient) -> tuple[int, int]:
    """The API's version that a client speaks."""
    return _numbers(client.api_version)


@contextmanager
def reaching(where: str) -> Iterator[None]:
    """Turn a broken or silent connection into ``DaemonUnreachable``; other errors of the SDK pass."""
    from docker import errors
    from requests import exceptions

    try:
        yield
    except errors.APIError:
        raise
    except (exceptions.ConnectionError, exceptions.Timeout, exceptions.ChunkedEncodingError) as error:
        raise DaemonUnreachable(f"Docker on {where} does not answer ({_short(error)}): see `systemctl status docker`") from None
    except errors.DockerException as error:
        raise Refused(f"Docker on {where} cannot be used: {_short(error)}") from None


class DockerDaemon:
    """The Docker Engine API as loading needs it."""

    def __init__(self, client: APIClient, where: str = "this node") -> None:
        self.where = where
        self._client = client

    def platform(self) -> Platform:
        """The daemon's own platform."""
        with reaching(self.where):
            info = self._client.info()
        machine = info["Architecture"]
        return Platform(info["OSType"], ARCHITECTURES.get(machine, machine))

    def keeps_blobs(self) -> bool:
        """Whether images are kept by containerd."""
        with reaching(self.where):
            status = self._client.info().get("DriverStatus") or []
        return any(value == "io.containerd.snapshotter.v1" for _name, value in status)

    def stacks(self) -> Sequence[tuple[str, ...]]:
        """The diff ids of every image, each image once."""
        from docker import errors

        found: list[tuple[str, ...]] = []
        with reaching(self.where):
            for image_id in {one["Id"] for one in self._client.images()}:
                try:
                    rootfs = self._client.inspect_image(image_id).get("RootFS") or {}  # type: ignore[no-untyped-call]
                except errors.APIError:
                    continue  # removed since it was listed, or damaged: then its layers count as missing
                found.append(tuple(rootfs.get("Layers") or ()))
        return found

    def load(self, archive: Iterable[bytes], platform: Platform) -> None:
        """``POST /images/load``. A containerd store reports a failed unpacking as mere text of the stream."""
        import requests
        from docker import errors

        params = {"platform": json.dumps(platform.document())} if api_of(self._client) >= PLATFORM_API else {}
        url = f"{self._client.base_url}/v{self._client.api_version}/images/load"
        try:
            answer = self._client.post(url, data=iter(archive), params=params, timeout=LOAD_TIMEOUT_S)
        except (requests.exceptions.RequestException, errors.DockerException) as error:
            raise LoadRefused(f"the connection broke: {_short(error)}") from None
        refusal = load_refusal(answer.status_code, answer.text)
        if refusal:
            raise LoadRefused(refusal)

    def inspect(self, name: str, manifest_digest: str) -> Json | None:
        """``GET /images/{name}/json``; None where it is missing or not whole."""
        params = {"manifests": "1"} if api_of(self._client) >= PLATFORM_API else {}
        url = f"{self._client.base_url}/v{self._client.api_version}/images/{name}/json"
        with reaching(self.where):
            answer = self._client.get(url, params=params, timeout=self._client.timeout)
        if answer.status_code == 404:
            return None
        if answer.status_code != 200:
            raise Refused(f"Docker on {self.where} cannot inspect image {name}: {message(answer.text)}")
        found: Json = answer.json()
        return found if is_whole(found, manifest_digest) else None


def is_whole(found: Json, manifest_digest: str) -> bool:
    """Whether every blob of a manifest is there, as far as the daemon says: ``Manifests[].Available`` since API 1.48."""
    said = [one.get("Available") for one in found.get("Manifests") or [] if one.get("ID") == manifest_digest]
    return False not in said


def load_refusal(status: int, body: str) -> str:
    """Why a load failed, or "" where it did not: an HTTP error, an error object in the stream, or a line that says so."""
    if status != 200:
        return message(body)
    for line in body.splitlines():
        try:
            one: dict[str, Any] = json.loads(line)
        except ValueError:
            continue
        said = str(one.get("error") or "")
        told = str(one.get("stream") or "")
        if said or told.startswith("Error unpacking image"):
            return " ".join((said or told).split())
    return ""


def message(body: str) -> str:
    """The daemon's own words of an error answer, on one line."""
    try:
        said = json.loads(body)["message"]
    except (ValueError, KeyError, TypeError):
        said = body
    return " ".join(str(said).split())[:300]


def _knock(path: str, where: str, timeout_s: float) -> None:
    """Connect once without the SDK: the reason of a failure is plain here, and buried in four layers there."""
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(timeout_s)
            probe.connect(path)
    except FileNotFoundError:
        raise DaemonUnreachable(
            f"Docker is not running on {where}: there is no socket {path}: install Docker, or `sudo systemctl start docker`"
        ) from None
    except PermissionError:
        raise Refused(
            f"Docker on {where} refuses this user (no permission for {path}): `sudo usermod -aG docker $USER`, then log in again"
        ) from None
    except OSError as error:
        silent = isinstance(error, TimeoutError) or error.errno in (errno.EAGAIN, errno.ETIMEDOUT)
        reason = "nobody accepts on" if silent else "nothing listens on"
        raise DaemonUnreachable(f"Docker is not running on {where}: {reason} {path}: `sudo systemctl restart docker`") from None


def _api_version(path: str, where: str, timeout_s: int) -> str:
    """The daemon's API version; ``Refused`` where it is too old for what containers of ranks need."""
    import docker

    # The oldest version that the SDK takes: /version is answered under no version at all, so this is never sent.
    probe = docker.APIClient(base_url=f"unix://{path}", version="1.44", timeout=timeout_s)
    try:
        answer = probe.get(f"{probe.base_url}/version", timeout=timeout_s)
        found = answer.json() if answer.status_code == 200 else {}
    finally:
        probe.close()
    spoken = str(found.get("ApiVersion", ""))
    if not spoken or _numbers(spoken) < OLDEST_API:
        oldest = ".".join(map(str, OLDEST_API))
        raise Refused(
            f"Docker {found.get('Version', 'of unknown version')} on {where} speaks API {spoken or 'none'}, "
            f"{oldest} or newer is needed: upgrade Docker to 19.03 or later"
        )
    return spoken


def _numbers(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
