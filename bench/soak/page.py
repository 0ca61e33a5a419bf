"""The figures in the docs: each run replaces its own part of the page, between two marks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.soak.table import Circumstances, summary, table
from bench.soak.trial import Outcome


def write_matrix(path: Path, outcomes: Sequence[Outcome], at: Circumstances) -> None:
    """The matrix's part. The page must hold its marks."""
    missed = [f"- {one.fault.name}: {line}\n" for one in outcomes for line in one.complaints]
    told = ("\nWhat did not hold:\n\n" + "".join(missed)) if missed else ""
    replace_part(path, "matrix", f"{summary(outcomes, at)}\n\n{table(outcomes)}{told}")


PARTS = ("matrix", "soak")


def check(path: Path) -> None:
    """``OSError`` or ``ValueError`` where the page cannot take figures."""
    text = path.read_text()
    for name in PARTS:
        _parts(path, text, name)


def replace_part(path: Path, name: str, text: str) -> None:
    """Put ``text`` between the marks of that name. ``ValueError`` where the page lacks them."""
    before, after = _parts(path, path.read_text(), name)
    path.write_text(f"{before}\n{text}\n{after}")


def _parts(path: Path, text: str, name: str) -> tuple[str, str]:
    """What stands before and behind a part, with its marks."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{path} lacks the marks {begin} and {end}")
    return before + begin, end + after
