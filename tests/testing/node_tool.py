"""The node tool's binary for tests: compiled once for a state of its sources, kept under .zig-cache/ of the checkout."""

from __future__ import annotations

import fcntl
import hashlib
import json
import subprocess
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from build.toolchain import PROGRAM, TRIPLES, host, installed_root

CHECKOUT = Path(__file__).resolve().parents[2]
SOURCES = CHECKOUT / "build/zig/node"
CACHE = CHECKOUT / ".zig-cache/node-tool"
NAME = "twinfold-node"
COMPILE_S = 280


@cache
def node_tool() -> Path:
    """The binary for this machine."""
    kept = CACHE / sources_key(SOURCES) / NAME
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            compile_tool(SOURCES, TRIPLES[host()], kept, CACHE)
    return kept


def sources_key(folder: Path) -> str:
    """A digest over what the binary is made from."""
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("src/**/*.zig"), folder / "parts.toml"]):
        digest.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:24]


def compile_tool(folder: Path, triple: str, binary: Path, cache_root: Path) -> None:
    """``zig build-exe`` as parts.toml says it, in the folder of the sources; the finished file appears at once."""
    parts = tomllib.loads((folder / "parts.toml").read_text())
    part = parts["parts"][NAME]
    binary.parent.mkdir(parents=True, exist_ok=True)
    made = binary.with_suffix(".new")
    argv = [
        str(installed_root() / PROGRAM), "build-exe", part["root"], *parts["flags"], "-target", triple, "--name", NAME,
        f"-femit-bin={made}", "--cache-dir", str(cache_root / "local"), "--global-cache-dir", str(cache_root / "global"),
    ]  # fmt: skip
    subprocess.run(argv, cwd=folder / "src", check=True, timeout=COMPILE_S)
    made.rename(binary)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one call printed: JSON lines, the text of standard error, the exit status."""

    lines: list[dict[str, Any]]
    errors: str
    status: int


def ask(*argv: str | bytes | Path, stdin: bytes = b"", deadline_s: float = 120) -> Answer:
    """Run the tool to its end."""
    done = subprocess.run([node_tool(), *argv], input=stdin, capture_output=True, check=False, timeout=deadline_s)
    return Answer([json.loads(line) for line in done.stdout.splitlines()], done.stderr.decode(), done.returncode)
