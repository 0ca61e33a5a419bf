"""The lock's three verbs: pin, record, check."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from build.artefacts import images, toolchain
from build.errors import BuildFailed, PinsMissing, UsageError
from build.graph import dsv41, graph, targets
from build.graph.graph import Resolved
from build.graph.project import Project
from build.hub.files import Snapshot
from build.locks import lockfile, pins, resolve
from build.locks.pins import Difference, Lock
from build.store import durable


def pin(project: Project, only: frozenset[str]) -> list[str]:
    """Pin what can be pinned from this machine; what changed, a line each.

    What was resolved is kept even where something else could not be: then the first error is raised, the others are said.
    """
    wish = (
        dsv41.read_wanted(project.checkout, project.target) if targets.is_checkpoint(project.checkout, project.target) else None
    )
    _known(only, {toolchain.NAME, *(resolve.names(wish) if wish else ())})
    zig = wish.zig if wish else targets.read_wanted(project.checkout, project.target).zig
    lock, lines = project.lock, []
    if not only or toolchain.NAME in only:
        new = _toolchain(project, zig)
        if lock.toolchain(new.name, new.platform) != new:
            lock = pins.pinned(lock, new)
            lines.append(f"pinned  {new.name} {new.version} for {new.platform}: {new.sha256[:12]}")
    rest = only - {toolchain.NAME}
    if wish is None or (only and not rest):
        if lines:
            _save(project, lock)
        return lines
    found = resolve.resolve(wish, lock, rest, _no_hub() if project.places.hf_hub_offline else _hub_snapshot)
    if found.lock != project.lock:
        _save(project, found.lock)
    lines += found.lines
    if found.errors:
        for line in [*lines, *(f"failed  {error}" for error in found.errors[1:])]:
            project.report.line(line)
        raise found.errors[0]
    return lines


def _toolchain(project: Project, zig: str) -> pins.ToolchainPin:
    wheel = toolchain.installed()
    if wheel.version != zig:
        raise PinsMissing(f"the target wants zig {zig}, the installed wheel is {wheel.version}: install lockfiles/python.txt")
    return toolchain.pin_of(wheel, project.host)


def _hub_snapshot(repo: str, ref: str) -> Snapshot:
    from build.hub.client import LibraryHub
    from build.hub.source import Trouble

    try:
        return LibraryHub().snapshot(repo, ref)
    except Trouble as trouble:
        raise BuildFailed(f"{repo}: {trouble}: is the hub reachable from this machine?") from None


def _no_hub() -> Callable[[str, str], Snapshot]:
    from build.hub import offline

    return offline.connect().snapshot


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
        durable.replace_file(path, content, 0o644)

    with durable.told(str(project.lock_path)):
        lockfile.write(project.lock_path, lock, save)
    project.refresh()


def _known(only: frozenset[str], names: Collection[str]) -> None:
    strange = sorted(n for n in only if n not in names)
    if strange:
        raise UsageError(f"nothing here is called {strange[0]}")
