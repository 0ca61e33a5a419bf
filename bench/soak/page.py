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


def replace_part(path: Path, name: str, text: str) -> None:
    """Put ``text`` between the marks of that name. ``ValueError`` where the page lacks them."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, found, rest = path.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{path} lacks the marks {begin} and {end}")
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}")
