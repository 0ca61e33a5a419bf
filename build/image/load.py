"""Bring an image into a daemon: only the layers that it lacks first, everything when it refuses, and proof of identity after.

Docker's graph-driver store takes a ``docker save`` archive without the layers whose chain it has; a containerd store takes an OCI
layout without the blobs that it has. What a store really holds cannot be asked over the API, so a refusal of the thin form is
expected now and then (a base pulled from a registry lies there compressed) and costs one more transfer.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from build.errors import Refused, StoreDamaged, TwinfoldError
from build.image.assemble import Archive
from build.image.identity import Json, as_inspected, differences
from build.image.layers import CHUNK_BYTES, END, file_entry, padding
from build.image.oci import BASE_NAME, Platform, blob_path


class LoadRefused(TwinfoldError):
    """A daemon did not take an archive; the text is the daemon's own."""

    exit_code = 3


class Daemon(Protocol):
    """What loading asks of a container daemon. ``where`` names it for people."""

    where: str

    def platform(self) -> Platform:
        """What its images run on."""

    def keeps_blobs(self) -> bool:
        """Whether it is a containerd store, which keeps blobs by digest; else a graph driver, which keeps chains of layers."""

    def stacks(self) -> Sequence[tuple[str, ...]]:
        """The diff ids of every image it has."""

    def load(self, archive: Iterable[bytes], platform: Platform) -> None:
        """Take an archive; ``LoadRefused`` where it cannot make the image of it."""

    def inspect(self, name: str, manifest_digest: str) -> Json | None:
        """``docker image inspect``, or None where there is no such image or a part of it is known to be missing."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a load did.

    ``how`` is present, thin or full; ``image_id`` is the daemon's own; ``refusal`` is why a thin archive was not taken.
    """

    image_id: str
    how: str
    sent_bytes: int
    sent_layers: int
    refusal: str = ""


@dataclass(slots=True)
class _Counter:
    sent_bytes: int = 0

    def over(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        for part in parts:
            self.sent_bytes += len(part)
            yield part


def load(archive: Archive, daemon: Daemon, note: Callable[[str], None] = lambda _line: None) -> Loaded:
    """Make sure that the daemon has exactly this image. ``note`` takes one line when a thin archive is refused."""
    _check_platform(archive, daemon)
    found = daemon.inspect(archive.identity.tag, archive.identity.manifest_digest)
    if found is not None and not differences(as_inspected(archive.config), found):
        return Loaded(found["Id"], "present", 0, 0)
    known = known_layers(archive, daemon.stacks(), daemon.keeps_blobs())
    _check_obtainable(archive, known, daemon)
    counter, refusal, how = _Counter(), "", "thin" if known else "full"
    try:
        daemon.load(counter.over(stream(archive, known)), archive.identity.platform)
        sent = _carried(archive) - known
    except LoadRefused as error:
        if not known:
            raise Refused(f"{daemon.where} does not take image {archive.identity.tag}: {error}") from None
        refusal, how, sent = str(error), "full", _carried(archive)
        note(f"{daemon.where} refused the thin archive of {archive.identity.tag} ({refusal}): sending all of it")
        _load_full(archive, daemon, counter)
    return Loaded(prove(archive, daemon), how, counter.sent_bytes, len(sent), refusal)


def prove(archive: Archive, daemon: Daemon) -> str:
    """The daemon's own id of the image under this archive's tag; ``Refused`` where it is missing or another image."""
    tag = archive.identity.tag
    found = daemon.inspect(tag, archive.identity.manifest_digest)
    if found is None:
        raise Refused(f"image {tag} is not whole on {daemon.where}: run `doit` to load it")
    changed = differences(as_inspected(archive.config), found)
    if changed:
        differs = ", ".join(changed)
        raise Refused(f"image {tag} on {daemon.where} is another one (differs in {differs}): remove it with `docker rmi {tag}`")
    return str(found["Id"])


def known_layers(archive: Archive, stacks: Iterable[tuple[str, ...]], keeps_blobs: bool) -> frozenset[str]:
    """Blob digests of the layers that a daemon with these images need not be sent.

    A graph driver knows a layer by its chain, so only a common beginning counts; a containerd store knows each blob by itself.
    """
    ours = archive.identity.diff_ids
    if keeps_blobs:
        there = {diff_id for stack in stacks for diff_id in stack}
        return frozenset(layer.digest for layer, diff_id in zip(archive.layers, ours, strict=True) if diff_id in there)
    common = max((_common(ours, stack) for stack in stacks), default=0)
    beyond = {layer.digest for layer in archive.layers[common:]}
    return frozenset(layer.digest for layer in archive.layers[:common]) - beyond


def stream(archive: Archive, omit: frozenset[str] = frozenset()) -> Iterator[bytes]:
    """The archive's bytes without the blobs in ``omit``; a valid tar either way."""
    skipped = {blob_path(digest) for digest in omit}
    with archive.path.open("rb") as source:
        for name, stored in archive.members.items():
            if name in skipped:
                continue
            yield file_entry(name, stored.size_bytes).tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
            source.seek(stored.offset_bytes)
            left = stored.size_bytes
            while left:
                chunk = source.read(min(CHUNK_BYTES, left))
                if not chunk:
                    raise StoreDamaged(f"{archive.path} ends early, in {name}: run `doit repair`")
                left -= len(chunk)
                yield chunk
            yield padding(stored.size_bytes)
    yield END


def _load_full(archive: Archive, daemon: Daemon, counter: _Counter) -> None:
    _check_obtainable(archive, frozenset(), daemon)
    try:
        daemon.load(counter.over(stream(archive)), archive.identity.platform)
    except LoadRefused as error:
        raise Refused(f"{daemon.where} does not take image {archive.identity.tag}: {error}") from None


def _check_platform(archive: Archive, daemon: Daemon) -> None:
    here, wanted = daemon.platform(), archive.identity.platform
    if (here.os, here.architecture) != (wanted.os, wanted.architecture):
        raise Refused(f"image {archive.identity.tag} is for {wanted}, {daemon.where} is {here}: load the one for it")


def _check_obtainable(archive: Archive, known: frozenset[str], daemon: Daemon) -> None:
    lacking = [layer for layer in archive.layers if layer.digest not in known and not archive.carries(layer.digest)]
    if lacking:
        base = archive.config["config"].get("Labels", {}).get(BASE_NAME, "BASE")
        raise Refused(
            f"{daemon.where} lacks {len(lacking)} layers of the base of image {archive.identity.tag} "
            f"({sum(one.size_bytes for one in lacking)} bytes) and the archive does not carry them: `docker pull {base}` there"
        )


def _carried(archive: Archive) -> set[str]:
    return {layer.digest for layer in archive.layers if archive.carries(layer.digest)}


def _common(ours: Sequence[str], theirs: Sequence[str]) -> int:
    """How many layers from the bottom two stacks share."""
    for at, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one != other:
            return at
    return min(len(ours), len(theirs))
