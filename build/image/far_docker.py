"""The Docker daemon of another node, over a socket that its connection forwards here.

Before each request the node is asked for the socket, which makes a lost connection anew, no more often than its back-off allows.
A node that cannot be reached is a daemon that cannot be reached.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from build.image.docker_api import Answer, DaemonUnreachable, DockerApi, Stream, connect
from build.nodes.node import Node
from build.nodes.ssh_errors import NodeError

TIMEOUT_S = 10  # an answer takes milliseconds; a connection that died silently must not hold a caller for long


class FarDocker:
    """:class:`build.image.docker_api.Api` of a node's daemon. Safe to use from threads."""

    def __init__(self, node: Node, timeout_s: int = TIMEOUT_S) -> None:
        self._node, self._timeout_s = node, timeout_s
        self._lock = threading.Lock()
        self._path = ""
        self._api: DockerApi | None = None

    @property
    def where(self) -> str:
        """The node's name."""
        return self._node.name

    @property
    def version(self) -> tuple[int, int]:
        """See :class:`build.image.docker_api.Api`, as for all that follows."""
        return self._now().version

    def get(self, path: str, params: Mapping[str, str] | None = None) -> Answer:
        """``GET``."""
        return self._now().get(path, params)

    def post(
        self, path: str, params: Mapping[str, str] | None = None, body: Any = None, timeout_s: float | None = None
    ) -> Answer:
        """``POST`` with a JSON body or none."""
        return self._now().post(path, params, body, timeout_s)

    def send(self, path: str, parts: Iterable[bytes], params: Mapping[str, str], timeout_s: float) -> Answer:
        """``POST`` with a tar."""
        return self._now().send(path, parts, params, timeout_s)

    def delete(self, path: str, params: Mapping[str, str] | None = None) -> Answer:
        """``DELETE``."""
        return self._now().delete(path, params)

    def stream(self, path: str, params: Mapping[str, str], timeout_s: float | None = None) -> Stream:
        """``GET`` whose body is read as it comes."""
        return self._now().stream(path, params, timeout_s)

    def info(self) -> Mapping[str, Any]:
        """What the daemon says of itself."""
        return self._now().info()

    def close(self) -> None:
        """Give the connections back."""
        with self._lock:
            if self._api is not None:
                self._api.close()
            self._api, self._path = None, ""

    def _now(self) -> DockerApi:
        try:
            path = str(self._node.docker_socket())
        except NodeError as error:
            raise DaemonUnreachable(str(error)) from None
        with self._lock:
            if self._api is None or path != self._path:
                if self._api is not None:
                    self._api.close()
                self._api, self._path = connect(path, self.where, self._timeout_s), path
            return self._api
