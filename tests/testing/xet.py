"""A storage of Xet in small: one xorb a file, of plain chunks, as hf_xet reads it.

A chunk is 8 bytes of header (version, packed size, compression, size; sizes of 3 bytes, little-endian) and its content.
(https://huggingface.co/docs/xet/xorb, https://huggingface.co/docs/xet/api)
"""

from __future__ import annotations

from typing import Any

CHUNK_BYTES = 64 << 10


def xorb(content: bytes) -> bytes:
    """A file's content as the storage keeps it."""
    parts = [content[at : at + CHUNK_BYTES] for at in range(0, len(content), CHUNK_BYTES)]
    return b"".join(b"\0" + len(p).to_bytes(3, "little") + b"\0" + len(p).to_bytes(3, "little") + p for p in parts)


def reconstruction(name: str, content: bytes, url: str) -> dict[str, Any]:
    """How the file ``name`` (64 hex digits) is put together: of all chunks of the xorb at ``url``, which has the same name."""
    chunks = {"start": 0, "end": -(-len(content) // CHUNK_BYTES)}
    fetch = {"range": chunks, "url": url, "url_range": {"start": 0, "end": len(xorb(content)) - 1}}
    return {
        "offset_into_first_range": 0,
        "terms": [{"hash": name, "unpacked_length": len(content), "range": chunks}],
        "fetch_info": {name: [fetch]},
    }
