"""The Zig sources' form: what ``zig fmt`` says, and lines that fit beside each other on a screen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.testing.checkout import CHECKOUT

ZIG = CHECKOUT / "build" / "zig"
COLUMNS = 130


@pytest.mark.parametrize("source", sorted(ZIG.rglob("*.zig")), ids=lambda path: str(path.relative_to(ZIG)))
def test_no_line_is_too_long(source: Path) -> None:
    long = [number for number, line in enumerate(source.read_text().splitlines(), 1) if len(line) > COLUMNS]
    assert long == []


def test_zig_fmt_has_nothing_to_say(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "ziglang", "fmt", "--check", str(ZIG)]
    env = {"ZIG_GLOBAL_CACHE_DIR": str(tmp_path), "ZIG_LOCAL_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
