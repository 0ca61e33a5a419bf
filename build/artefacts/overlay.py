"""The abliterated variant's shards: those of the checkpoint that hold a replaced tensor, written anew with it.

An overlay is a safetensors file whose tensors replace those of the same name, or a file that is called like a shard and replaces
it whole. A replaced tensor must have the dtype and shape of the original: every offset stays, so a shard is copied and patched.
(https://github.com/huggingface/safetensors#format: u64-LE header length, JSON header, data)
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from build.artefacts import hub_files
from build.errors import BuildFailed
from build.graph.graph import Artefact

if TYPE_CHECKING:
    from build.graph.jobs import Job

BUILDER, VERSION = "overlay", 1
INDEX = "model.safetensors.index.json"
HEADER_LIMIT_BYTES = 100 << 20
BLOCK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor in a file: where its data starts, and how long it is."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    bytes: int


def artefact(name: str, model: str, overlay: str) -> Artefact:
    """The rewritten shards of the hub artefact ``model`` under the hub artefact ``overlay``."""
    return Artefact(name, BUILDER, VERSION, {}, {"model": model, "overlay": overlay})


def rewrite(job: Job) -> None:
    """Write every shard that the overlay changes; the room for them is counted before the first."""
    from build.hub import space

    model, over = _files(job, "model"), _files(job, "overlay")
    whole = {path: file for path, file in over.items() if path in model}
    tensors = {n: p for path, f in over.items() if path not in whole and path.endswith(".safetensors") for n, p in places(f)}
    if not whole and not tensors:
        raise BuildFailed(f"{job.artefact.name}: the overlay holds no safetensors file and no file of the checkpoint")
    by_shard = _by_shard(job, model, tensors)
    need = sum(f.stat().st_size for f in [*whole.values(), *(model[s] for s in by_shard)])
    space.require(job.artefact.name, [space.Need(job.out.parent, need)])
    job.out.mkdir()
    for path, file in whole.items():
        _copy(file, job.out / path)
    for shard, names in by_shard.items():
        _copy(model[shard], job.out / shard)
        _patch(job.out / shard, {n: tensors[n] for n in names}, job.artefact.name)


def places(file: Path) -> Iterator[tuple[str, Place]]:
    """Every tensor of a safetensors file. ``BuildFailed`` where it is none."""
    try:
        yield from _places(file)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BuildFailed(f"{file} is no safetensors file: {error}") from None


def _places(file: Path) -> Iterator[tuple[str, Place]]:
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if not 2 <= length <= HEADER_LIMIT_BYTES:
            raise ValueError("its header's length is impossible")
        text = opened.read(length)
        if len(text) != length:
            raise ValueError("its header is cut off")
        header: dict[str, Any] = json.loads(text)
    size = file.stat().st_size
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        start, end = (8 + length + int(n) for n in entry["data_offsets"])
        if not 8 + length <= start <= end <= size:
            raise ValueError(f"{name} lies outside it")
        yield name, Place(file, str(entry["dtype"]), tuple(entry["shape"]), start, end - start)


def _files(job: Job, role: str) -> dict[str, Path]:
    """Path inside the repository -> where it lies."""
    snapshot = hub_files.snapshot_of(job.records[role].params)
    return {f.path: job.tools.hub.shelf.path(snapshot, f) for f in snapshot.files}


def _by_shard(job: Job, model: Mapping[str, Path], tensors: Mapping[str, Place]) -> dict[str, list[str]]:
    """Shard -> the replaced tensors in it, by the checkpoint's index."""
    try:
        index = json.loads(model[INDEX].read_text(encoding="utf-8"))["weight_map"] if tensors else {}
    except (KeyError, OSError, ValueError) as error:
        raise BuildFailed(f"{job.artefact.name}: the checkpoint has no usable {INDEX}: {error}") from None
    found: dict[str, list[str]] = {}
    for name in sorted(tensors):
        if index.get(name) not in model:
            raise BuildFailed(f"{job.artefact.name}: the overlay replaces {name}, which the checkpoint does not have")
        found.setdefault(index[name], []).append(name)
    return found


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source.resolve(), target)


def _patch(shard: Path, new: Mapping[str, Place], what: str) -> None:
    old = dict(places(shard))
    with shard.open("r+b") as file:
        for name, there in new.items():
            here = old.get(name)
            if here is None or (here.dtype, here.shape, here.bytes) != (there.dtype, there.shape, there.bytes):
                was = "is not in it" if here is None else f"is {here.dtype}{list(here.shape)} there"
                raise BuildFailed(f"{what}: {name} is {there.dtype}{list(there.shape)} in the overlay, {shard.name}: it {was}")
            file.seek(here.start)
            with there.file.open("rb") as source:
                source.seek(there.start)
                left = there.bytes
                while left:
                    block = source.read(min(BLOCK_BYTES, left))
                    if not block:
                        raise BuildFailed(f"{there.file} ended early")
                    file.write(block)
                    left -= len(block)
        os.fsync(file.fileno())
