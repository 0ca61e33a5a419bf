from __future__ import annotations

import dataclasses
from pathlib import Path

from build.settings import Places
from supervisor.settings import GROUPS
from supervisor.settings_doc import document, main
from tests.testing.checkout import CHECKOUT

PAGE = CHECKOUT / "docs" / "settings.md"


def test_the_page_in_the_repository_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == document(), "run: python -m supervisor.settings_doc docs/settings.md"


def test_every_key_has_a_row() -> None:
    rows = document().splitlines()
    for group in (Places, *GROUPS):
        for item in dataclasses.fields(group):
            assert sum(row.startswith(f"| `{item.name}` |") for row in rows) == 1


def test_the_page_is_written_where_asked(tmp_path: Path) -> None:
    assert main([str(tmp_path / "page.md")]) == 0
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == document()
