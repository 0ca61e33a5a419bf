"""Reading a target's two files with tomllib, writing its lock with tomlkit so that comments and order stay."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from build.errors import PinsMissing, UsageError
from build.locks.pins import FORMAT, FilePin, GitPin, HubPin, ImagePin, Lock, Output, PatchPin, ToolchainPin

Row = ToolchainPin | Output | GitPin | ImagePin | HubPin | FilePin | PatchPin
T = TypeVar("T", bound=Row)


@dataclass(frozen=True, slots=True)
class Table:
    """One kind of ``[[table]]``: its rows, the lock's field that holds them, and what tells one row from another."""

    row: type[Row]
    field: str
    identity: tuple[str, ...]


TABLES = {
    "toolchain": Table(ToolchainPin, "toolchains", ("name", "platform")),
    "git": Table(GitPin, "gits", ("name",)),
    "patch": Table(PatchPin, "patches", ("series", "file")),
    "image": Table(ImagePin, "images", ("name", "platform")),
    "hub": Table(HubPin, "hubs", ("name",)),
    "file": Table(FilePin, "files", ("hub", "path")),
    "output": Table(Output, "outputs", ("name", "host")),
}
KINDS: dict[str, Callable[[object], bool]] = {
    "str": lambda value: isinstance(value, str),
    "int": lambda value: type(value) is int,
    # a list in the file
    "tuple[str, ...]": lambda value: isinstance(value, list) and all(isinstance(v, str) for v in value),
}


def read_table(path: Path) -> dict[str, Any]:
    """A TOML file as it is; ``UsageError`` where it cannot be read, ``FileNotFoundError`` where it is not there."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None


def read(path: Path) -> Lock:
    """The lock; an absent file is an empty one."""
    try:
        raw = read_table(path)
    except FileNotFoundError:
        return Lock()
    if raw.pop("version", None) != FORMAT:
        raise PinsMissing(f"{path} is not a lock of version {FORMAT}: make it again with `doit lock`")
    unknown = sorted(set(raw) - set(TABLES))
    if unknown:
        raise PinsMissing(f"{path} has [[{unknown[0]}]], which this version does not know")
    return Lock(**{t.field: tuple(_rows(raw, path, name, t.row)) for name, t in TABLES.items()})  # type: ignore[arg-type]


def _rows(raw: dict[str, Any], path: Path, table: str, make: type[T]) -> list[T]:
    known = {f.name: f for f in fields(make)}
    needed = {n for n, f in known.items() if f.default is MISSING}
    rows = raw.get(table, [])
    for number, row in enumerate(rows, 1):
        if not needed <= set(row) <= set(known) or not all(_fits(known[n], v) for n, v in row.items()):
            lacks = ", ".join(sorted(needed - set(row))) or "text values only"
            raise PinsMissing(
                f"{path}: [[{table}]] number {number} is incomplete (wanted {lacks}): make it again with `doit lock`"
            )
    build: Callable[..., T] = make
    return [build(**{n: tuple(v) if isinstance(v, list) else v for n, v in row.items()}) for row in rows]


def _fits(field: Field[Any], value: object) -> bool:
    return KINDS[str(field.type)](value)


def write(path: Path, lock: Lock, save: Callable[[Path, bytes], None]) -> bool:
    """Bring the file to say ``lock``, touching only tables that changed; False where nothing did. ``save`` writes durably."""
    import tomlkit

    try:
        old = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        old = f"# What this target is pinned to, and what its keys gave. Written by `doit lock`.\nversion = {FORMAT}\n"
    document = tomlkit.parse(old)
    for name, table in TABLES.items():
        _sync(document, name, getattr(lock, table.field), table.identity)
    new = tomlkit.dumps(document)
    if path.exists() and new == old:
        return False
    save(path, new.encode())
    return True


def _sync(document: Any, table: str, wanted: Sequence[Row], identity: tuple[str, ...]) -> None:
    """Change, add and remove tables of one name; a table that stays keeps its place and its comments."""
    import tomlkit

    rows = document.get(table)
    if rows is None:
        if not wanted:
            return
        rows = document[table] = tomlkit.aot()
    new = {tuple(str(getattr(w, i)) for i in identity): _values(w) for w in wanted}
    for row in list(rows):
        name = tuple(str(row[i]) for i in identity)
        if name not in new:
            rows.remove(row)
            continue
        values = new.pop(name)
        for field in [f for f in row if f not in values]:
            del row[field]
        for field, value in values.items():
            if row.get(field) != value:
                row[field] = value
    for values in new.values():
        made = tomlkit.table()
        made.update(values)
        rows.append(made)


def _values(row: Row) -> dict[str, Any]:
    """A row as it stands in the file: what is empty is left out, where that is the default."""
    return {
        f.name: list(value) if isinstance(value, tuple) else value
        for f in fields(row)
        if (value := getattr(row, f.name)) != f.default
    }
