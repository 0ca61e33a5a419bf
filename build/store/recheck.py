"""``check``: make artefacts again from the same inputs, with no cache, and compare; nothing is registered."""

from __future__ import annotations

from collections.abc import Iterable

from build.graph.project import Project
from build.store import durable
from build.store.hashing import Entry
from build.store.record import Record
from build.store.repair import remake


def recheck(project: Project, names: Iterable[str]) -> list[str]:
    """One line for each artefact that came out different, naming its first file."""
    different = []
    for name in names:
        known = project.store.need(str(project.resolve(name).entry))
        with project.report.running(name, "checking"), durable.told(name):
            made, files = remake(project, known)
            project.drop(made, known)
        first = difference(known, files)
        project.report.line(f"{'differs' if first else 'same   '} {name}{first and ': ' + first}")
        if first:
            different.append(name)
    return different


def difference(known: Record, files: tuple[Entry, ...]) -> str:
    """The first name that differs; "" where the trees are equal."""
    was, now = ({(e.path, e.kind, e.sha256) for e in entries} for entries in (known.files, files))
    return min((path for path, _, _ in was ^ now), default="")
