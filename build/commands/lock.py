"""``doit lock``: pin what the target needs; ``--check`` compares; ``--record`` writes what was built."""

from __future__ import annotations

from build.commands.edge import NO_WAIT, Asked, ProjectCommand, option
from build.errors import CheckFailed, UsageError
from build.graph.project import Project
from build.locks import locking


class Lock(ProjectCommand):
    """The lock's command."""

    name = "lock"
    doc_purpose = "pin what the target needs (lockfiles/<target>.lock.toml)"
    doc_usage = "[target=T]"
    cmd_options = (
        option("check", False, "exit 1 where an output that would be built is not in the lock, or differs from it"),
        option("record", False, "write the outputs that were built into the lock"),
        option("only", "", "names of artefacts, comma-separated: pin or record only these"),
        *NO_WAIT,
    )

    def work(self, project: Project, asked: Asked) -> int:
        """Check, record or pin."""
        only = frozenset(filter(None, asked.options["only"].split(",")))
        if asked.options["check"] and (asked.options["record"] or only):
            raise UsageError(
                "`doit lock --check` compares every output and writes none: neither --record nor --only goes with it"
            )
        if asked.options["check"]:
            return self._check(project)
        changed = locking.record(project, only) if asked.options["record"] else locking.pin(project, only)
        project.report.line("\n".join(changed) if changed else f"{project.lock_path} is up to date already")
        return 0

    def _check(self, project: Project) -> int:
        differences = locking.check(project)
        for d in differences:
            project.report.line(f"{d.kind:<10} {d.name}: {d.detail}")
        if differences:
            raise CheckFailed(
                f"{len(differences)} of the target's outputs are not as locked: `doit`, then `doit lock --record` mends it"
            )
        project.report.line(f"{project.lock_path}: every output is locked")
        return 0
