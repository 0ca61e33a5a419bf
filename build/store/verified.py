"""When the whole store was last verified and found right: the mtime of one file in the state folder."""

from __future__ import annotations

from pathlib import Path

NAME = "verified"


def note_verified(state_dir: Path) -> None:
    """Every byte of the store was just read and found as recorded."""
    (state_dir / NAME).touch()


def verified_unix_s(state_dir: Path) -> float | None:
    """Unix time of the last verification, or None where there was none."""
    try:
        return (state_dir / NAME).stat().st_mtime
    except OSError:
        return None
