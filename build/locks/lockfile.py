"""Reading a target's two files with tomllib, writing its lock with tomlkit so that comments and order stay."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, TypeVar

from build.errors import PinsMissing, UsageError
from build.locks.pins import FORMAT, Lock, Output, ToolchainPin

T = TypeVar("T", ToolchainPin, Output)
TABLES: dict[str, type[ToolchainPin | Output]] = {"toolchain": ToolchainPin, "output": Output}


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
    return Lock(
        tuple(_rows(raw, path, "toolchain", ToolchainPin)),
        tuple(_rows(raw, path, "output", Output)),
    )


def _rows(raw: dict[str, Any], path: Path, table: str, make: type[T]) -> list[T]:
    names = {f.name for f in fields(make)}
    needed = names - _optional(make)
    rows = raw.get(table, [])
    for number, row in enumerate(rows, 1):
        if not needed <= set(row) <= names or not all(isinstance(v, str) for v in row.values()):
            lacks = ", ".join(sorted(needed - set(row))) or "text values only"
            raise PinsMissing(
                f"{path}: [[{table}]] number {number} is incomplete (wanted {lacks}): make it again with `doit lock`"
            )
    return [make(**row) for row in rows]


def _optional(make: type[ToolchainPin | Output]) -> set[str]:
    """Fields that a table leaves out where they are empty."""
    return {f.name for f in fields(make) if f.default is not MISSING}


def write(path: Path, lock: Lock, save: Callable[[Path, bytes], None]) -> bool:
    """Bring the file to say ``lock``, touching only tables that changed; False where nothing did. ``save`` writes durably."""
    import tomlkit

    try:
        old = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        old = f"# What this target is pinned to, and what its keys gave. Written by `doit lock`.\nversion = {FORMAT}\n"
    document = tomlkit.parse(old)
    _sync(document, "toolchain", lock.toolchains, ("name", "platform"))
    _sync(document, "output", lock.outputs, ("name", "host"))
    new = tomlkit.dumps(document)
    if path.exists() and new == old:
        return False
    save(path, new.encode())
    return True


def _sync(document: Any, table: str, wanted: Sequence[ToolchainPin | Output], identity: tuple[str, ...]) -> None:
    """Change, add and remove tables of one name; a table that stays keeps its place and its comments."""
    import tomlkit

    rows = document.get(table)
    if rows is None:
        if not wanted:
            return
        rows = document[table] = tomlkit.aot()
    new = {tuple(asdict(w)[i] for i in identity): _said(w) for w in wanted}
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


def _said(row: ToolchainPin | Output) -> dict[str, str]:
    return {name: value for name, value in asdict(row).items() if value or name not in _optional(type(row))}
