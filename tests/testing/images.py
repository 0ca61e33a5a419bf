"""Images that tests build on: an archive of ours in the place of a registry's base, and how containerd names its layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from build.image.assemble import Archive, BaseImage
from build.image.oci import blob_path, digest_of


def base_of(archive: Archive, reference: str, blobs: Path | None = None) -> BaseImage:
    """An archive's image as the base of another. ``blobs`` as in :class:`build.image.assemble.BaseImage`."""
    stored = archive.members[blob_path(archive.identity.config_digest)]
    config = archive.path.read_bytes()[stored.offset_bytes :][: stored.size_bytes]
    return BaseImage(reference, config, archive.layers, blobs)


def chain_ids(diff_ids: Sequence[str]) -> Iterator[str]:
    """Each layer on top of those below it, as `ctr snapshots ls` names it: sha256 over ``<chain below> <diff id>``."""
    below = ""
    for diff_id in diff_ids:
        below = digest_of(f"{below} {diff_id}".encode()) if below else diff_id
        yield below
