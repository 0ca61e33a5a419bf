"""Debian's docker-registry on loopback, and images pushed into it by the distribution API, for tests."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.testing.waiting import free_port

PROGRAM = shutil.which("docker-registry", path="/usr/local/bin:/usr/bin:/usr/sbin:/bin")
START_S = 60.0
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


@contextlib.contextmanager
def registry(folder: Path) -> Iterator[str]:
    """A registry of its own; its host and port. The test is skipped where the Debian package is not installed."""
    if PROGRAM is None:
        pytest.skip("docker-registry is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    port, config = free_port(), folder / "registry.yml"
    config.write_text(
        f"version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {folder / 'data'}\n"
        f"http:\n  addr: 127.0.0.1:{port}\n"
    )
    with (folder / "registry.log").open("wb") as log:
        server = subprocess.Popen([PROGRAM, "serve", str(config)], stdout=log, stderr=log)
    try:
        end = time.monotonic() + START_S
        while not _answers(port):
            assert time.monotonic() < end, (folder / "registry.log").read_text()
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def push(name: str, tag: str, layers: Sequence[bytes], architecture: str) -> str:
    """Put an image of uncompressed ``layers`` at ``host:port/repository``; its manifest's digest."""
    root = api(name)
    diff_ids = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
    document = {
        "architecture": architecture, "os": "linux", "config": {"Env": ["PATH=/usr/bin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    }  # fmt: skip
    config = {"mediaType": "application/vnd.docker.container.image.v1+json", **_blob(root, json.dumps(document).encode())}
    listed = [{"mediaType": "application/vnd.docker.image.rootfs.diff.tar", **_blob(root, layer)} for layer in layers]
    return put(name, tag, {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": listed})


def put(name: str, tag: str, manifest: dict[str, Any]) -> str:
    """Put a manifest under a tag; its digest."""
    content = json.dumps(manifest).encode()
    _call(f"{api(name)}/manifests/{tag}", "PUT", content, str(manifest["mediaType"]))
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def api(name: str) -> str:
    """The API's address of ``host:port/repository``."""
    host, _, repository = name.partition("/")
    return f"http://{host}/v2/{repository}"


def _blob(root: str, content: bytes) -> dict[str, object]:
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    where = _call(f"{root}/blobs/uploads/", "POST")["Location"]
    _call(f"{where}{'&' if '?' in where else '?'}digest={digest}", "PUT", content)
    return {"digest": digest, "size": len(content)}


def _call(url: str, method: str, body: bytes = b"", kind: str = "application/octet-stream") -> Any:
    with urlopen(Request(url, body or None, {"Content-Type": kind}, method=method), timeout=30) as answer:
        return answer.headers


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
