"""What is wrong in a store: every byte read and compared with the records; nothing is changed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from build.artefacts import hub_files, toolchain
from build.errors import TwinfoldError
from build.hub.shelf import Shelf
from build.store import durable, hashing, record
from build.store.hashing import Entry
from build.store.outside import is_on_node
from build.store.record import Record
from build.store.store import Store

THREADS = 4
MODES = {"file": durable.FILE_MODE, "program": durable.PROGRAM_MODE, "folder": durable.FOLDER_MODE}


@dataclass(frozen=True, slots=True)
class Problem:
    """One entry that is not as its record says. ``content`` is False where every byte is right and only modes are not."""

    entry: str
    what: str
    content: bool = True


def verify(store: Store, wanted: Iterable[str], say: Callable[[str], None] = lambda _: None) -> tuple[Problem, ...]:
    """Check every entry that has a record, and that each of ``wanted`` (what something reaches) has one."""
    reached = _closure(store, wanted)
    entries = sorted({*store.entries(), *reached})
    found = []
    for entry in entries:
        problem = _verify_one(store, entry, reached)
        if problem is not None:
            say(f"damaged {entry}: {problem.what}")
            found.append(problem)
    return tuple(found)


def _closure(store: Store, wanted: Iterable[str]) -> set[str]:
    """What is wanted and all that it was made from, as far as readable records tell."""
    found: set[str] = set()
    waiting = list(wanted)
    while waiting:
        entry = waiting.pop()
        if entry not in found:
            found.add(entry)
            there = _record(store, entry)
            waiting += [i.entry for i in there.inputs.values()] if isinstance(there, Record) else []
    return found


def _record(store: Store, entry: str) -> Record | str | None:
    """The record, what is wrong with it, or None where there is none."""
    try:
        return record.from_json(store.record_path(entry).read_bytes(), entry)
    except FileNotFoundError:
        return None
    except (TwinfoldError, OSError) as error:
        return str(error).replace(f"the record of {entry}", "its record").removesuffix(": run `doit repair`")


def _verify_one(store: Store, entry: str, reached: set[str]) -> Problem | None:
    there = _record(store, entry)
    if there is None:
        # A path without a record is what a crash leaves, and gc's to remove; but not where something needs it.
        return Problem(entry, "its record is gone") if entry in reached else None
    if isinstance(there, str):
        return Problem(entry, there)
    if record.key_of(there) != there.key or hashing.tree_hash(there.files) != there.output:
        return Problem(entry, "its record contradicts itself")
    if is_on_node(there.outside):  # the node's own verification reads it; here is but an empty folder
        return compare(store.path(entry), replace(there, files=()))
    return compare(store.path(entry), there) or _outside(store, there)


def compare(path: Path, wanted: Record) -> Problem | None:
    """A path against its record: names, kinds, sizes, contents, modes."""
    if not os.path.lexists(path):
        return Problem(wanted.entry, "its path is gone")
    try:
        found = _tree(path)
    except (OSError, ValueError) as error:
        return Problem(wanted.entry, str(error))
    difference = _difference({e.path: e for e in wanted.files}, {e.path: e for e in found})
    if difference:
        return Problem(wanted.entry, difference)
    mode = _mode(path, wanted.files)
    return Problem(wanted.entry, mode, content=False) if mode else None


def _tree(path: Path) -> tuple[Entry, ...]:
    """The tree as it is, hashed by several threads; the fingerprint cache is not asked."""
    with ThreadPoolExecutor(THREADS) as pool:
        files = [p for p, _ in hashing.walk(path) if p.is_file() and not p.is_symlink()]
        known = dict(zip(files, pool.map(hashing.sha256_file, files), strict=True))
    return hashing.tree(path, known.__getitem__)


def _difference(wanted: dict[str, Entry], found: dict[str, Entry]) -> str:
    for path in sorted(wanted.keys() | found.keys()):
        if path not in found:
            return f"{path} is missing"
        if path not in wanted:
            return f"{path} does not belong there"
        if wanted[path].kind != found[path].kind and {wanted[path].kind, found[path].kind} != {"file", "program"}:
            return f"{path} is a {found[path].kind}, was a {wanted[path].kind}"
        if wanted[path].size != found[path].size:
            return f"{path} has {found[path].size} bytes, had {wanted[path].size}"
        if wanted[path].sha256 != found[path].sha256:
            return f"{path} has other content"
    return ""


def _mode(path: Path, files: tuple[Entry, ...]) -> str:
    """The first name whose mode is not as it was stored; "" where all are."""
    wanted = [Entry("", "folder", 0, ""), *files]
    for entry in wanted:
        status = (path / entry.path).lstat()
        mode = MODES.get(entry.kind)
        if mode is not None and stat.S_IMODE(status.st_mode) != mode:
            return f"{entry.path or 'its folder'} has mode {stat.S_IMODE(status.st_mode):04o}, had {mode:04o}"
    return ""


def set_modes(path: Path, files: tuple[Entry, ...]) -> None:
    """Give every name the mode that it was stored with."""
    for entry in files:
        if entry.kind in MODES:
            (path / entry.path).chmod(MODES[entry.kind])
    durable.seal_top(path)


def _outside(store: Store, there: Record) -> Problem | None:
    """What a reference artefact points at: the files are elsewhere, their hashes here."""
    if not there.outside:
        return None
    if there.builder == hub_files.BUILDER:  # read anew: fingerprints are not asked
        wrong = hub_files.problem(there.params, Shelf(store.root.parent / there.outside, hashing.sha256_file))
        return Problem(there.entry, wrong) if wrong else None
    try:
        toolchain.verify(Path(there.outside), (store.path(there.entry) / toolchain.MANIFEST).read_bytes(), hashing.sha256_file)
    except TwinfoldError as error:
        return Problem(there.entry, str(error))
    return None
