"""Inputs derived for the demo target: the token map and the kit (RoPE tables, Engram description, routing bias, MANIFEST).

Everything here is a function of its arguments alone and uses no floating-point library: the same call gives the same bytes
on every machine.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
import unicodedata
from array import array
from pathlib import Path
from typing import Any

from build.errors import BuildFailed, StoreDamaged

ROPE_COLUMNS = 4  # pairs of one head; the demo's tables stay at 1 MiB each
ROPE_SCALE_BITS = 40
COMPRESSED_STRIDE = 4  # the compressed table turns once where the plain one turns four times
CUBIN_NAMES = ("engram_gather", "ngram_scores", "sample_rows")
GATE_BIAS_EXPERTS = 64


def token_map(model_dir: Path, out_file: Path) -> None:
    """Write ``dsv41_token_map.json``: a JSON list, token id -> the lowest id whose text is the same when NFKC-normalised
    and lower-cased. Special tokens and ids without text map to themselves.

    Raises BuildFailed when ``model_dir``/tokenizer.json is missing or not a tokenizers file.
    """
    tokenizer, config = _read_json(model_dir / "tokenizer.json"), _read_json(model_dir / "config.json")
    try:
        vocabulary: dict[str, int] = tokenizer["model"]["vocab"]
        special = {int(entry["id"]) for entry in tokenizer["added_tokens"]}
        size = max(config["vocab_size"], 1 + max([*vocabulary.values(), *special]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BuildFailed(f"{model_dir}: tokenizer.json or config.json lacks what a token map needs: {error!r}") from error
    mapping = list(range(size))
    lowest: dict[str, int] = {}
    for letters, number in sorted(vocabulary.items(), key=lambda item: item[1]):
        text = _text_of(letters)
        if text is not None and number not in special:
            mapping[number] = lowest.setdefault(unicodedata.normalize("NFKC", text).lower(), number)
    out_file.parent.mkdir(parents=True, exist_ok=True)
    out_file.write_text(json.dumps(mapping, separators=(",", ":")) + "\n", encoding="ascii")


def kit(out_dir: Path, context_rows: int) -> None:
    """Write the kit for a context of ``context_rows`` positions into ``out_dir`` (created when missing), MANIFEST last.

    RoPE: ``rope-{plain,compressed}-{cos,sin}.f32``, ``context_rows`` x 4 little-endian float32. Values come from integer
    arithmetic (a fixed-point Taylor series and repeated rotation with 40 fractional bits, rounded to a multiple of
    2**-16, which float32 holds exactly), so no libm enters them.
    """
    if context_rows < 1:
        raise BuildFailed(f"the kit's RoPE tables need at least one row, asked for {context_rows}")
    out_dir.mkdir(parents=True, exist_ok=True)
    _write_cubins(out_dir)
    _write_rope(out_dir, context_rows)
    _write_text(out_dir / "engram.json", {"block_bytes": 4096, "tables": ["engram.0.table", "engram.1.table"]})
    _write_gate_bias(out_dir / "vision" / "gate_bias_vl.safetensors")
    _write_manifest(out_dir)


def check_manifest(kit_dir: Path) -> None:
    """Hash every file that MANIFEST names. Raises StoreDamaged for a missing MANIFEST, a bad line, a missing, changed
    or unlisted file."""
    manifest = kit_dir / "MANIFEST"
    if not manifest.is_file():
        raise StoreDamaged(f"{manifest} is missing: build the kit again")
    listed: set[str] = set()
    for number, line in enumerate(manifest.read_text(encoding="utf-8").splitlines(), 1):
        digest, separator, name = line.partition("  ")
        if not separator or len(digest) != 64 or not name or Path(name).is_absolute() or ".." in Path(name).parts:
            raise StoreDamaged(f"{manifest}:{number}: not a line of the form 'sha256  path': {line!r}")
        listed.add(name)
        path = kit_dir / name
        if not path.is_file():
            raise StoreDamaged(f"{path} is missing, MANIFEST names it: build the kit again")
        if _sha256(path.read_bytes()) != digest:
            raise StoreDamaged(f"{path} differs from its sha256 in MANIFEST: build the kit again")
    extra = sorted(set(_kit_files(kit_dir)) - listed)
    if extra:
        raise StoreDamaged(f"{kit_dir / extra[0]} is not in MANIFEST: build the kit again")


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BuildFailed(f"{path}: cannot be read as JSON: {error}") from error


def _text_of(letters: str) -> str | None:
    """The text of a byte-level vocabulary entry; None when its bytes are no whole UTF-8 text."""
    try:
        return bytes(_BYTE_OF[letter] for letter in letters).decode()
    except (KeyError, UnicodeDecodeError):
        return None


def _byte_letters() -> dict[str, int]:
    """GPT-2's table of byte-level BPE: printable bytes stand for themselves, the others for U+0100 upwards."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + place): byte for place, byte in enumerate(others)}


_BYTE_OF = _byte_letters()


def _write_text(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="ascii")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _write_cubins(kit_dir: Path) -> None:
    """Stand-in kernels: small fixed bytes under the names and the hash layout of real ones."""
    listed = []
    for name in CUBIN_NAMES:
        data = b"\x7fELF stand-in kernel " + name.encode() + b"\n"
        digest = _sha256(data)
        listed.append({"name": name, "sha256": digest, "bytes": len(data)})
        for path in (kit_dir / "aot" / "cubins" / f"{digest}.cubin", kit_dir / "cubins" / f"{name}.cubin"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    _write_text(kit_dir / "aot" / "aot.json", {"sm": 121, "kernels": listed})


def _write_rope(kit_dir: Path, rows: int) -> None:
    for name, stride in (("plain", 1), ("compressed", COMPRESSED_STRIDE)):
        cos, sin = _rotations(rows, stride)
        _write_floats(kit_dir / f"rope-{name}-cos.f32", cos)
        _write_floats(kit_dir / f"rope-{name}-sin.f32", sin)
    _write_text(kit_dir / "rope.json", {"rows": rows, "columns": ROPE_COLUMNS, "tables": ["plain", "compressed"]})


def _rotations(rows: int, stride: int) -> tuple[list[int], list[int]]:
    """Cosines and sines of row x 10**-column / stride, row by row, in units of 2**-ROPE_SCALE_BITS."""
    steps = [_small_angle((1 << ROPE_SCALE_BITS) // (10**column * stride)) for column in range(ROPE_COLUMNS)]
    state = [(1 << ROPE_SCALE_BITS, 0)] * ROPE_COLUMNS
    cosines, sines = list[int](), list[int]()
    for _ in range(rows):
        cosines.extend(cos for cos, _ in state)
        sines.extend(sin for _, sin in state)
        state = [_turn(now, step) for now, step in zip(state, steps, strict=True)]
    return cosines, sines


def _turn(now: tuple[int, int], step: tuple[int, int]) -> tuple[int, int]:
    (cos, sin), (step_cos, step_sin) = now, step
    return (cos * step_cos - sin * step_sin) >> ROPE_SCALE_BITS, (sin * step_cos + cos * step_sin) >> ROPE_SCALE_BITS


def _small_angle(angle: int) -> tuple[int, int]:
    """Cosine and sine of an angle up to 1 in fixed point, by their Taylor series until the terms vanish."""
    cos, sin, term, power = 0, 0, 1 << ROPE_SCALE_BITS, 0
    while term:
        sign = -1 if power % 4 >= 2 else 1
        cos, sin = (cos + sign * term, sin) if power % 2 == 0 else (cos, sin + sign * term)
        power += 1
        term = term * angle // (power << ROPE_SCALE_BITS)
    return cos, sin


def _write_floats(path: Path, values: list[int]) -> None:
    drop = ROPE_SCALE_BITS - 16
    exact = array("f", ((value + (1 << (drop - 1)) >> drop) / 65536 for value in values))
    if sys.byteorder == "big":
        exact.byteswap()
    path.write_bytes(exact.tobytes())


def _write_gate_bias(path: Path) -> None:
    """A safetensors file with one float32 tensor: eighths from -1 up to 1, exact in float32."""
    data = struct.pack(f"<{GATE_BIAS_EXPERTS}f", *((place % 17 - 8) / 8 for place in range(GATE_BIAS_EXPERTS)))
    tensor = {"dtype": "F32", "shape": [GATE_BIAS_EXPERTS], "data_offsets": [0, len(data)]}
    header = json.dumps({"gate_bias_vl": tensor}, separators=(",", ":")).encode("ascii")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)


def _kit_files(kit_dir: Path) -> list[str]:
    paths = (path for path in kit_dir.rglob("*") if path.is_file())
    names = (path.relative_to(kit_dir).as_posix() for path in paths)
    return sorted((name for name in names if name != "MANIFEST"), key=str.encode)


def _write_manifest(kit_dir: Path) -> None:
    lines = [f"{_sha256((kit_dir / name).read_bytes())}  {name}\n" for name in _kit_files(kit_dir)]
    (kit_dir / "MANIFEST").write_text("".join(lines), encoding="utf-8")
