"""doit's own database, made harmless: the store knows what is up to date, so losing or damaging this file costs nothing.

doit's JSON backend truncates its file in place and ends in a traceback where that fails (a kill in mid-write, a full disk).
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from doit.dependency import DatabaseException, JsonDB

NAME = "twinfold"


class StoreDecides(JsonDB):  # type: ignore[misc] # doit is untyped
    """A JSON file replaced atomically; one that cannot be read is an empty one, one that cannot be written stays as it was."""

    desc = "json, replaced atomically"

    def _load(self) -> Any:
        try:
            return super()._load()
        except (DatabaseException, OSError):
            return {}

    def dump(self) -> None:
        """Save, where that is possible."""
        file = Path(self.name)
        scratch = file.with_name(f".{file.name}.{os.getpid()}")
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            scratch.write_text(self.codec.encode(self._db), encoding="utf-8")
            scratch.replace(file)
