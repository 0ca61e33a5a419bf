"""Mend damaged paths: made again from their inputs, compared with what was recorded, put in place by an atomic exchange."""

from __future__ import annotations

import ctypes
import errno
import os
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from build.artefacts import sources
from build.errors import BuildFailed, OutputDiffers, StoreDamaged, TwinfoldError
from build.graph import graph
from build.graph.graph import Resolved
from build.graph.project import Project
from build.store import durable, hashing, record
from build.store.outside import ON_NODE
from build.store.record import Made, Record
from build.store.store import Store
from build.store.verify import Problem, compare, set_modes

AT_FDCWD = -100  # fcntl(2)
RENAME_EXCHANGE = 2  # rename(2)
NO_EXCHANGE = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of damaged paths, as entries; ``failed``: those that are needed and still damaged, and why."""

    mended: tuple[str, ...]
    removed: tuple[str, ...]
    failed: Mapping[str, TwinfoldError]


def repair(project: Project, problems: Iterable[Problem], needed: Collection[str]) -> Outcome:
    """Mend each that can be mended, inputs first; one that cannot stops none of the others.

    One that cannot and is not ``needed`` is garbage, and removed. A line is said of each.
    """
    waiting = {p.entry: p for p in problems}
    mended: list[str] = []
    removed: list[str] = []
    failed: dict[str, TwinfoldError] = {}
    while waiting:
        wanted = _wanted_all(project, waiting)
        ready = [e for e, w in wanted.items() if not any(i.entry in waiting for i in w.inputs.values())]
        for entry in ready or sorted(waiting.keys() - wanted.keys()):
            problem = waiting.pop(entry)
            try:
                done = _mend(project, problem, _known(project, entry, wanted, failed))
            except TwinfoldError as error:
                if entry not in needed and _remove(project, entry):
                    removed.append(entry)
                    project.report.line(f"removed {entry}: {problem.what}; nothing needs it")
                else:
                    failed[entry] = error
                    project.report.line(f"failed  {entry}: {error}")
            else:
                mended.append(entry)
                project.report.line(f"mended  {entry}: {done}")
    return Outcome(tuple(mended), tuple(removed), failed)


def _known(project: Project, entry: str, wanted: Mapping[str, Record], failed: Mapping[str, TwinfoldError]) -> Record:
    """What an entry is made from; ``StoreDamaged`` where nothing says it, or where that is damaged itself."""
    if entry not in wanted:
        raise StoreDamaged(f"cannot be made again: neither its record nor target {project.target} says from what")
    broken = sorted(i.entry for i in wanted[entry].inputs.values() if i.entry in failed)
    if broken:
        raise StoreDamaged(f"cannot be made again: {broken[0]}, which it is made from, is damaged too")
    return wanted[entry]


def _remove(project: Project, entry: str) -> bool:
    """Take an entry away; False where the file system refuses."""
    with suppress(OSError):
        with project.store.exclusive():
            away = project.store.discard(entry)
        if away is not None:
            durable.remove_tree(away.parent)
        return True
    return False


def remake(project: Project, wanted: Record, *, cached: bool = False) -> tuple[Path, tuple[hashing.Entry, ...]]:
    """Run the builder of a record again on the inputs that it names: the tree in scratch, and what it holds."""
    records = {role: project.store.need(i.entry) for role, i in wanted.inputs.items()}
    return project.run_builder(record.artefact_of(wanted), wanted.entry, records, cached=cached)


def pack_again(project: Project, entry: str) -> None:
    """Mend a rank cache whose bytes were on a worker alone, and are lost there; the head's record of it is right."""
    known = project.store.need(entry)
    if project.outside(record.artefact_of(known)) != known.outside:
        raise StoreDamaged(f"{entry} was packed on {known.outside.removeprefix(ON_NODE)}, and is lost there: run `doit`")
    with project.report.running(known.name, "mending"), durable.told(known.name):
        made, files = remake(project, known, cached=True)
        try:
            _check_same(known, files)
            project.publish(known)
        finally:
            project.drop(made, known)
    project.report.line(f"mended  {entry}: packed again on {known.outside.removeprefix(ON_NODE)}")


def exchange(new: Path, old: Path) -> None:
    """Swap two paths atomically; where the file system cannot, ``old`` is gone for a moment."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(AT_FDCWD, os.fsencode(new), AT_FDCWD, os.fsencode(old), RENAME_EXCHANGE) == 0:
        return
    code = ctypes.get_errno()
    if code not in NO_EXCHANGE:
        raise OSError(code, os.strerror(code), str(old))
    aside = new.with_name(new.name + ".old")
    old.rename(aside)
    new.rename(old)
    aside.rename(new)


def _mend(project: Project, problem: Problem, wanted: Record) -> str:
    store, path = project.store, project.store.path(problem.entry)
    if not problem.content:
        with durable.told(wanted.name):
            set_modes(path, wanted.files)
        return f"{problem.what}, set again"
    if not wanted.outside and (intact := _intact(path, wanted)) is not None:
        with durable.told(wanted.name):
            durable.seal(path)
            durable.seal_top(path)
            store.write_record(intact)
        return "its bytes were right, its record was written again"
    started_s = time.monotonic()
    with project.report.running(wanted.name, "mending"), durable.told(wanted.name):
        made, files = _remake(project, wanted)
        try:
            _check_same(wanted, files)
            outside = project.outside(record.artefact_of(wanted))
            new = replace(wanted, files=files, output=hashing.tree_hash(files), outside=outside)
            project.publish(new)
            _put(store, made, new)
        finally:
            project.drop(made, wanted)
    return f"made again in {time.monotonic() - started_s:.1f} s"


def _remake(project: Project, wanted: Record) -> tuple[Path, tuple[hashing.Entry, ...]]:
    try:
        return remake(project, wanted, cached=True)
    except BuildFailed as error:
        if wanted.builder == sources.BUILDER:
            raise StoreDamaged(f"cannot be made again, the checkout has other bytes by now: {error}") from None
        raise


def _check_same(wanted: Record, files: tuple[hashing.Entry, ...]) -> None:
    found = hashing.tree_hash(files)
    if wanted.output and found != wanted.output:
        raise OutputDiffers(f"{wanted.name}: made again it has {found[:12]}, it had {wanted.output[:12]}; nothing was changed")


def _intact(path: Path, wanted: Record) -> Record | None:
    """The record of a path whose bytes are right though its own record is not; None where that is not known."""
    if not wanted.output or not path.is_dir():
        return None
    if wanted.files:
        return wanted if compare(path, wanted) is None else None
    files = hashing.tree(path)
    return replace(wanted, files=files) if hashing.tree_hash(files) == wanted.output else None


def _put(store: Store, made: Path, new: Record) -> None:
    """The record goes first and comes last, so that at every moment the entry is whole or counts as absent."""
    durable.seal(made)
    with store.exclusive():
        target = store.path(new.entry)
        store.forget(new.entry)
        if os.path.lexists(target):
            for folder in (made, target):
                if folder.is_dir() and not folder.is_symlink():
                    folder.chmod(0o700)  # both change parents
            exchange(made, target)
        else:
            made.rename(target)
        durable.seal_top(target)
        durable.sync_folder(store.root)
        store.write_record(new)


def _wanted_all(project: Project, entries: Iterable[str]) -> dict[str, Record]:
    """What each path must be, where that is known: as its own record says, else as the present graph would make it."""
    own = {entry: _own(project, entry) for entry in entries}
    strange = [entry for entry, found in own.items() if found is None]
    return {e: r for e, r in own.items() if r is not None} | (_from_graph(project, strange) if strange else {})


def _own(project: Project, entry: str) -> Record | None:
    """A path's own record, where that is sound."""
    try:
        own = record.from_json(project.store.record_path(entry).read_bytes(), entry)
    except (OSError, StoreDamaged):
        return None
    return own if record.key_of(own) == own.key and hashing.tree_hash(own.files) == own.output else None


def _from_graph(project: Project, entries: Iterable[str]) -> dict[str, Record]:
    try:
        resolved = graph.resolve(project.graph.values(), project.store.output)
    except TwinfoldError:  # a target that cannot be read says nothing of any path
        return {}
    found = {}
    for one in (r for r in resolved.values() if r.entry in set(entries)):
        assert one.key is not None
        inputs = {role: resolved[name] for role, name in one.artefact.inputs.items()}
        made = Made(one.artefact, one.key, 0.0, project.host, project.outside(one.artefact))
        found[str(one.entry)] = replace(record.record_of(made, inputs, ()), output=_expected(project, one))
    return found


def _expected(project: Project, found: Resolved) -> str:
    """The output that must come out, where the artefact or the lock knows it."""
    return found.artefact.known_output or project.lock.expected(found.artefact.name, str(found.key)) or ""
