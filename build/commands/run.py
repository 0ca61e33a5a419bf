"""``doit``, ``doit run``: doit's own run with the build lock around it, our lines and our exit codes."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

from doit.cmd_list import List as StockList
from doit.cmd_run import Run as StockRun

from build.commands import edge, is_program
from build.errors import BuildFailed
from build.graph.project import Project
from build.graph.report import short
from build.graph.runlock import RunLock
from build.graph.schedule import Schedule

SHOWN = 3  # names of outputs that are not locked; `doit lock --check` lists them all


class List(edge.Guarded, StockList):  # type: ignore[misc] # doit is untyped
    """doit's list; errors are one line."""

    name = "list"


class Run(edge.Guarded, StockRun):  # type: ignore[misc] # doit is untyped
    """doit's run."""

    name = "run"
    cmd_options = (*StockRun.cmd_options, *edge.NO_WAIT)

    def parse_execute(self, in_args: list[str]) -> int:
        """doit's entry to a command; all is written and closed when it comes back."""
        code = super().parse_execute(in_args)
        if is_program():
            edge.leave_now(code)
        return code

    def execute(self, params: Any, args: list[str]) -> int:
        """Load the project, then run under the build lock."""
        gc.disable()  # a short process whose thousands of tasks all stay: the collector would only look for what is not there
        self.loader.setup(params)
        schedule: Schedule = self.loader.namespace["SCHEDULE"]
        project = schedule.project
        if not params["num_process"] or params["par_type"] != "thread":
            params["par_type"] = "thread"  # tasks are closures over one project; a killed worker process would hang doit
        lock = RunLock(project.state)
        try:
            if lock.take(project.report.line, wait=not params["no_wait"]):
                project.refresh()
            project.store.clean()
            return self._run(params, args, schedule)
        except KeyboardInterrupt:
            project.children.end()
            project.close()
            if params["num_process"]:
                edge.leave_now(edge.interrupted())
            raise
        finally:
            project.close()
            lock.release()

    def _run(self, params: Any, args: list[str], schedule: Schedule) -> int:
        code = super().execute(params, args)
        if schedule.failures:
            schedule.project.report.close()
            for error in schedule.failures[1:]:
                edge.tell(error)
            return edge.tell(schedule.failures[0])
        if code:
            raise BuildFailed("doit could not run the tasks (see above)")
        schedule.project.report.line(closing(schedule.project, whole=not args))
        return 0


def unlocked(names: Sequence[str]) -> str:
    """How many outputs the lock does not have, and a few of them; "" where it has all."""
    if not names:
        return ""
    if len(names) <= SHOWN:
        return f"; not locked: {', '.join(names)}"
    return f"; {len(names)} not locked: {', '.join(names[:SHOWN])}, … (`doit lock --check` lists them)"


def closing(project: Project, *, whole: bool) -> str:
    """The one line that a build ends with."""
    note = unlocked(project.not_locked())
    made = f"{len(project.built)} built" if project.built else "nothing to do"
    if not whole:
        return f"{project.target}: {made}{note}"
    here, newest = project.standing()
    old = "" if here == newest else f" (rolled back: `doit rollback --to {newest.number}` goes forward again)"
    return f"{project.target} is up to date: {made}, generation {here.number}{old}, bundle {short(here.bundle_entry)}{note}"
