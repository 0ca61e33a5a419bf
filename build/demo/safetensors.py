"""Writing safetensors files: u64-LE header length, JSON header, then the tensors without gaps.

Headers are padded with spaces to a whole 4 KiB block, so that a table of 4 KiB blocks is read in aligned reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ALIGN_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Tensor:
    """Raw little-endian bytes with safetensors' own dtype name (``U8``, ``U16``, ``F32``)."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def write_json(path: Path, value: object) -> None:
    """Sorted, indented, with a line end: the same value gives the same bytes."""
    path.write_text(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=True) + "\n", encoding="ascii")


def write_file(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write ``tensors`` in name order."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name in sorted(tensors):
        tensor = tensors[name]
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [offset, offset + len(tensor.data)]}
        offset += len(tensor.data)
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text = text.ljust(-(-(8 + len(text)) // ALIGN_BYTES) * ALIGN_BYTES - 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in sorted(tensors):
            file.write(tensors[name].data)


def write_shards(folder: Path, shards: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Write each shard and the index that names every tensor's shard."""
    for name in sorted(shards):
        write_file(folder / name, shards[name])
    tensors = {tensor: name for name in sorted(shards) for tensor in shards[name]}
    total = sum(len(tensor.data) for shard in shards.values() for tensor in shard.values())
    write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": tensors})
