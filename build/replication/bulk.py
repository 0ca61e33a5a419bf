"""Ranges of files sent to a node over several ssh connections at once, without filling the page cache of either end.

One connection has one cipher's speed, so each stream has its own. The far side is a loop of ``sh`` and ``dd``: a line with the
entry, one with the path, one with offset and length, then the bytes; it writes them with O_DIRECT at their place, notes the range
in the copy's ``progress`` and says ``ok``. A range that was not acknowledged is sent again, whatever became of it.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import queue
import select
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from build.errors import StoreDamaged
from build.nodes import ssh_link
from build.nodes.remote_shell import Marks
from build.nodes.ssh_errors import ConnectionLost, NodeError, Unreachable, classify
from build.nodes.ssh_link import DAY_S, Destination
from build.nodes.ssh_run import Order
from build.replication.replica import Chunk

BLOCK_BYTES = 4 << 20
STREAMS = 4
ACK_S = 120.0  # a range is small; a disk that takes this long for one is broken
PATIENCE_S = 60.0  # how long a lost node is waited for without any progress
OPTIONS = (
    "-oControlMaster=no",
    "-oControlPath=none",
    "-oCompression=no",
    "-oCiphers=^aes128-gcm@openssh.com",
    "-oIPQoS=throughput",
)

# dd switches O_DIRECT off by itself for a last block that is not whole. Where O_DIRECT is refused, it drops the pages. It ends
# well also when the input ends too early, so a range counts only where dd says that it copied all of it.
RECEIVE = """cd "$1" || exit 1
mkdir -p tmp
flag=nocache
! dd if=/dev/zero of="tmp/direct.$$" bs=4096 count=1 oflag=direct status=none 2>/dev/null || flag=direct
rm -f "tmp/direct.$$"
while IFS= read -r e && IFS= read -r path && read -r offset length; do
  set -- of="tmp/$e/tree/$path" bs=4M iflag=fullblock,count_bytes count="$length" oflag=seek_bytes,$flag seek="$offset"
  if ! said=$(dd "$@" conv=notrunc 2>&1); then printf 'no %s\\n' "$said"; exit 1; fi
  case $said in
    *" records out
$length byte"*) ;;
    *) exit 1 ;;
  esac
  printf '%s\\t%s\\t%s\\n' "$path" "$offset" "$length" >> "tmp/$e/progress" && echo ok || exit 1
done
"""


class DiskFull(NodeError):
    """The node has no room for what it needs."""


class _Lost(Exception):
    """The stream broke; its range is sent again."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What went over the wire."""

    bytes: int
    chunks: int


class Sender:
    """Sends ranges to one node. ``local``: where an entry lies on this host."""

    def __init__(
        self,
        destination: Destination,
        root: str,
        local: Callable[[str], Path],
        *,
        streams: int = STREAMS,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._destination, self._root, self._local = destination, root, local
        self._streams, self._patience_s = streams, patience_s
        self._guard = threading.Lock()
        self._failure: BaseException | None = None
        self._sent_bytes = self._sent_chunks = 0
        self._progress_at = 0.0

    def send(self, chunks: Iterable[Chunk], told: Callable[[int], None] = lambda _bytes: None) -> Sent:
        """Send every range; ``told`` hears the bytes of each that arrived. Waits a while for a node that is lost, then raises."""
        todo: queue.SimpleQueue[Chunk] = queue.SimpleQueue()
        count = self._sent_bytes = self._sent_chunks = 0
        for chunk in chunks:
            todo.put(chunk)
            count += 1
        self._progress_at = time.monotonic()
        threads = [threading.Thread(target=self._work, args=(todo, told)) for _ in range(min(self._streams, count))]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException as error:  # an interrupt: the streams end after the range they are at
            self._failure = error
            raise
        if self._failure is not None:
            raise self._failure
        return Sent(self._sent_bytes, self._sent_chunks)

    def _work(self, todo: queue.SimpleQueue[Chunk], told: Callable[[int], None]) -> None:
        try:
            failures = 0
            while self._failure is None and not todo.empty():
                before = self._sent_chunks
                try:
                    self._stream(todo, told)
                except (_Lost, ConnectionLost, Unreachable) as error:
                    failures = 1 if self._sent_chunks > before else failures + 1
                    if time.monotonic() - self._progress_at > self._patience_s:
                        raise error if isinstance(error, NodeError) else self._cut(error) from None
                    time.sleep(ssh_link.pause_s(failures, 0.5))
        except BaseException as error:  # shown by send(), in the caller's thread
            with self._guard:
                self._failure = self._failure or error

    def _cut(self, error: BaseException) -> ConnectionLost:
        return ConnectionLost(
            self._destination.name,
            f"the connection broke in the middle of a copy ({error}): what arrived is kept, run the same again to go on",
        )

    def _stream(self, todo: queue.SimpleQueue[Chunk], told: Callable[[int], None]) -> None:
        with open_stream(self._destination, self._root) as stream:
            while self._failure is None:
                try:
                    chunk = todo.get_nowait()
                except queue.Empty:
                    return
                try:
                    stream.send(chunk, self._local(chunk.entry) / chunk.path)
                except BaseException:
                    todo.put(chunk)
                    raise
                with self._guard:
                    self._sent_bytes += chunk.length
                    self._sent_chunks += 1
                    self._progress_at = time.monotonic()
                told(chunk.length)


class Stream:
    """One ssh connection with the receiving loop at its far end."""

    def __init__(self, node: str, program: subprocess.Popen[bytes]) -> None:
        assert program.stdin is not None
        assert program.stdout is not None
        self._node, self._program = node, program
        self._in, self._out = program.stdin.fileno(), program.stdout.fileno()
        self._rest = b""

    def send(self, chunk: Chunk, source: Path) -> None:
        """Send one range and wait until it is written. ``_Lost`` where the connection breaks, ``DiskFull`` for want of room."""
        head = f"{chunk.entry}\n{chunk.path}\n{chunk.offset} {chunk.length}\n"
        try:
            _write(self._in, os.fsencode(head))
            for block in blocks(source, chunk.offset, chunk.length):
                _write(self._in, block)
        except BrokenPipeError:
            self._answer(chunk)  # why, where the far side could still say it
            raise _Lost("broken pipe") from None
        self._answer(chunk)

    def _answer(self, chunk: Chunk) -> None:
        said = self.line(ACK_S)
        if said == "ok":
            return
        if "No space left" in said or "Disk quota exceeded" in said:
            raise DiskFull(
                self._node, f"the disk is full in the middle of {chunk.entry}: free space there; the half-made copy is removed"
            )
        if said.startswith("no "):
            raise NodeError(self._node, f"{chunk.entry}/{chunk.path} cannot be written: {said[3:][:200]}")
        raise _Lost(said or "no answer")

    def line(self, within_s: float) -> str:
        """The next line that the far side says; "" where it says no more."""
        until = time.monotonic() + within_s
        while b"\n" not in self._rest:
            left_s = until - time.monotonic()
            if left_s <= 0 or not select.select([self._out], [], [], left_s)[0]:
                return ""
            piece = os.read(self._out, 4096)
            if not piece:
                return ""
            self._rest += piece
        said, _, self._rest = self._rest.partition(b"\n")
        return said.decode(errors="replace")


@contextlib.contextmanager
def open_stream(destination: Destination, root: str) -> Iterator[Stream]:
    """A stream to a node's store; every trouble of connecting in its own class."""
    marks = Marks.of(os.urandom(6).hex())
    command = Order(("sh", "-c", RECEIVE, "receive", root), DAY_S, marks).line(destination.name)
    with tempfile.TemporaryFile() as words:
        program = ssh_link.start(
            destination.argv(OPTIONS, command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=words.fileno()
        )
        try:
            stream = Stream(destination.name, program)
            until = time.monotonic() + ssh_link.CONNECT_S + ssh_link.LOGIN_S
            while (said := stream.line(max(0.0, until - time.monotonic()))) and not said.endswith(marks.begin):
                continue  # what the login prints
            if not said:
                ssh_link.end(program)
                words.seek(0)
                raise classify(destination.name, destination.target, words.read())
            yield stream
        finally:
            ssh_link.end(program)


def blocks(source: Path, offset: int, length: int) -> Iterator[memoryview]:
    """The bytes of a range, read with O_DIRECT; where that is refused, buffered, with the pages dropped after each block.

    A block is valid until the next is asked for. ``StoreDamaged`` where the file is shorter than its record says.
    """
    fd, direct = _open(source)
    try:
        view = memoryview(mmap.mmap(-1, BLOCK_BYTES))  # page-aligned, as O_DIRECT wants it
        at = offset
        while at < offset + length:
            got = os.preadv(fd, [view], at)
            if got <= 0:
                raise StoreDamaged(f"{source} is shorter than its record says: run `doit repair`")
            take = min(got, offset + length - at)
            yield view[:take]
            if not direct:
                os.posix_fadvise(fd, at, take, os.POSIX_FADV_DONTNEED)
            at += take
    finally:
        os.close(fd)


def _open(source: Path) -> tuple[int, bool]:
    try:
        try:
            return os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT), True
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return os.open(source, os.O_RDONLY | os.O_CLOEXEC), False
    except OSError as error:
        raise StoreDamaged(f"{source} cannot be read ({error.strerror}): run `doit repair`") from None


def _write(fd: int, data: bytes | memoryview) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
