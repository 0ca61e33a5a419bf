"""Artefacts as doit tasks: doit schedules, the store decides what is up to date, an error keeps its line and exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from build.errors import BuildFailed, TwinfoldError
from build.project import Project

GENERATION = "generation"


class Schedule:
    """Tasks of one project, and the errors that they ended with."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.failures: list[TwinfoldError] = []

    def tasks(self) -> Iterator[dict[str, Any]]:
        """One task an artefact, then the generation."""
        for name, artefact in self.project.graph.items():
            yield self._task(
                name, sorted(set(artefact.inputs.values())), partial(self.project.ready, name), partial(self.project.make, name)
            )
        yield self._task(GENERATION, ["bundle"], self.project.bundle_is_newest, self.project.make_generation)

    def _task(self, name: str, needs: list[str], ready: Callable[[], bool], make: Callable[[], object]) -> dict[str, Any]:
        return {
            "basename": name,
            "actions": [(self._act, [name, make])],
            "task_dep": needs,
            "uptodate": [(self._ask, [ready])],
            "verbosity": 2,  # nothing is captured: programs write to logs, the report to the terminal
        }

    def _ask(self, ready: Callable[[], bool]) -> bool:
        """doit asks when all that the task needs has run. What goes wrong here comes again in the action, where it is told."""
        try:
            return ready()
        except TwinfoldError:
            return False

    def _act(self, name: str, make: Callable[[], object]) -> object:
        from doit.exceptions import TaskFailed

        try:
            make()
        except TwinfoldError as error:
            self.failures.append(error)
        except OSError as error:
            self.failures.append(BuildFailed(f"{name}: {error}"))
        else:
            return True
        return TaskFailed(f"{name} failed", report=False)
