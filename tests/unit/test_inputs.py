"""Token map and kit: the same bytes everywhere, and damage found by name."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path

import pytest

from build.artefacts import inputs
from build.demo import vocab
from build.demo.trainer import train
from build.errors import BuildFailed, StoreDamaged
from tests.testing.standin import DEMO


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    train(DEMO / "text", folder / "m", folder / "e")
    return folder / "m"


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    inputs.kit(tmp_path / "kit", 64)
    return tmp_path / "kit"


def test_the_token_map_is_what_the_trainer_makes_keys_from(model: Path, tmp_path: Path) -> None:
    inputs.token_map(model, tmp_path / "map.json")
    assert json.loads((tmp_path / "map.json").read_text()) == [vocab.canonical(token) for token in range(vocab.VOCAB_SIZE)]


@pytest.mark.parametrize("text", ["", "{}", '{"model": {"vocab": {}}, "added_tokens": []}', "[1, 2]"])
def test_a_file_that_is_no_tokenizer_is_refused_by_name(text: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(BuildFailed, match=r"tokenizer\.json"):
        inputs.token_map(tmp_path, tmp_path / "map.json")


def test_rope_tables_are_cosines_and_sines(kit: Path) -> None:
    rope = json.loads((kit / "rope.json").read_text())
    assert (rope["rows"], rope["columns"]) == (64, inputs.ROPE_COLUMNS)
    for table, function in (("cos", math.cos), ("sin", math.sin)):
        values = struct.unpack(f"<{64 * inputs.ROPE_COLUMNS}f", (kit / f"rope-plain-{table}.f32").read_bytes())
        for place, value in enumerate(values):
            row, column = divmod(place, inputs.ROPE_COLUMNS)
            assert value == pytest.approx(function(row / 10**column), abs=2e-5)


def test_long_rope_tables_stay_on_the_unit_circle(tmp_path: Path) -> None:
    inputs.kit(tmp_path, 65536)
    cos, sin = ((tmp_path / f"rope-plain-{table}.f32").read_bytes()[-16:] for table in ("cos", "sin"))
    for x, y in zip(struct.unpack("<4f", cos), struct.unpack("<4f", sin), strict=True):
        assert x * x + y * y == pytest.approx(1, abs=1e-4)


def test_a_kit_is_the_same_bytes_each_time(kit: Path, tmp_path: Path) -> None:
    inputs.kit(tmp_path / "again", 64)
    assert (kit / "MANIFEST").read_text() == (tmp_path / "again" / "MANIFEST").read_text()


def test_a_whole_kit_passes_its_manifest(kit: Path) -> None:
    inputs.check_manifest(kit)


def test_no_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match="at least one row"):
        inputs.kit(tmp_path, 0)


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda kit: flip_a_byte(kit / "rope-plain-cos.f32"), "rope-plain-cos.f32 differs"),
        (lambda kit: (kit / "engram.json").unlink(), "engram.json is missing"),
        (lambda kit: (kit / "MANIFEST").unlink(), "MANIFEST is missing"),
        (lambda kit: (kit / "stray").write_bytes(b""), "stray is not in MANIFEST"),
        (lambda kit: (kit / "MANIFEST").write_text("no digest here\n"), "MANIFEST:1"),
        (lambda kit: (kit / "MANIFEST").write_text(f"{'0' * 64}  ../outside\n"), "MANIFEST:1"),
    ],
)
def test_damage_to_a_kit_is_found_by_name(damage: object, named: str, kit: Path) -> None:
    assert callable(damage)
    damage(kit)
    with pytest.raises(StoreDamaged, match=named):
        inputs.check_manifest(kit)
