"""What each command does: parsed arguments and the settings' sources in, the exit code out."""

from __future__ import annotations

from supervisor.commands.endpoint import bench, smoke, validate
from supervisor.commands.files import export, import_recipe
from supervisor.commands.gang import handover, logs, restart, run, status, stop
from supervisor.commands.nodes import doctor, init, plan

__all__ = [
    "bench",
    "doctor",
    "export",
    "handover",
    "import_recipe",
    "init",
    "logs",
    "plan",
    "restart",
    "run",
    "smoke",
    "status",
    "stop",
    "validate",
]
