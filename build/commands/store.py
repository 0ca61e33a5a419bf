"""doit commands over the store: verify, check, repair, gc, generations, rollback."""

from __future__ import annotations

import time
from collections.abc import Mapping

from build.commands import workers
from build.commands.edge import NO_WAIT, Asked, ProjectCommand, option
from build.errors import OutputDiffers, StoreDamaged, TwinfoldError, UsageError
from build.graph import graph, targets
from build.graph.project import Project
from build.graph.report import short
from build.store import gc, generations, recheck, repair, roots, verify
from build.store.roots import Root
from build.store.verified import note_verified
from build.units import GIB

KEEP = option("keep", 3, "how many of the newest generations of each target stay")
EVERY = 1 << 30  # generations to keep: all
BEFORE = -1  # in place of a generation's number: the one before the current


class Verify(ProjectCommand):
    """Read every byte of the store."""

    name = "verify"
    doc_purpose = "read every byte of the store and compare it with the records; exit 6 where something is damaged"

    def work(self, project: Project, _asked: Asked) -> int:
        """Verify."""
        damaged = problems(project)
        far = workers.verify(project)
        if damaged or far:
            raise StoreDamaged(f"{len(damaged) + far} of the store's paths are damaged: `doit repair` mends them")
        note_verified(project.state)
        project.report.line(f"{project.store.root}: {sum(1 for _ in project.store.entries())} paths, every byte as recorded")
        return 0


class Repair(ProjectCommand):
    """Verify, and mend what is damaged."""

    name = "repair"
    doc_purpose = (
        "mend damaged paths of the store by making them again, remove those that nothing needs; exit 6 or 9 where one stays"
    )

    def work(self, project: Project, _asked: Asked) -> int:
        """Repair."""
        done = repair.repair(project, problems(project), needed(project))
        parts = (("mended", done.mended), ("removed", done.removed), ("still damaged", done.failed))
        said = ", ".join(f"{len(entries)} {what}" for what, entries in parts if entries)
        if done.failed:
            raise still_damaged(done.failed, said)
        project.report.line(said or "nothing to mend")
        workers.repair(project)
        return 0


class Check(ProjectCommand):
    """Rebuild and compare."""

    name = "check"
    doc_purpose = "make artefacts again and compare; exit 9 where one comes out different"
    doc_usage = "[ARTEFACT...]"
    takes_names = True

    def work(self, project: Project, asked: Asked) -> int:
        """Check the named artefacts, or all that are built."""
        strange = [a for a in asked.names if a not in project.graph]
        if strange:
            raise UsageError(f"no artefact is called {strange[0]}: `doit list` lists them")
        names = asked.names or [n for n in project.graph if project.ready(n)]
        different = recheck.recheck(project, names)
        if different:
            raise OutputDiffers(f"{', '.join(different)}: made again from the same inputs, the output differs")
        return 0


class Gc(ProjectCommand):
    """Remove what nothing reaches."""

    name = "gc"
    doc_purpose = "remove what no kept generation, running launch or root reaches"
    cmd_options = (KEEP, option("dry-run", False, "say what would go"), *NO_WAIT)

    def work(self, project: Project, asked: Asked) -> int:
        """Collect."""
        act = gc.plan if asked.options["dry_run"] else gc.carry_out
        done = act(project.store, project.state, asked.options["keep"], present(project))
        would = "would go" if asked.options["dry_run"] else "gone"
        for generation in done.generations:
            project.report.line(f"{would}  generation {generation.number} of {generation.target}")
        for entry in done.entries:
            project.report.line(f"{would}  {short(entry)}")
        if done.entries or done.generations:
            project.report.line(f"{len(done.entries)} paths, {done.bytes / GIB:.3f} GiB {would}")
        else:
            project.report.line("nothing to remove: all that the store holds is needed")
        workers.collect(project, asked.options["keep"], dry_run=asked.options["dry_run"])
        return 0


class Generations(ProjectCommand):
    """List generations."""

    name = "generations"
    doc_purpose = "list the target's generations"

    def work(self, project: Project, _asked: Asked) -> int:
        """List."""
        made = generations.every(project.state, project.target)
        if not made:
            targets.read_wanted(project.checkout, project.target)  # a name that is no target is an error
            project.report.line(f"target {project.target} has no generation yet in {project.state}: run `doit`")
        here = generations.current_or_none(project.state, project.target)
        for g in made:
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(g.made_s))
            mark = "  current" if here is not None and here.number == g.number else ""
            project.report.line(f"{g.number:>4}  {when}  {short(g.bundle_entry)}{mark}")
        return 0


class Rollback(ProjectCommand):
    """Make an earlier generation current."""

    name = "rollback"
    doc_purpose = "make the generation before the current one current, or the one of that number"
    cmd_options = (option("to", BEFORE, "the generation's number; by default the one before the current"), *NO_WAIT)

    def work(self, project: Project, asked: Asked) -> int:
        """Roll back."""
        here = generations.current(project.state, project.target)
        earlier = [g.number for g in generations.every(project.state, project.target) if g.number < here.number]
        number = max(earlier, default=BEFORE) if asked.options["to"] == BEFORE else asked.options["to"]
        if number == BEFORE:
            raise UsageError(f"generation {here.number} of {project.target} is the oldest: there is none to go back to")
        found = generations.find(project.state, project.target, number)
        roots.reached(project.store, [Root(found.bundle_entry, f"generation {number}")], strict=True)
        generations.select(project.state, project.target, number)
        project.report.line(
            f"current of {project.target} is generation {number}; a running gang takes it at `supervisor restart`"
        )
        return 0


def problems(project: Project) -> tuple[verify.Problem, ...]:
    """What is wrong with what is there, and with what generations, launches and roots need."""
    begun = {r.entry for r in present(project) if project.store.path(r.entry).exists()}
    with project.report.running(str(project.store.root), "reading"):
        return verify.verify(project.store, rooted(project) | begun, project.report.line)


def rooted(project: Project) -> frozenset[str]:
    """What every generation, launch and explicit root needs, as far as records tell."""
    return roots.reached(project.store, roots.every(project.state, EVERY), strict=False)


def needed(project: Project) -> frozenset[str]:
    """That, and what the present graph would use: all else is garbage."""
    return rooted(project) | roots.reached(project.store, present(project), strict=False)


def still_damaged(failed: Mapping[str, TwinfoldError], said: str) -> TwinfoldError:
    """One error for all: with the exit code that they share, else that of a damaged store."""
    kinds = {type(error) for error in failed.values()}
    entry, error = next(iter(failed.items()))
    kind = kinds.pop() if len(kinds) == 1 else StoreDamaged
    more = "" if len(failed) == 1 else f" (and {len(failed) - 1} more, above)"
    way = "; `doit` makes a new generation without it, `doit gc --keep 1` then forgets the old ones"
    return kind(f"{said}: {short(entry)}: {error}{more}{way if kind is StoreDamaged else ''}")


def present(project: Project) -> tuple[Root, ...]:
    """What the present graph would use of the store, as far as it is known: the lock's outputs stand in for what is not there."""
    try:
        made_from, lock = project.graph.values(), project.lock
    except TwinfoldError as error:
        project.report.line(f"note: target {project.target} as it stands counts for nothing here: {error}")
        return ()

    def index(key: str, name: str) -> str | None:
        return project.store.output(key, name) or lock.expected(name, key)

    resolved = graph.resolve(made_from, index).values()
    return tuple(Root(r.entry, f"target {project.target}") for r in resolved if r.entry is not None)
