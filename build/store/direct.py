"""sha256 of a large file past the page cache: O_DIRECT into aligned blocks, two being read while one is hashed.

What is serving beside it keeps its pages, and what is read is what the disk holds. Where a file system refuses O_DIRECT (tmpfs
of older kernels), the file is read through the cache and its pages are dropped behind.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import mmap
import os
from collections import deque
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Future

BLOCK_BYTES = 8 << 20
READS = 2  # under way at once: a device that others use too gave a third more than with one


def sha256(path: Path) -> str:
    """Hex sha256 of a regular file's content. Raises what opening and reading raise."""
    try:
        return _direct(path)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    return _dropping(path)


def _direct(path: Path) -> str:
    from concurrent.futures import ThreadPoolExecutor  # a build whose fingerprints are known reads nothing large

    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
    with os.fdopen(fd, "rb", buffering=0), ExitStack() as held, ThreadPoolExecutor(READS) as reader:
        # anonymous memory is page-aligned, as O_DIRECT wants it
        memory = held.enter_context(closing(mmap.mmap(-1, (READS + 1) * BLOCK_BYTES)))
        whole = held.enter_context(memoryview(memory))
        blocks = [held.enter_context(whole[at : at + BLOCK_BYTES]) for at in range(0, len(whole), BLOCK_BYTES)]

        def read(turn: int) -> Future[int]:
            return reader.submit(os.preadv, fd, [blocks[turn % len(blocks)]], turn * BLOCK_BYTES)

        digest, offset = hashlib.sha256(), 0
        pending = deque(read(turn) for turn in range(READS))
        for turn in itertools.count():
            count = pending.popleft().result()
            offset += count
            pending.append(read(turn + READS))
            digest.update(blocks[turn % len(blocks)][:count])
            if count < BLOCK_BYTES:
                break
    if offset != path.stat().st_size:
        raise OSError(errno.EIO, "read short: the file changed, or the disk refuses", str(path))
    return digest.hexdigest()


def _dropping(path: Path) -> str:
    digest, offset = hashlib.sha256(), 0
    with path.open("rb", buffering=0) as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
            os.posix_fadvise(file.fileno(), offset, len(block), os.POSIX_FADV_DONTNEED)
            offset += len(block)
    return digest.hexdigest()
