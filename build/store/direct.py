"""sha256 of a large file past the page cache: O_DIRECT into two aligned blocks, one read while the other is hashed.

What is serving beside it keeps its pages, and what is read is what the disk holds. Where a file system refuses O_DIRECT (tmpfs
of older kernels), the file is read through the cache and its pages are dropped behind.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import mmap
import os
from contextlib import ExitStack, closing
from pathlib import Path

BLOCK_BYTES = 8 << 20


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
    with os.fdopen(fd, "rb", buffering=0), ExitStack() as held, ThreadPoolExecutor(1) as reader:
        # anonymous memory is page-aligned, as O_DIRECT wants it
        memory = held.enter_context(closing(mmap.mmap(-1, 2 * BLOCK_BYTES)))
        both = held.enter_context(memoryview(memory))
        blocks = [held.enter_context(both[at : at + BLOCK_BYTES]) for at in (0, BLOCK_BYTES)]
        digest, offset = hashlib.sha256(), 0
        pending = reader.submit(os.preadv, fd, blocks[:1], 0)
        for turn in itertools.count():
            count = pending.result()
            offset += count
            if count == BLOCK_BYTES:
                pending = reader.submit(os.preadv, fd, [blocks[1 - turn % 2]], offset)
            digest.update(blocks[turn % 2][:count])
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
