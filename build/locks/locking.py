"""The lock's three verbs: pin, record, check."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from build.artefacts import images, toolchain
from build.errors import PinsMissing, UsageError
from build.graph import graph, targets
from build.graph.graph import Resolved
from build.graph.project import Project
from build.locks import lockfile, pins
from build.locks.pins import Difference, Lock
from build.store import durable


def pin(project: Project, only: frozenset[str]) -> list[str]:
    """Pin what can be pinned from this machine; what changed, a line each."""
    _known(only, {toolchain.NAME})
    wanted = targets.read_wanted(project.checkout, project.target)
    wheel = toolchain.installed()
    if wheel.version != wanted.zig:
        raise PinsMissing(
            f"the target wants zig {wanted.zig}, the installed wheel is {wheel.version}: install lockfiles/python.txt"
        )
    new = toolchain.pin_of(wheel, project.host)
    if project.lock.toolchain(new.name, new.platform) == new:
        return []
    _save(project, pins.pinned(project.lock, new))
    return [f"pinned  {new.name} {new.version} for {new.platform}: {new.sha256[:12]}"]


def record(project: Project, only: frozenset[str]) -> list[str]:
    """Write what the store has for the present keys into the lock; what changed, a line each.

    Without ``only`` everything that the bundle needs must be built; what is beside it (images for other platforms) is
    recorded where it is built, and kept as it is where it is not.
    """
    _known(only, project.graph.keys())
    asked = only or graph.closure(["bundle"], project.graph)
    missing = sorted(name for name in asked if not project.ready(name))
    if missing:
        raise UsageError(f"not built yet: {', '.join(missing)}: run `doit` first")
    made = [project.resolve(name) for name in project.graph if project.ready(name) and (not only or name in only)]
    new = pins.recorded(project.lock, made, project.host, _image_ids(project, made))
    if not only:
        new = pins.without(new, project.host, project.graph.keys())
    changed = sorted({o.name for o in set(new.outputs) ^ set(project.lock.outputs)})
    _save(project, new)
    return [f"locked  {name}" for name in changed]


def check(project: Project) -> tuple[Difference, ...]:
    """What the lock does not say, with nothing built: its own outputs stand in for what the store lacks."""
    by_lock = graph.resolve(project.graph.values(), project.lock.index)
    by_store = {name: project.resolve(name) for name in project.graph}
    return (*pins.compare(project.lock, by_lock, by_store), *_other_images(project))


def _image_ids(project: Project, made: Iterable[Resolved]) -> dict[str, str]:
    """Name -> config digest, of those that are images."""
    found = (r for r in made if r.artefact.builder in images.BUILDERS)
    return {r.artefact.name: images.identity(project.store.path(str(r.entry))).config_digest for r in found}


def _other_images(project: Project) -> Iterator[Difference]:
    """Images in the store whose bytes are as locked and whose id is not: someone wrote another into the lock."""
    made = (project.resolve(name) for name in project.graph if project.ready(name))
    locked = [r for r in made if project.lock.expected(r.artefact.name, str(r.key)) == r.output]
    for name, image_id in _image_ids(project, locked).items():
        said = project.lock.image_id(name, str(project.resolve(name).key))
        if said != image_id:
            yield Difference(name, "differs", f"the lock has image id {said or 'none'}, the store {image_id}")


def _save(project: Project, lock: Lock) -> None:
    def save(path: Path, content: bytes) -> None:
        durable.replace_file(path, content, path.with_name(f".{path.name}.{os.getpid()}"), 0o644)

    with durable.told(str(project.lock_path)):
        lockfile.write(project.lock_path, lock, save)
    project.refresh()


def _known(only: frozenset[str], names: Collection[str]) -> None:
    strange = sorted(n for n in only if n not in names)
    if strange:
        raise UsageError(f"nothing here is called {strange[0]}")
