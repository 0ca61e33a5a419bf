"""Docker's Engine API over a unix socket: requests in, status and JSON out, one clear line for a daemon that cannot be used.

The only module that imports the Docker SDK, and only when a daemon is spoken to. The SDK brings the transport over a socket and
the version's negotiation; paths and bodies are the API's own, so that an answer's status decides and no exception's class.
"""

from __future__ import annotations

import contextlib
import errno
import json
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from build.errors import Refused

if TYPE_CHECKING:
    from docker import APIClient

DEFAULT_SOCKET = "/var/run/docker.sock"
# 1.40 is Docker 19.03: the first whose containers can ask for GPUs by DeviceRequests.
OLDEST_API = (1, 40)
MESSAGE_MAX = 400
KNOCK_S = 5.0


class DaemonUnreachable(Refused):
    """There is no socket, or nothing answers on it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP status and the body, as text and as JSON (None where it is none)."""

    status: int
    text: str

    @property
    def document(self) -> Any:
        """The body read as JSON."""
        try:
            return json.loads(self.text)
        except ValueError:
            return None

    @property
    def message(self) -> str:
        """The daemon's own words of an error, on one line."""
        found = self.document
        said = found.get("message", self.text) if isinstance(found, dict) else self.text
        return " ".join(str(said).split())[:MESSAGE_MAX]


class Stream:
    """A body that arrives as it is made. ``close`` may be called from another thread and ends the iteration."""

    def __init__(self, answer: Any) -> None:
        from docker.types import CancellableStream

        self.status: int = answer.status_code
        self._answer = answer
        self._chunks = CancellableStream(answer.iter_content(None), answer)

    def __iter__(self) -> Iterator[bytes]:
        try:
            # `yield from` would close them once more where this iterator is dropped
            for chunk in self._chunks:  # noqa: UP028
                yield chunk
        finally:
            self._answer.close()

    def close(self) -> None:
        """Shut the connection down, which ends a read that waits in another thread; then give its descriptor back."""
        with contextlib.suppress(OSError):  # the other side was quicker
            self._chunks.close()
        self._answer.close()


class Api(Protocol):
    """What images and containers ask of a daemon, this host's or another's."""

    @property
    def where(self) -> str:
        """Its node, for people."""

    @property
    def version(self) -> tuple[int, int]:
        """The API's version."""

    def get(self, path: str, params: Mapping[str, str] | None = None) -> Answer:
        """``GET``; ``DaemonUnreachable`` where no answer comes, as for all others."""

    def post(
        self, path: str, params: Mapping[str, str] | None = None, body: Any = None, timeout_s: float | None = None
    ) -> Answer:
        """``POST`` with a JSON body or none."""

    def send(self, path: str, parts: Iterable[bytes], params: Mapping[str, str], timeout_s: float) -> Answer:
        """``POST`` with a tar that is made while it is sent."""

    def delete(self, path: str, params: Mapping[str, str] | None = None) -> Answer:
        """``DELETE``."""

    def stream(self, path: str, params: Mapping[str, str], timeout_s: float | None = None) -> Stream:
        """``GET`` whose body is read as it comes."""

    def info(self) -> Mapping[str, Any]:
        """What the daemon says of itself."""


class DockerApi:
    """One daemon. ``where`` names its node for people; ``version`` is the API's, as numbers."""

    def __init__(self, client: APIClient, path: str, where: str) -> None:
        self.where = where
        self._path = path
        self._silent = False
        self.version = _numbers(client.api_version)
        self._client = client
        self._root = f"{client.base_url}/v{client.api_version}"

    def get(self, path: str, params: Mapping[str, str] | None = None) -> Answer:
        """``GET``; ``DaemonUnreachable`` where no answer comes."""
        return self._ask("GET", path, params)

    def post(
        self, path: str, params: Mapping[str, str] | None = None, body: Any = None, timeout_s: float | None = None
    ) -> Answer:
        """``POST`` with a JSON body or none."""
        return self._ask("POST", path, params, timeout_s, json=body)

    def send(self, path: str, parts: Iterable[bytes], params: Mapping[str, str], timeout_s: float) -> Answer:
        """``POST`` with a tar that is made while it is sent."""
        return self._ask("POST", path, params, timeout_s, data=iter(parts), headers={"Content-Type": "application/x-tar"})

    def delete(self, path: str, params: Mapping[str, str] | None = None) -> Answer:
        """``DELETE``."""
        return self._ask("DELETE", path, params)

    def stream(self, path: str, params: Mapping[str, str], timeout_s: float | None = None) -> Stream:
        """``GET`` whose body is read as it comes; without a time-out it may be silent for ever, until it is closed."""
        with self._reaching():
            limits = (self._client.timeout, timeout_s)
            answer = self._client.get(self._root + path, params=params, timeout=limits, stream=True)
        return Stream(answer)

    def info(self) -> Mapping[str, Any]:
        """What the daemon says of itself."""
        answer = self.get("/info")
        if answer.status != 200:
            raise Refused(f"Docker on {self.where} does not describe itself: {answer.message}: see `docker info` there")
        found: Mapping[str, Any] = answer.document
        return found

    def close(self) -> None:
        """Give the connections back."""
        self._client.close()

    def _ask(
        self, method: str, path: str, params: Mapping[str, str] | None, timeout_s: float | None = None, **more: Any
    ) -> Answer:
        with self._reaching():
            answer = self._client.request(
                method, self._root + path, params=params, timeout=timeout_s or self._client.timeout, **more
            )
            return Answer(answer.status_code, answer.text)

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """A daemon that did not answer is knocked at first: cheap, and the SDK leaves a refused socket to the collector."""
        if self._silent:
            _knock(self._path, self.where, KNOCK_S)
        try:
            with reaching(self.where):
                yield
        except DaemonUnreachable:
            self._silent = True
            raise
        self._silent = False


def connect(path: str = DEFAULT_SOCKET, where: str = "this node", timeout_s: int = 30) -> DockerApi:
    """The daemon behind a unix socket; ``Refused`` with what to do where there is none that can be used."""
    _knock(path, where, min(timeout_s, KNOCK_S))
    import docker

    with reaching(where):
        spoken = _api_version(path, where, timeout_s)
        return DockerApi(docker.APIClient(base_url=f"unix://{path}", version=spoken, timeout=timeout_s), path, where)


@contextmanager
def reaching(where: str) -> Iterator[None]:
    """Turn a broken or silent connection into ``DaemonUnreachable``, and what else the SDK raises into ``Refused``."""
    from docker import errors
    from requests import exceptions

    try:
        yield
    except (exceptions.RequestException, OSError) as error:
        raise DaemonUnreachable(f"Docker on {where} does not answer ({_short(error)}): see `systemctl status docker`") from None
    except errors.DockerException as error:
        raise Refused(f"Docker on {where} cannot be used: {_short(error)}") from None


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

    # /version is asked under no version at all, so the one that the SDK is given here is never sent.
    probe = docker.APIClient(base_url=f"unix://{path}", version="1.44", timeout=timeout_s)
    try:
        answer = probe.get(f"{probe.base_url}/version", timeout=timeout_s)
        found = Answer(answer.status_code, answer.text).document if answer.status_code == 200 else {}
    finally:
        probe.close()
    spoken = str(found.get("ApiVersion", "")) if isinstance(found, dict) else ""
    if _numbers(spoken) < OLDEST_API:
        version, oldest = found.get("Version", "of unknown version"), ".".join(map(str, OLDEST_API))
        raise Refused(
            f"Docker {version} on {where} speaks API {spoken or 'none'}, {oldest} or newer is needed: "
            "upgrade Docker to 19.03 or later"
        )
    return spoken


def _numbers(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
