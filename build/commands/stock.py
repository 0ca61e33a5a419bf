"""doit's own commands over its database and file dependencies: here the store decides, so they would mislead."""

from __future__ import annotations

from typing import Any

from doit.cmd_base import Command
from doit.cmd_info import Info as StockInfo

from build.commands import edge
from build.errors import UsageError


class Info(edge.Guarded, StockInfo):  # type: ignore[misc] # doit is untyped
    """doit's view of one task."""

    name = "info"

    def _execute(self, pos_args: list[str], hide_status: bool = False) -> Any:  # doit reads the parameters' names
        known = {task.name for task in self.task_list}
        if len(pos_args) != 1 or pos_args[0] not in known:
            raise UsageError("`doit info` wants the name of one artefact: `doit list` lists them")
        return super()._execute(pos_args, hide_status=hide_status)


class _Unneeded(edge.Guarded, Command):  # type: ignore[misc] # doit is untyped
    """A command of doit's that would mislead."""

    doc_purpose = "(of no use here: the store knows what is up to date)"
    doc_usage = ""

    def execute(self, _params: Any, _args: list[str]) -> int:
        """Refuse, and name what does the work."""
        raise UsageError(
            f"`doit {self.name}` is of no use here, the store knows what is up to date: see `doit verify`, `repair` and `gc`"
        )


class Clean(_Unneeded):
    """Removes targets of tasks; ours have none."""

    name = "clean"


class DumpDB(_Unneeded):
    """Shows doit's database."""

    name = "dumpdb"


class Forget(_Unneeded):
    """Empties doit's database."""

    name = "forget"


class Ignore(_Unneeded):
    """Marks tasks in doit's database."""

    name = "ignore"


class ResetDep(_Unneeded):
    """Writes file dependencies to doit's database; our tasks have none."""

    name = "reset-dep"


class Strace(_Unneeded):
    """Looks for file dependencies."""

    name = "strace"
