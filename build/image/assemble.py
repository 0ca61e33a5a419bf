"""Images without a Dockerfile: a base (or none), layers of store trees, a config of fixed fields, all in one tar.

The tar is an OCI layout (``oci-layout``, ``index.json``, ``blobs/sha256/…``) and, by its ``manifest.json``, a ``docker save``
archive too; both name the same blobs, so that Docker's graph-driver store and containerd each load it. Layers of ours are not
compressed: their blob digest is their diff id. The tar's bytes depend on what goes in alone.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from build.errors import BuildFailed, StoreDamaged
from build.image import oci
from build.image.identity import ImageIdentity
from build.image.layers import END, Hashed, Layer, Sink, file_entry, padding, read_chunks, write_layer
from build.image.oci import Descriptor, Platform

LAYOUT = oci.canonical({"imageLayoutVersion": "1.0.0"})
TAG_HEX = 12


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """What is ours in an image. ``repository`` names it; the tag is made of the config digest, so it never moves."""

    repository: str
    platform: Platform
    env: tuple[tuple[str, str], ...] = ()
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    working_dir: str = ""
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class BaseImage:
    """An image to build on: its config's exact bytes, and its layers as its registry keeps them (often compressed).

    ``reference`` is how a daemon pulls it, by digest. ``blobs`` is a folder ``sha256/<hex>`` that holds the layers; without one
    the archive carries none of them, and only a daemon that has the base can load it.
    """

    reference: str
    config: bytes
    layers: tuple[Descriptor, ...]
    blobs: Path | None = None

    @property
    def document(self) -> Mapping[str, Any]:
        """The config, read."""
        read: Mapping[str, Any] = json.loads(self.config)
        return read

    @property
    def diff_ids(self) -> tuple[str, ...]:
        """Digests of the uncompressed layers."""
        return tuple(self.document["rootfs"]["diff_ids"])


@dataclass(frozen=True, slots=True)
class Stored:
    """A blob inside an archive: where its content starts, and how long it is."""

    offset_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Archive:
    """An image's tar, read: who it is, its config, and where each blob lies. ``layers`` are in order, carried or not."""

    path: Path
    identity: ImageIdentity
    config: Mapping[str, Any]
    layers: tuple[Descriptor, ...]
    members: Mapping[str, Stored] = field(repr=False)

    def carries(self, digest: str) -> bool:
        """Whether the blob's bytes are in the tar; a base's layers may not be."""
        return oci.blob_path(digest) in self.members


def assemble(layers: Sequence[Layer], config: ImageConfig, base: BaseImage | None, out: Path) -> ImageIdentity:
    """Write the image's tar to ``out``, which must not exist, and say which image it is.

    ``BuildFailed`` where a source cannot be read or changes meanwhile; ``OSError`` of ``out`` (a full disk) passes.
    """
    _check_base(base, config.platform)
    described = [_describe(layer) for layer in layers]
    stack = [*(base.layers if base else ()), *described]
    content = oci.canonical(_config(layers, [one.digest for one in described], config, base))
    config_blob = oci.describe(oci.CONFIG_TYPE, content)
    manifest = oci.canonical(oci.manifest_document(config_blob, stack))
    manifest_blob = oci.describe(oci.MANIFEST_TYPE, manifest)
    tag = f"{config.repository}:{config_blob.digest.removeprefix('sha256:')[:TAG_HEX]}"
    diff_ids = (*(base.diff_ids if base else ()), *(one.digest for one in described))
    small = {
        "oci-layout": LAYOUT,
        "index.json": oci.canonical(oci.index_document(manifest_blob, config.platform, tag)),
        "manifest.json": oci.canonical(oci.docker_manifest(config_blob, stack, tag)),
        oci.blob_path(config_blob.digest): content,
        oci.blob_path(manifest_blob.digest): manifest,
    }
    with out.open("xb") as stream:
        for name, text in small.items():
            _write_member(stream, name, text)
        written: set[str] = set()
        _write_base(stream, base, written)
        _write_layers(stream, layers, described, written)
        stream.write(END)
    return ImageIdentity(config.platform, config_blob.digest, diff_ids, manifest_blob.digest, tag)


def read_archive(path: Path) -> Archive:
    """Read an archive's documents; ``StoreDamaged`` where it is none of ours."""
    try:
        with tarfile.open(path, "r:") as tar:
            members = {m.name: Stored(m.offset_data, m.size) for m in tar if m.isreg()}
        index = json.loads(_member(path, members, "index.json"))
        (entry,) = index["manifests"]
        manifest = json.loads(_checked(path, members, entry["digest"]))
        config = json.loads(_checked(path, members, manifest["config"]["digest"]))
        platform = Platform(config["os"], config["architecture"], config.get("variant", ""))
        layers = tuple(Descriptor(one["mediaType"], one["digest"], one["size"]) for one in manifest["layers"])
        identity = ImageIdentity(
            platform,
            manifest["config"]["digest"],
            tuple(config["rootfs"]["diff_ids"]),
            entry["digest"],
            entry["annotations"][oci.CONTAINERD_NAME],
        )
    except (OSError, ValueError, KeyError, TypeError, tarfile.TarError) as error:
        raise StoreDamaged(f"{path} is no readable image archive ({error}): run `doit repair`") from None
    return Archive(path, identity, config, layers, members)


def _config(layers: Sequence[Layer], diff_ids: Sequence[str], ours: ImageConfig, base: BaseImage | None) -> dict[str, Any]:
    below: Mapping[str, Any] = base.document if base else {}
    inherited: Mapping[str, Any] = below.get("config") or {}
    run = {
        **inherited,
        "Env": oci.merge_env(inherited.get("Env") or [], ours.env),
        "Labels": {**(inherited.get("Labels") or {}), **({oci.BASE_NAME: base.reference} if base else {}), **dict(ours.labels)},
    }
    if ours.entrypoint or ours.cmd:
        run |= {"Entrypoint": list(ours.entrypoint), "Cmd": list(ours.cmd)}
    if ours.working_dir:
        run["WorkingDir"] = ours.working_dir
    history = [*(below.get("history") or []), *({"created": oci.EPOCH, "created_by": f"twinfold: {one.name}"} for one in layers)]
    stack = [*(base.diff_ids if base else ()), *diff_ids]
    return oci.config_document(ours.platform, run, stack, history)


def _check_base(base: BaseImage | None, platform: Platform) -> None:
    if base is None:
        return
    if len(base.layers) != len(base.diff_ids):
        raise BuildFailed(
            f"base image {base.reference}: {len(base.layers)} layers are pinned and its config names {len(base.diff_ids)}: "
            "run `doit lock` to pin it again"
        )
    found = Platform(base.document["os"], base.document["architecture"])
    if (found.os, found.architecture) != (platform.os, platform.architecture):
        raise BuildFailed(f"base image {base.reference} is for {found}, the image for {platform}: pin the base of that platform")


def _describe(layer: Layer) -> Descriptor:
    """First pass: what the layer will be, before a byte of the archive is written."""
    sink = Hashed()
    write_layer(layer, sink)
    return Descriptor(oci.LAYER_TYPE, sink.digest, sink.size_bytes)


def _write_layers(out: Sink, layers: Sequence[Layer], described: Sequence[Descriptor], written: set[str]) -> None:
    """Second pass, checked against the first."""
    for layer, wanted in zip(layers, described, strict=True):
        if wanted.digest in written:
            continue
        written.add(wanted.digest)
        out.write(_header(oci.blob_path(wanted.digest), wanted.size_bytes))
        sink = Hashed(out)
        write_layer(layer, sink)
        if (sink.digest, sink.size_bytes) != (wanted.digest, wanted.size_bytes):
            raise BuildFailed(f"image layer {layer.name}: its files changed while they were read: run again")
        out.write(padding(wanted.size_bytes))


def _write_base(out: Sink, base: BaseImage | None, written: set[str]) -> None:
    if base is None or base.blobs is None:
        return
    for layer in base.layers:
        if layer.digest in written:
            continue
        written.add(layer.digest)
        source = base.blobs / layer.digest.replace(":", "/", 1)
        out.write(_header(oci.blob_path(layer.digest), layer.size_bytes))
        sink = Hashed(out)
        for chunk in _base_chunks(source):
            sink.write(chunk)
        if (sink.digest, sink.size_bytes) != (layer.digest, layer.size_bytes):
            raise BuildFailed(f"{source} is not the base image's layer {layer.digest} but {sink.digest}: fetch the base again")
        out.write(padding(layer.size_bytes))


def _base_chunks(source: Path) -> Iterator[bytes]:
    try:
        yield from read_chunks(source)
    except FileNotFoundError:
        raise BuildFailed(f"{source} is missing: it is a layer of the base image: fetch the base again") from None


def _write_member(out: Sink, name: str, content: bytes) -> None:
    out.write(_header(name, len(content)) + content + padding(len(content)))


def _header(name: str, size_bytes: int) -> bytes:
    return file_entry(name, size_bytes).tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def _member(path: Path, members: Mapping[str, Stored], name: str) -> bytes:
    if name not in members:
        raise StoreDamaged(f"{path} lacks {name}: run `doit repair`")
    with path.open("rb") as stream:
        stream.seek(members[name].offset_bytes)
        return stream.read(members[name].size_bytes)


def _checked(path: Path, members: Mapping[str, Stored], digest: str) -> bytes:
    content = _member(path, members, oci.blob_path(digest))
    if oci.digest_of(content) != digest:
        raise StoreDamaged(f"{path}: blob {digest} has other bytes: run `doit repair`")
    return content
