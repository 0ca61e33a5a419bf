"""A registry, read only: an image's manifest and config by reference or digest, each checked against its digest.

The distribution API over HTTP (https://github.com/opencontainers/distribution-spec/blob/main/spec.md), with the anonymous token
that public registries ask for. A registry on loopback is spoken to without TLS, as Docker does. No layer is fetched here.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from build.errors import BuildFailed, OutputDiffers
from build.image.oci import Descriptor, Platform
from build.store.hashing import sha256_bytes

LIST_TYPES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
MANIFEST_TYPES = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
LIMIT_BYTES = 16 << 20
TIMEOUT_S = 30.0
LOOPBACK = re.compile(r"(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?")


@dataclass(frozen=True, slots=True)
class Name:
    """An image's name: ``host``, ``repository``, and a tag or a digest."""

    host: str
    repository: str
    tag: str


@dataclass(frozen=True, slots=True)
class Found:
    """An image of one platform: ``digest`` is of what the name leads to (a list or the manifest itself)."""

    digest: str
    manifest_digest: str
    manifest: bytes
    config: bytes

    @property
    def config_digest(self) -> str:
        """Of the config."""
        return f"sha256:{sha256_bytes(self.config)}"

    @property
    def layers(self) -> tuple[Descriptor, ...]:
        """The layers as the registry keeps them, lowest first."""
        listed = json.loads(self.manifest)["layers"]
        return tuple(Descriptor(str(e["mediaType"]), str(e["digest"]), int(e["size"])) for e in listed)

    @property
    def diff_ids(self) -> tuple[str, ...]:
        """The layers unpacked, lowest first."""
        return tuple(json.loads(self.config)["rootfs"]["diff_ids"])


def parse(reference: str) -> Name:
    """``host/repository:tag`` or ``…@sha256:…``; ``BuildFailed`` for a name without a registry's host."""
    name, at, digest = reference.partition("@")
    host, slash, rest = name.partition("/")
    if not slash or not ("." in host or ":" in host or host == "localhost"):
        raise BuildFailed(f"{reference} does not name its registry: write host/repository:tag")
    repository, colon, tag = rest.rpartition(":") if ":" in rest else (rest, "", "latest")
    del colon
    return Name(host, repository, digest if at else tag)


class Registry:
    """The registry of one repository."""

    def __init__(self, name: Name) -> None:
        scheme = "http" if LOOPBACK.fullmatch(name.host) else "https"
        self._name, self._root = name, f"{scheme}://{name.host}/v2/{name.repository}"
        self._token = ""

    def find(self, platform: Platform) -> Found:
        """The image that the name leads to, for a platform."""
        kind, top = self._manifest(self._name.tag)
        digest = f"sha256:{sha256_bytes(top)}"
        chosen, manifest = digest, top
        if kind in LIST_TYPES or "manifests" in json.loads(top):
            chosen = self._of_platform(json.loads(top), platform)
            _, manifest = self._manifest(chosen)
        config = self._blob(str(json.loads(manifest)["config"]["digest"]))
        return Found(digest, chosen, manifest, config)

    def _of_platform(self, listed: Mapping[str, Any], platform: Platform) -> str:
        for entry in listed["manifests"]:
            there = entry.get("platform", {})
            if (there.get("os"), there.get("architecture")) == (platform.os, platform.architecture):
                return str(entry["digest"])
        raise BuildFailed(f"{self._name.host}/{self._name.repository} has no image for {platform}")

    def _manifest(self, tag: str) -> tuple[str, bytes]:
        accept = ", ".join((*LIST_TYPES, *MANIFEST_TYPES))
        kind, content = self._get(f"/manifests/{tag}", accept)
        return kind, _checked(content, tag)

    def _blob(self, digest: str) -> bytes:
        return _checked(self._get(f"/blobs/{digest}", "*/*")[1], digest)

    def _get(self, path: str, accept: str, *, again: bool = True) -> tuple[str, bytes]:
        headers = {"Accept": accept} | ({"Authorization": f"Bearer {self._token}"} if self._token else {})
        try:
            with _open(self._root + path, headers) as answer:
                return answer.headers.get_content_type(), answer.read(LIMIT_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 401 and again and self._log_in(error.headers.get("WWW-Authenticate", "")):
                    return self._get(path, accept, again=False)
                what = f"{self._name.host}/{self._name.repository}{path} answered {error.code}"
                raise BuildFailed(f"{what}: check the name, or that this machine may pull it") from None
        except (OSError, ValueError) as error:
            raise BuildFailed(f"registry {self._name.host} cannot be reached: {getattr(error, 'reason', error)}") from None

    def _log_in(self, asked: str) -> bool:
        """Get the anonymous token that a registry asks for."""
        words = dict(re.findall(r'(\w+)="([^"]*)"', asked))
        if not asked.startswith("Bearer ") or urlsplit(words.get("realm", "")).scheme != "https":
            return False
        query = urlencode({k: v for k, v in words.items() if k in {"service", "scope"}})
        try:
            with _open(f"{words['realm']}?{query}", {}) as answer:
                told = json.loads(answer.read(LIMIT_BYTES))
        except (OSError, ValueError):
            return False
        self._token = str(told.get("token") or told.get("access_token") or "")
        return bool(self._token)


def _open(url: str, headers: Mapping[str, str]) -> Any:
    return urllib.request.urlopen(urllib.request.Request(url, headers=dict(headers)), timeout=TIMEOUT_S)  # noqa: S310 - http(s)


def _checked(content: bytes, wanted: str) -> bytes:
    """A content that was asked for by digest has it."""
    if wanted.startswith("sha256:") and f"sha256:{sha256_bytes(content)}" != wanted:
        raise OutputDiffers(f"the registry sent other bytes for {wanted[:19]}: a proxy may damage them")
    return content
