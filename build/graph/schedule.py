"""Artefacts as doit tasks: doit schedules, the store decides what is up to date, an error keeps its line and exit code."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from build.errors import BuildFailed, TwinfoldError
from build.graph.graph import Artefact
from build.graph.project import Project

GENERATION = "generation"


class UpToDate:
    """What doit asks when all that a task needs has run. What goes wrong here comes again in the action, where it is told."""

    __signature__ = inspect.Signature()  # doit looks at it for every task; working it out takes a tenth of a millisecond

    def __init__(self, ready: Callable[[], bool]) -> None:
        self._ready = ready

    def __call__(self) -> bool:
        try:
            return self._ready()
        except TwinfoldError:
            return False


class Schedule:
    """Tasks of one project, and the errors that they ended with."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.failures: list[TwinfoldError] = []

    def tasks(self) -> Iterator[dict[str, Any]]:
        """One task an artefact, then the generation."""
        project = self.project
        for name, artefact in project.graph.items():
            needed = project.needs(artefact)
            yield self._task(name, needed, partial(project.ready, name), partial(project.make, name), doc(artefact))
        about = "the bundle, numbered and made current"
        yield self._task(GENERATION, ["bundle"], project.bundle_is_newest, project.make_generation, about)

    def _task(
        self, name: str, needed: list[str], ready: Callable[[], bool], make: Callable[[], object], about: str
    ) -> dict[str, Any]:
        return {
            "basename": name,
            "doc": about,
            "actions": [(self._act, [name, make])],
            "task_dep": needed,
            "uptodate": [UpToDate(ready)],
            "verbosity": 2,  # nothing is captured: programs write to logs, the report to the terminal
        }

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


def needs(artefact: Artefact) -> list[str]:
    """The names of what it is made from."""
    return sorted(set(artefact.inputs.values()))


def doc(artefact: Artefact) -> str:
    """What `doit list` says of it."""
    return f"{artefact.builder}, from {', '.join(needs(artefact))}" if artefact.inputs else artefact.builder
