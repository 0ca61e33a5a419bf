"""The abliterated variant's shards: only what the overlay names changes, and what does not fit is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from build.artefacts import overlay, rank_cache
from build.artefacts.overlay import Place, places
from build.demo.safetensors import Tensor, write_file
from build.errors import BuildFailed


def tensor(byte: int, shape: tuple[int, ...] = (2, 3)) -> Tensor:
    size = 1
    for n in shape:
        size *= n
    return Tensor("U8", shape, bytes([byte]) * size)


def patched(folder: Path, new: dict[str, Tensor]) -> Path:
    shard = folder / "shard.safetensors"
    write_file(shard, {"a": tensor(1), "b": tensor(2), "c": tensor(3)})
    write_file(folder / "over.safetensors", new)
    overlay._patch(shard, dict(places(folder / "over.safetensors")), "overlay-shards")
    return shard


def content(file: Path) -> dict[str, bytes]:
    raw = file.read_bytes()
    return {name: raw[p.start : p.start + p.bytes] for name, p in places(file)}


def test_a_replaced_tensor_changes_its_own_bytes_alone(tmp_path: Path) -> None:
    shard = patched(tmp_path, {"b": tensor(9)})
    assert content(shard) == {"a": b"\1" * 6, "b": b"\11" * 6, "c": b"\3" * 6}


@pytest.mark.parametrize(
    ("new", "says"),
    [
        ({"b": tensor(9, (3, 2))}, r"\[2, 3\] there"),
        ({"x": tensor(9)}, "is not in it"),
        ({"a": Tensor("I8", (2, 3), b"6" * 6)}, "U8"),
    ],
)
def test_a_tensor_of_another_form_is_refused(tmp_path: Path, new: dict[str, Tensor], says: str) -> None:
    with pytest.raises(BuildFailed, match=says):
        patched(tmp_path, new)


@pytest.mark.parametrize("raw", [b"", b"\xff" * 8, (20).to_bytes(8, "little") + b"{}", (2).to_bytes(8, "little") + b"[]"])
def test_what_is_no_safetensors_file_is_named(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "x").write_bytes(raw)
    with pytest.raises(BuildFailed, match="is no safetensors file"):
        dict(places(tmp_path / "x"))


def test_a_tensor_outside_its_file_is_refused(tmp_path: Path) -> None:
    header: Any = b'{"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}}'
    (tmp_path / "x").write_bytes(len(header).to_bytes(8, "little") + header + b"123")
    with pytest.raises(BuildFailed, match="a lies outside it"):
        dict[str, Place](places(tmp_path / "x"))


def test_the_packers_last_word_is_its_progress(tmp_path: Path) -> None:
    log = tmp_path / "rank0of2.log"
    assert rank_cache.progress(log) == ""
    log.write_text("rank 0 of 2: 8192 of 100352 MiB\nrank 0 of 2: 16384 of 100352 MiB\n")
    assert rank_cache.progress(log) == "16384 of 100352 MiB"
