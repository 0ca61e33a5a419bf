"""The documents an image consists of, as data in and canonical bytes out.

Formats: the OCI image specification 1.0 (config, manifest, index, layout) and the ``manifest.json`` of ``docker save``. The same
input gives the same bytes on every machine: keys sorted, no blanks, no clock. Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from build.errors import UsageError

CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"

# containerd names an imported image by the first annotation, other tools read the second.
CONTAINERD_NAME = "io.containerd.image.name"
OCI_REF_NAME = "org.opencontainers.image.ref.name"
# A label that says what an image was built on.
BASE_NAME = "org.opencontainers.image.base.name"

EPOCH = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Platform:
    """What an image runs on, in Go's words: ``linux``, ``amd64`` or ``arm64``, and seldom a variant."""

    os: str
    architecture: str
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(filter(None, (self.os, self.architecture, self.variant)))

    def document(self) -> dict[str, str]:
        """The platform object of an index or of an API call."""
        named = {"architecture": self.architecture, "os": self.os, "variant": self.variant}
        return {key: value for key, value in named.items() if value}


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A blob by what it is: media type, ``sha256:<hex>`` and size in bytes."""

    media_type: str
    digest: str
    size_bytes: int

    def document(self) -> dict[str, Any]:
        """The descriptor object of a manifest."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size_bytes}


def parse_platform(text: str) -> Platform:
    """``linux/arm64`` or ``linux/arm64/v8``; ``UsageError`` for anything else."""
    parts = text.split("/")
    if len(parts) not in (2, 3) or not all(parts):
        raise UsageError(f'"{text}" is no platform: wanted os/architecture, as in linux/arm64')
    return Platform(*parts)


def canonical(document: object) -> bytes:
    """JSON with sorted keys and no blanks, UTF-8."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest_of(content: bytes) -> str:
    """``sha256:<hex>`` of some bytes."""
    return "sha256:" + hashlib.sha256(content).hexdigest()


def blob_path(digest: str) -> str:
    """Where a blob lies in an OCI layout."""
    return "blobs/" + digest.replace(":", "/", 1)


def describe(media_type: str, content: bytes) -> Descriptor:
    """The descriptor of some bytes."""
    return Descriptor(media_type, digest_of(content), len(content))


def merge_env(base: Sequence[str], extra: Sequence[tuple[str, str]]) -> list[str]:
    """``NAME=value`` lines: the base's in their order, each replaced where named again, then the new ones in theirs."""
    merged = {line.partition("=")[0]: line for line in base}
    merged.update({name: f"{name}={value}" for name, value in extra})
    return list(merged.values())


def config_document(
    platform: Platform,
    run: Mapping[str, Any],
    diff_ids: Sequence[str],
    history: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """An image's config. ``run`` is what a container starts with (Env, Entrypoint, ...); empty values are left out."""
    return {
        **platform.document(),
        "config": {key: value for key, value in run.items() if value},
        "created": EPOCH,
        "history": list(history),
        "rootfs": {"diff_ids": list(diff_ids), "type": "layers"},
    }


def manifest_document(config: Descriptor, layers: Sequence[Descriptor]) -> dict[str, Any]:
    """An OCI manifest of one image for one platform."""
    return {
        "config": config.document(),
        "layers": [layer.document() for layer in layers],
        "mediaType": MANIFEST_TYPE,
        "schemaVersion": 2,
    }


def index_document(manifest: Descriptor, platform: Platform, tag: str) -> dict[str, Any]:
    """The ``index.json`` of a layout with one image: the platform is named, so that no reader has to guess."""
    entry = {
        **manifest.document(),
        "annotations": {CONTAINERD_NAME: tag, OCI_REF_NAME: tag.rpartition(":")[2]},
        "platform": platform.document(),
    }
    return {"manifests": [entry], "mediaType": INDEX_TYPE, "schemaVersion": 2}


def docker_manifest(config: Descriptor, layers: Sequence[Descriptor], tag: str) -> list[dict[str, Any]]:
    """The ``manifest.json`` that Docker's graph-driver store reads; it names the layout's own blobs."""
    return [{"Config": blob_path(config.digest), "Layers": [blob_path(layer.digest) for layer in layers], "RepoTags": [tag]}]
