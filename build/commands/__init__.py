"""twinfold's own doit commands: thin classes over the modules of ``build``."""

from __future__ import annotations

import gc
import sys
from pathlib import Path


def is_program() -> bool:
    """True where this process is `doit` itself, as its script or as ``python -m doit``, and nothing else lives in it."""
    file = Path(str(getattr(sys.modules.get("__main__"), "__file__", "")))
    return "doit" in {file.name, file.parent.name}


def hasten() -> None:
    """Take from doit's start what is of no use here, from when it comes to the first command of ours.

    It looks through every installed distribution for plugins, once for each kind; ours stand in pyproject.toml. And the collector
    only looks for what is not there while modules are loaded; a command that goes on for long switches it on again.
    """
    from doit import plugin

    plugin.entry_points_impl = lambda: lambda group: ()  # noqa: ARG005 # called by that name
    gc.disable()


if is_program():
    hasten()
