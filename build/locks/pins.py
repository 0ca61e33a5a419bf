"""The lock's model, pure: what a target is pinned to, and which outputs its keys gave.

A **pin** says what may be used (a toolchain, a commit, an image, a hub's snapshot and its files, a patch). An **output** says
what a key gave when it was recorded; it is enforced for that key alone. Reading and writing are :mod:`build.locks.lockfile`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from build.graph.graph import Resolved

FORMAT = 1
NO_IMAGES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ToolchainPin:
    """A compiler as its wheel brings it: ``sha256`` is of what :mod:`build.artefacts.toolchain` takes from the wheel's RECORD."""

    name: str
    platform: str
    version: str
    sha256: str


@dataclass(frozen=True, slots=True)
class GitPin:
    """A source tree: ``commit`` is 40 hex digits, ``repo`` what ``git fetch`` takes."""

    name: str
    repo: str
    commit: str


@dataclass(frozen=True, slots=True)
class ImagePin:
    """A registry's image for one platform. ``digest`` is what is pulled; ``manifest``, ``config``, ``blobs`` (of the layers, as
    sent) and ``diff_ids`` (of the layers, unpacked) are of that platform, and empty where only the digest is public."""

    name: str
    platform: str
    reference: str
    digest: str
    manifest: str = ""
    config: str = ""
    blobs: tuple[str, ...] = ()
    diff_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HubPin:
    """A hub's repository at a commit of 40 hex digits; its files are :class:`FilePin`."""

    name: str
    repo: str
    revision: str


@dataclass(frozen=True, slots=True)
class FilePin:
    """One file of the hub pin ``hub``: ``size`` in bytes, and the one hash that proves it."""

    hub: str
    path: str
    size: int
    sha256: str = ""
    git_blob: str = ""


@dataclass(frozen=True, slots=True)
class PatchPin:
    """One patch of the series ``series``: a file at the commit of the git pin so named, applied in the order of names."""

    series: str
    file: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Output:
    """What one key gave, as a tree hash. ``platform``: what its bytes are for ("" for any); ``host``: where it was made.

    ``image_id``: of an image, its config digest, by which a daemon knows it; "" for anything else.
    """

    name: str
    platform: str
    host: str
    key: str
    hash: str
    image_id: str = ""


@dataclass(frozen=True, slots=True)
class Lock:
    """All pins and outputs of one target."""

    toolchains: tuple[ToolchainPin, ...] = ()
    outputs: tuple[Output, ...] = ()
    gits: tuple[GitPin, ...] = ()
    images: tuple[ImagePin, ...] = ()
    hubs: tuple[HubPin, ...] = ()
    files: tuple[FilePin, ...] = ()
    patches: tuple[PatchPin, ...] = ()

    def toolchain(self, name: str, platform: str) -> ToolchainPin | None:
        """The toolchain for a host, or None where no pin says."""
        return next((t for t in self.toolchains if (t.name, t.platform) == (name, platform)), None)

    def git(self, name: str) -> GitPin | None:
        """The commit of that name, or None where no pin says."""
        return next((g for g in self.gits if g.name == name), None)

    def hub(self, name: str) -> HubPin | None:
        """The hub's repository of that name, or None where no pin says."""
        return next((h for h in self.hubs if h.name == name), None)

    def files_of(self, hub: str) -> tuple[FilePin, ...]:
        """The files of a hub pin."""
        return tuple(f for f in self.files if f.hub == hub)

    def image(self, name: str, platform: str) -> ImagePin | None:
        """The image of that name for a platform, or None where no pin says."""
        return next((i for i in self.images if (i.name, i.platform) == (name, platform)), None)

    def series(self, name: str) -> tuple[PatchPin, ...]:
        """A series of patches, in the order they are applied in."""
        return tuple(sorted((p for p in self.patches if p.series == name), key=lambda p: p.file))

    def expected(self, name: str, key: str) -> str | None:
        """The hash that a key must give, or None where the lock says nothing of that key."""
        return next((o.hash for o in self.outputs if (o.name, o.key) == (name, key)), None)

    def image_id(self, name: str, key: str) -> str | None:
        """The image id beside that hash; "" for what is no image."""
        return next((o.image_id for o in self.outputs if (o.name, o.key) == (name, key)), None)

    def index(self, key: str, name: str) -> str | None:
        """The lock as an index for :func:`build.graph.graph.resolve`: what would come out, with nothing built."""
        return self.expected(name, key)


@dataclass(frozen=True, slots=True)
class Difference:
    """One artefact whose lock does not say what is: ``kind`` is "not locked", "differs" or "not known"."""

    name: str
    kind: str
    detail: str


def enforced(resolved: Resolved) -> bool:
    """Outputs that are known beforehand are pinned by their inputs; the others belong into the lock."""
    return resolved.artefact.known_output is None


def compare(lock: Lock, by_lock: Mapping[str, Resolved], by_store: Mapping[str, Resolved]) -> tuple[Difference, ...]:
    """What ``lock --check`` finds: keys that the lock does not have, and outputs in the store that differ from it."""
    found = []
    for name, wanted in by_lock.items():
        made = by_store[name]
        if not enforced(wanted):
            continue
        locked = lock.expected(name, made.key) if made.key else None
        if wanted.key is None and made.key is None:
            found.append(Difference(name, "not known", "an input of it is not locked"))
        elif made.output is not None and locked is not None and locked != made.output:
            found.append(Difference(name, "differs", f"the lock has {locked[:12]}, the store {made.output[:12]}"))
        elif (wanted.output is None) if made.key is None else (locked is None):
            found.append(Difference(name, "not locked", f"no output for key {made.key or wanted.key}"))
    return tuple(found)


def recorded(lock: Lock, made: Iterable[Resolved], host: str, image_ids: Mapping[str, str] = NO_IMAGES) -> Lock:
    """The lock with the outputs that were made on ``host`` in place of its earlier ones for the same names.

    ``image_ids``: by the names of those that are images.
    """
    new = {
        r.artefact.name: Output(r.artefact.name, r.artefact.platform, host, r.key, r.output, image_ids.get(r.artefact.name, ""))
        for r in made
        if enforced(r) and r.key is not None and r.output is not None
    }
    kept = [o for o in lock.outputs if not (o.host == host and o.name in new)]
    return replace(lock, outputs=tuple(sorted([*kept, *new.values()], key=lambda o: (o.name, o.host))))


def without(lock: Lock, host: str, names: Collection[str]) -> Lock:
    """The lock without outputs that were made on ``host`` and whose names the target no longer has."""
    return replace(lock, outputs=tuple(o for o in lock.outputs if o.host != host or o.name in names))


def pinned(lock: Lock, pin: ToolchainPin) -> Lock:
    """The lock with ``pin`` in place of an earlier one for the same name and platform."""
    kept = [t for t in lock.toolchains if (t.name, t.platform) != (pin.name, pin.platform)]
    return replace(lock, toolchains=tuple(sorted([*kept, pin], key=lambda t: (t.name, t.platform))))
