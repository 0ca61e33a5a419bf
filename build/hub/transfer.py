"""One file from the hub to its place: pieces fetched in parallel, hashed while they come, resumed where an earlier run ended.

The hash follows the pieces in their order and reads each from the file, where it is still in memory. Nothing gets its final name
before its hash is right. Memory is one buffer a connection, whatever the file's size.
"""

from __future__ import annotations

import http.client
import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from build.errors import BuildFailed, OutputDiffers
from build.hub.extents import Extents, Piece
from build.hub.files import HubFile, hasher
from build.hub.patience import Patience
from build.hub.source import Place, Trouble, open_range
from build.store import durable

BUFFER_BYTES = 1 << 20
ZEROS = bytes(BUFFER_BYTES)
PART, MAP = ".twinfold-part", ".twinfold-map"


@dataclass(frozen=True, slots=True)
class Line:
    """What a transfer needs of the world. ``locate`` asks the hub anew where the bytes are: such places expire."""

    locate: Callable[[], Place]
    arrived: Callable[[int], None]
    patience: Patience = field(default_factory=Patience)
    stop: threading.Event = field(default_factory=threading.Event)


def done_bytes(blob: Path, file: HubFile) -> int:
    """What an earlier run left of a file."""
    if not _beside(blob, MAP).exists() or not _beside(blob, PART).exists():
        return 0
    extents = Extents(_beside(blob, MAP), file.size, file.proof.hex)
    try:
        return extents.done_bytes()
    finally:
        extents.close()


def fetch(file: HubFile, blob: Path, line: Line) -> None:
    """Fetch a file to ``blob``. ``OutputDiffers`` where its content is not what the lock says, ``BuildFailed`` where the hub
    gave up; what has arrived by then is kept for the next run, unless it was wrong."""
    blob.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(line.patience.wrong_contents):
        found = _Transfer(file, blob, line).run()
        if found == file.proof.hex:
            return
    raise OutputDiffers(
        f"{file.path}: the hub sent content with {file.proof.kind} {found[:12]}, the lock has {file.proof.hex[:12]}; "
        "nothing of it was kept: a proxy may damage it, or the lock is wrong"
    )


class _Transfer:
    """One run over one file."""

    def __init__(self, file: HubFile, blob: Path, line: Line) -> None:
        self._file, self._blob, self._line = file, blob, line
        self._part = _beside(blob, PART)
        self._fd = os.open(self._part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(self._fd).st_size != file.size:
                _beside(blob, MAP).unlink(missing_ok=True)
                os.ftruncate(self._fd, file.size)
            self._extents = Extents(_beside(blob, MAP), file.size, file.proof.hex, line.patience.piece_bytes)
            if self._extents.fresh:  # whatever lies there is not known
                os.ftruncate(self._fd, 0)
                os.ftruncate(self._fd, file.size)
        except BaseException:
            os.close(self._fd)
            raise
        self._arrived = {p.number: threading.Event() for p in self._extents.pieces}
        self._place: Place | None = None
        self._guard = threading.Lock()
        self._stop = threading.Event()

    def run(self) -> str:
        """Fetch what is missing; the content's hash. The file has its name only where it is right."""
        try:
            found = self._all()
            if found != self._file.proof.hex:
                self._line.arrived(-self._file.size)
                self._part.unlink(missing_ok=True)
                self._extents.remove()
                return found
            os.fsync(self._fd)
            self._part.rename(self._blob)
            durable.sync_folder(self._blob.parent)
            self._extents.remove()
            return found
        finally:
            self._extents.close()
            os.close(self._fd)

    def _all(self) -> str:
        pieces = self._extents.pieces
        with ThreadPoolExecutor(min(self._line.patience.connections, max(1, len(pieces))) + 1, "hub") as pool:
            hashed = pool.submit(self._hash)
            jobs: list[Future[object]] = [hashed, *(pool.submit(self._piece, p) for p in pieces)]  # type: ignore[list-item]
            try:
                done, _ = wait(jobs, return_when=FIRST_EXCEPTION)
            except BaseException:
                self._end(jobs)
                raise
            failed = next((f for f in done if f.exception() is not None), None)
            if failed is not None:
                self._end(jobs)
                raise failed.exception() or AssertionError
        return hashed.result()

    def _end(self, jobs: list[Future[object]]) -> None:
        self._stop.set()
        for event in self._arrived.values():
            event.set()
        for job in jobs:
            job.cancel()

    def _stopped(self) -> bool:
        return self._stop.is_set() or self._line.stop.is_set()

    def _hash(self) -> str:
        digest = hasher(self._file)
        buffer = memoryview(bytearray(BUFFER_BYTES))
        for piece in self._extents.pieces:
            while not self._arrived[piece.number].wait(0.5):
                if self._stopped():
                    break
            if self._stopped():
                return ""
            at = piece.start
            while at < piece.end:
                count = os.preadv(self._fd, [buffer[: min(BUFFER_BYTES, piece.end - at)]], at)
                if not count:
                    raise BuildFailed(f"{self._part} ended at {at} of {self._file.size} bytes while it was being fetched")
                digest.update(buffer[:count])
                at += count
            os.posix_fadvise(self._fd, piece.start, piece.end - piece.start, os.POSIX_FADV_DONTNEED)
        return digest.hexdigest()

    def _piece(self, piece: Piece) -> None:
        """Fetch what the piece lacks, over as many connections as it takes."""
        failures = 0
        try:
            while self._extents.written(piece) < piece.end - piece.start and not self._stopped():
                before = self._extents.written(piece)
                try:
                    self._some(piece)
                except Trouble as trouble:
                    failures = 1 if self._extents.written(piece) > before else failures + 1
                    self._bear(trouble, failures)
            if not self._stopped():
                os.fdatasync(self._fd)
                self._extents.synced(piece, piece.end - piece.start)
                self._arrived[piece.number].set()
        except OSError as error:
            raise BuildFailed(f"{self._file.path}: {durable.reason(error)}") from None

    def _some(self, piece: Piece) -> None:
        """One connection: from the first missing byte of the piece until its end, or until something goes wrong."""
        at = piece.start + self._extents.written(piece)
        place = self._where()
        body = open_range(place, at, piece.end, self._file.size, self._line.patience.stall_s)
        buffer = memoryview(bytearray(BUFFER_BYTES))
        try:
            while at < piece.end and not self._stopped():
                count = body.readinto(buffer[: min(BUFFER_BYTES, piece.end - at)])
                if not count:
                    raise Trouble(f"{place.host} ended the connection early")
                self._put(buffer[:count], at)
                at += count
                self._extents.wrote(piece, at - piece.start)
                self._line.arrived(count)
        except TimeoutError:
            raise Trouble(f"{place.host} sent nothing for {self._line.patience.stall_s:g} s") from None
        except (http.client.HTTPException, ConnectionError) as error:
            raise Trouble(f"{place.host}: {str(error) or type(error).__name__}") from None
        finally:
            with suppress(OSError):
                body.close()

    def _put(self, data: memoryview, at: int) -> None:
        """Write; blocks of zeros are left as a hole, which the file has there already."""
        if not data[0] and bytes(data) == ZEROS[: len(data)]:  # as bytes: views are compared element by element
            return
        while data:
            count = os.pwrite(self._fd, data, at)
            data, at = data[count:], at + count

    def _where(self) -> Place:
        with self._guard:
            if self._place is None:
                self._place = self._line.locate()
            return self._place

    def _bear(self, trouble: Trouble, failures: int) -> None:
        """Wait before another try, or give up."""
        with self._guard:
            self._place = None
        if trouble.code in {401, 403} and failures < 3:  # a signed place that expired: the hub names a new one
            return
        if not trouble.again or failures > self._line.patience.tries:
            kept = f"{self._extents.done_bytes()} of {self._file.size} bytes are kept: run `doit` again to go on"
            raise BuildFailed(f"{self._file.path}: {trouble}; {kept}")
        pause = self._line.patience.pause(failures, trouble.pause_s, random.random())  # noqa: S311 - spreads load only
        end = time.monotonic() + pause
        while not self._stopped() and (now := time.monotonic()) < end:
            self._stop.wait(min(0.5, end - now))


def _beside(blob: Path, suffix: str) -> Path:
    return blob.with_name(blob.name + suffix)
