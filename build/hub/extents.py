"""Which bytes of a file in the making are there, kept in a small mapped file so that a killed download loses none of them.

The file is divided into pieces; each is filled from its start, so one number a piece says what is there. Two numbers are kept:
``written`` (in the page cache: survives the death of this process, not of the machine) and ``synced`` (on the disk). After a
reboot only ``synced`` counts, which the boot id in the header tells.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path

from build.errors import BuildFailed
from build.hub.patience import PIECE_BYTES
from build.machine import boot_id

MAGIC = b"TWFXT1\0\0"
HEADER = struct.Struct("<8s36sQQ64s")  # magic, boot id, file size, piece size, the hash that proves the content
ROW = struct.Struct("<QQ")  # written, synced


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes ``start`` to ``end`` (exclusive) of a file."""

    number: int
    start: int
    end: int


class Extents:
    """The map of one partial file. Held alone: a second process is refused. One thread writes a piece at a time."""

    def __init__(self, path: Path, size: int, proof: str, piece_bytes: int = PIECE_BYTES, boot: str = "") -> None:
        self.path, self.size = path, size
        self._boot = (boot or boot_id()).encode().ljust(36, b"\0")
        self._proof = proof.encode()
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise BuildFailed(f"{path} is held by another process that fetches this file: wait for it, or end it") from None
        self.piece_bytes = self._adopt() or piece_bytes
        self.fresh = not self._adopt()
        count = -(-size // self.piece_bytes)
        self.pieces = tuple(
            Piece(n, n * self.piece_bytes, min(size, (n + 1) * self.piece_bytes)) for n in range(count)
        )  # fmt: skip
        self._map = self._open(count)

    def written(self, piece: Piece) -> int:
        """How many bytes from the piece's start are there."""
        return int(ROW.unpack_from(self._map, self._at(piece))[0])

    def wrote(self, piece: Piece, count: int) -> None:
        """``count`` bytes from the piece's start are in the file now."""
        struct.pack_into("<Q", self._map, self._at(piece), count)

    def synced(self, piece: Piece, count: int) -> None:
        """The same, and they are on the disk."""
        struct.pack_into("<Q", self._map, self._at(piece) + 8, count)

    def done_bytes(self) -> int:
        """Everything that is there."""
        return sum(self.written(p) for p in self.pieces)

    def remove(self) -> None:
        """The file is whole, or thrown away: no map is needed."""
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Let go; what was noted stays."""
        if self._fd >= 0:
            self._map.close()
            os.close(self._fd)
            self._fd = -1

    def _at(self, piece: Piece) -> int:
        return HEADER.size + piece.number * ROW.size

    def _adopt(self) -> int:
        """The piece size of a map that speaks of this very content, else 0."""
        raw = os.pread(self._fd, HEADER.size, 0)
        if len(raw) < HEADER.size:
            return 0
        magic, _boot, size, piece_bytes, proof = HEADER.unpack(raw)
        known = (magic, size, proof.rstrip(b"\0")) == (MAGIC, self.size, self._proof) and piece_bytes > 0
        whole = os.fstat(self._fd).st_size == HEADER.size + -(-size // piece_bytes) * ROW.size if known else False
        return int(piece_bytes) if whole else 0

    def _open(self, count: int) -> mmap.mmap:
        """Map it: kept where it is ours and of this boot, cut back to what reached the disk after another boot, else empty."""
        length = HEADER.size + count * ROW.size
        header = HEADER.pack(MAGIC, self._boot, self.size, self.piece_bytes, self._proof)
        known = bool(self._adopt())
        old = os.pread(self._fd, HEADER.size, 0) if known else b""
        if not known:
            os.ftruncate(self._fd, 0)
        os.ftruncate(self._fd, length)
        made = mmap.mmap(self._fd, length)
        if known and HEADER.unpack(old)[1] != self._boot:
            for piece in self.pieces:
                _, synced = ROW.unpack_from(made, self._at(piece))
                ROW.pack_into(made, self._at(piece), synced, synced)
        made[: HEADER.size] = header
        return made
