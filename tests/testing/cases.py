"""Cases from the field: inputs with the right answer for each, below tests/cases."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1] / "cases"


@dataclass(frozen=True, slots=True)
class Case:
    """One case: its folder, what is given beside the inputs, and what is expected."""

    folder: Path
    given: dict[str, Any]
    expect: dict[str, Any]

    def text(self, name: str) -> str:
        """An input as text, line ends kept."""
        return (self.folder / name).read_bytes().decode("utf-8")

    def raw(self, name: str) -> bytes:
        """An input's bytes."""
        return (self.folder / name).read_bytes()


def case(name: str) -> Case:
    """Load one case by its id."""
    table = tomllib.loads((ROOT / name / "case.toml").read_text(encoding="utf-8"))
    return Case(ROOT / name, table.get("given", {}), table["expect"])
