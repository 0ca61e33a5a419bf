"""Mend damaged paths: made again from their inputs, compared with what was recorded, put in place by an atomic exchange."""

from __future__ import annotations

import ctypes
import errno
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from build.artefacts import sources
from build.errors import BuildFailed, OutputDiffers, StoreDamaged, TwinfoldError
from build.graph import graph
from build.graph.builders import builder
from build.graph.graph import Resolved
from build.graph.jobs import Job
from build.graph.project import Project
from build.store import durable, hashing, record
from build.store.record import Made, Record
from build.store.store import Store
from build.store.verify import Problem, compare, set_modes

AT_FDCWD = -100  # fcntl(2)
RENAME_EXCHANGE = 2  # rename(2)
NO_EXCHANGE = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}


def repair(project: Project, problems: Iterable[Problem]) -> None:
    """Mend each, inputs first. ``StoreDamaged`` for what cannot be made again, ``OutputDiffers`` for another result."""
    waiting = {p.entry: p for p in problems}
    while waiting:
        wanted = {entry: _wanted(project, entry) for entry in waiting}
        ready = [e for e, w in wanted.items() if w is not None and not any(i.entry in waiting for i in w.inputs.values())]
        if not ready:
            raise StoreDamaged(
                f"{min(waiting)} cannot be made again: neither its record nor target {project.target} says from what"
            )
        for entry in ready:
            known = wanted[entry]
            assert known is not None
            project.report.line(f"mended  {entry}: {_mend(project, waiting.pop(entry), known)}")


def remake(project: Project, wanted: Record, cache: Path | None = None) -> tuple[Path, tuple[hashing.Entry, ...]]:
    """Run the builder of a record again on the inputs that it names: the tree in scratch, and what it holds."""
    store = project.store
    records = {role: store.need(i.entry) for role, i in wanted.inputs.items()}
    out = store.scratch.new(wanted.entry)
    work = out.with_name("work")
    work.mkdir()
    paths = {role: store.path(r.entry) for role, r in records.items()}
    job = Job(record.artefact_of(wanted), wanted.entry, paths, records, out, work, project.tools(cache or work / "cache"))
    try:
        builder(wanted.builder)(job)
        durable.remove_tree(work)
        return out, hashing.tree(out)
    except BaseException:
        durable.remove_tree(out.parent)
        raise


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
            _put(store, made, replace(wanted, files=files, output=hashing.tree_hash(files)))
        finally:
            durable.remove_tree(made.parent)
    return f"made again in {time.monotonic() - started_s:.1f} s"


def _remake(project: Project, wanted: Record) -> tuple[Path, tuple[hashing.Entry, ...]]:
    try:
        return remake(project, wanted, project.state / "cache")
    except BuildFailed as error:
        if wanted.builder == sources.BUILDER:
            raise StoreDamaged(f"{wanted.entry} cannot be made again, the checkout has other bytes by now: {error}") from None
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


def _wanted(project: Project, entry: str) -> Record | None:
    """What the path must be: its own record where that is sound, else what the present graph would make it from."""
    try:
        own = record.from_json(project.store.record_path(entry).read_bytes(), entry)
        if record.key_of(own) == own.key and hashing.tree_hash(own.files) == own.output:
            return own
    except (OSError, TwinfoldError):
        pass
    return _from_graph(project, entry)


def _from_graph(project: Project, entry: str) -> Record | None:
    def index(key: str, name: str) -> str | None:
        try:
            return project.store.output(key, name)
        except StoreDamaged:
            return None

    resolved = graph.resolve(project.graph.values(), index)
    found = next((r for r in resolved.values() if r.entry == entry), None)
    if found is None or found.key is None:
        return None
    inputs = {role: resolved[name] for role, name in found.artefact.inputs.items()}
    made = Made(found.artefact, found.key, 0.0, project.host, project.outside(found.artefact))
    return replace(record.record_of(made, inputs, ()), output=_expected(project, found))


def _expected(project: Project, found: Resolved) -> str:
    """The output that must come out, where the artefact or the lock knows it."""
    return found.artefact.known_output or project.lock.expected(found.artefact.name, str(found.key)) or ""
