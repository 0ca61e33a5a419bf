"""``supervisor import-recipe DIR``: a shell recipe's files to a ``config.toml``, with a report of every value and line.

The recipe's precedence holds: ``scripts/local.sh`` counts before ``.env``. Nothing of either is run.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from build.errors import UsageError
from supervisor.recipe.file import Note, RecipeFile, read_env, read_shell
from supervisor.recipe.values import SECRETS, Judgement, Machine, judge

LOCAL_SH = "scripts/local.sh"
ENV = ".env"


@dataclass(frozen=True, slots=True)
class Found:
    """What a recipe's folder sets: values as the recipe would see them, the place of each, and notes by file."""

    values: Mapping[str, str]
    places: Mapping[str, str]
    notes: tuple[tuple[str, Note], ...]


@dataclass(frozen=True, slots=True)
class Import:
    """Every value judged, in the recipe's order, and what there is to say of lines that set nothing."""

    found: Found
    judgements: tuple[Judgement, ...]

    @property
    def failed(self) -> tuple[Judgement, ...]:
        """Values that no setting can take."""
        return tuple(one for one in self.judgements if one.verdict == "fail")

    def report(self) -> Iterator[str]:
        """One line a value, then one for each line of a file that is worth a look."""
        for one in self.judgements:
            became = "".join(f" -> {key} = {toml(value)}" for key, value in one.settings)
            became += "".join(f" -> engine_env {key}" for key, _ in one.engine_env)
            why = f" ({one.why})" if one.why else ""
            shown = "" if one.key in SECRETS else f"={one.value}"
            yield f"{one.verdict:<4} {self.found.places[one.key]}: {one.key}{shown}{became}{why}"
        for name, note in self.found.notes:
            yield f"note {name}:{note.line}: {note.key + ': ' if note.key else ''}{note.why}"

    def config(self) -> str:
        """The text of a ``config.toml`` that holds what was taken."""
        settings = dict(pair for one in self.judgements for pair in one.settings)
        engine_env = dict(pair for one in self.judgements for pair in one.engine_env)
        lines = [f"{key} = {toml(value)}" for key, value in settings.items()]
        if engine_env:
            lines += ["", "[engine_env]", *(f"{key} = {toml(value)}" for key, value in engine_env.items())]
        return "\n".join(["# Imported from a shell recipe by `supervisor import-recipe`.", *lines, ""])


def read_recipe(folder: Path, environ: Mapping[str, str]) -> Found:
    """Read the folder's two files. ``UsageError`` where it has neither, or one cannot be read."""
    readers: dict[str, Callable[[str], RecipeFile]] = {ENV: read_env, LOCAL_SH: partial(read_shell, environ=environ)}
    read: dict[str, RecipeFile] = {}
    for name, reader in readers.items():
        text = _text(folder / name)
        if text is not None:
            read[name] = reader(text)
    if not read:
        raise UsageError(f"{folder} has neither {LOCAL_SH} nor {ENV}: name the folder of the recipe's checkout")
    values = {key: value for one in read.values() for key, value in one.values.items()}
    places = {one.key: f"{name}:{one.line}" for name, file in read.items() for one in file.settings}
    return Found(values, places, tuple((name, note) for name, file in read.items() for note in file.notes))


def import_recipe(folder: Path, environ: Mapping[str, str], machine: Machine, known: frozenset[str]) -> Import:
    """Read and judge. ``known`` are the keys that ``config.toml`` may hold."""
    found = read_recipe(folder, {"HOME": environ["HOME"]} if "HOME" in environ else {})
    return Import(found, judge(found.values, machine, known))


def refuse_failed(one: Import) -> None:
    """``UsageError`` that names every value that no setting can take."""
    if one.failed:
        named = "; ".join(f"{one.found.places[bad.key]}: {bad.key} = {bad.value}: {bad.why}" for bad in one.failed)
        raise UsageError(f"nothing was written, since some values cannot be taken: {named}")


def toml(value: Any) -> str:
    """A scalar in TOML, whose strings, numbers and truth values are written as JSON's are, but for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def write_config(path: Path, text: str, *, replace: bool) -> None:
    """Write a new ``config.toml``. ``UsageError`` where there is one already and ``replace`` is not set."""
    tomllib.loads(text)
    try:
        with path.open("w" if replace else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} is there already: --force replaces it, --dry-run shows what would be written") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
