"""The build graph of one target, for doit: `doit`, `doit target=demo`, `doit list`. Wiring only."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from build.commands.database import NAME as DATABASE
from build.commands.edge import Quiet, variables
from build.graph.project import open_project
from build.graph.schedule import GENERATION, Schedule
from build.settings import names


def _supervisor_names() -> frozenset[str]:
    """The supervisor's settings may stand in the same file; only then is its module needed here."""
    from supervisor.settings import GROUPS

    return names(*GROUPS)


PROJECT = open_project(Path(__file__).resolve().parent, os.environ, variables(sys.argv[1:]), _supervisor_names)
SCHEDULE = Schedule(PROJECT)
DOIT_CONFIG = {
    "backend": DATABASE,
    "dep_file": str(PROJECT.state / "doit.json"),
    "default_tasks": [GENERATION],
    "reporter": Quiet,
    "verbosity": 2,
}


def task_artefacts() -> Iterator[dict[str, Any]]:
    """Every artefact of the target, then its generation."""
    yield from SCHEDULE.tasks()
