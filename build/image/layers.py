"""Layers: files and folders of the store as a tar whose bytes depend on their names, contents and execute bits alone.

Entries are sorted, parents come before children, owner is 0:0, time is 0, modes are 0755 or 0644 whatever the store's read-only
modes are. The format is GNU tar as :mod:`tarfile` writes it (no PAX records: those would carry times and owners of their own).
"""

from __future__ import annotations

import errno
import hashlib
import os
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from build.errors import BuildFailed

BLOCK = 512
CHUNK_BYTES = 1 << 20
END = bytes(2 * BLOCK)
# A name that starts so deletes the name behind it from the layers below (OCI layer specification, "Whiteouts").
WHITEOUT = ".wh."


class Sink(Protocol):
    """Where bytes go: a file, a hash."""

    def write(self, data: bytes, /) -> object:
        """Take all of them; what is returned is not looked at, as files return a count."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A file or a folder's content, and its absolute path in the image."""

    source: Path
    at: str


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: ``name`` says in the image's history what it is; ``files`` are small texts made up on the spot, by path."""

    name: str
    placed: tuple[Placed, ...] = ()
    files: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """One tar entry. ``source`` is None for folders, links and texts."""

    info: tarfile.TarInfo
    source: Path | None = None
    text: bytes = b""


class Hashed:
    """A sink that keeps sha256 and length, and passes the bytes on where it is given somewhere to."""

    def __init__(self, onward: Sink | None = None) -> None:
        self._hash = hashlib.sha256()
        self._onward = onward
        self.size_bytes = 0

    def write(self, data: bytes, /) -> None:
        """See :class:`Sink`."""
        self._hash.update(data)
        self.size_bytes += len(data)
        if self._onward is not None:
            self._onward.write(data)

    @property
    def digest(self) -> str:
        """``sha256:<hex>`` of all that was written."""
        return "sha256:" + self._hash.hexdigest()


def entries(layer: Layer) -> list[Entry]:
    """Every entry of a layer in the order of the tar; ``BuildFailed`` for what cannot be in one."""
    found: dict[tuple[str, ...], Entry] = {}
    for at, text in layer.files:
        _add(found, _parts(at), _text(_parts(at), text.encode()))
    for placed in layer.placed:
        for source, parts in _walk(placed.source, _parts(placed.at)):
            _add(found, parts, _entry("/".join(parts), source))
    for parts in list(found):
        for depth in range(1, len(parts)):
            found.setdefault(parts[:depth], Entry(_info("/".join(parts[:depth]), tarfile.DIRTYPE, 0o755)))
    return [found[parts] for parts in sorted(found, key=lambda parts: [os.fsencode(part) for part in parts])]


def write_layer(layer: Layer, sink: Sink) -> None:
    """Write the layer's tar, end mark included."""
    for entry in entries(layer):
        write_entry(entry, sink)
    sink.write(END)


def write_entry(entry: Entry, sink: Sink) -> None:
    """One header, its content, and zeros up to the next block."""
    sink.write(entry.info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape"))
    if entry.source is None:
        sink.write(entry.text)
    else:
        _copy(entry.source, entry.info.size, sink)
    sink.write(padding(entry.info.size))


def padding(size_bytes: int) -> bytes:
    """The zeros between a content of this size and the next header."""
    return bytes(-size_bytes % BLOCK)


def read_chunks(path: Path) -> Iterator[bytes]:
    """A file's content, a mebibyte at a time."""
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk


def file_entry(name: str, size_bytes: int) -> tarfile.TarInfo:
    """The header of a plain file with fixed owner, mode and time."""
    return _info(name, tarfile.REGTYPE, 0o644, size_bytes)


def _parts(at: str) -> tuple[str, ...]:
    parts = tuple(part for part in at.split("/") if part)
    if not at.startswith("/") or ".." in parts or "." in parts:
        raise BuildFailed(f'a layer cannot place anything at "{at}": wanted an absolute path without dots')
    return parts


def _walk(source: Path, at: tuple[str, ...]) -> Iterable[tuple[Path, tuple[str, ...]]]:
    if at:
        yield source, at
    if source.is_dir() and not source.is_symlink():
        for child in sorted(source.iterdir()):
            yield from _walk(child, (*at, child.name))


def _add(found: dict[tuple[str, ...], Entry], parts: tuple[str, ...], entry: Entry) -> None:
    name = entry.info.name
    if parts[-1].startswith(WHITEOUT):
        raise BuildFailed(f"/{name} cannot be in an image: names that start with {WHITEOUT} delete files of the layers below")
    old = found.get(parts)
    if old is not None and not (old.info.isdir() and entry.info.isdir()):
        raise BuildFailed(f"/{name} is placed twice in one layer: leave one of the two out")
    found[parts] = entry


def _text(parts: tuple[str, ...], content: bytes) -> Entry:
    return Entry(_info("/".join(parts), tarfile.REGTYPE, 0o644, len(content)), text=content)


def _entry(name: str, source: Path) -> Entry:
    try:
        status = source.lstat()
    except OSError as error:
        raise BuildFailed(f"{source} is to become /{name} of an image and cannot be read: {error.strerror}") from None
    if source.is_symlink():
        info = _info(name, tarfile.SYMTYPE, 0o777)
        info.linkname = str(source.readlink())
        return Entry(info)
    if source.is_dir():
        return Entry(_info(name, tarfile.DIRTYPE, 0o755))
    if source.is_file():
        return Entry(_info(name, tarfile.REGTYPE, 0o755 if status.st_mode & 0o111 else 0o644, status.st_size), source)
    raise BuildFailed(f"{source} is to become /{name} of an image and is neither a file, a folder nor a link")


def _info(name: str, kind: bytes, mode: int, size_bytes: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.size, info.mtime = kind, mode, size_bytes, 0
    return info


def _copy(source: Path, size_bytes: int, sink: Sink) -> None:
    copied = 0
    try:
        for chunk in read_chunks(source):
            copied += len(chunk)
            sink.write(chunk)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EROFS, errno.EDQUOT):
            raise
        raise BuildFailed(f"{source} cannot be read into an image layer: {error.strerror}") from None
    if copied != size_bytes:
        raise BuildFailed(f"{source} changed while it was read into an image layer: {size_bytes} bytes, then {copied}: run again")
