"""``doit replicate``: the current bundle's files and image to every worker, by hand."""

from __future__ import annotations

from build.commands import workers
from build.commands.edge import Asked, ProjectCommand
from build.graph.project import Project


class Replicate(ProjectCommand):
    """Bring the workers what their ranks need."""

    name = "replicate"
    doc_purpose = "bring the current bundle's files to the workers, each its own ranks' part; exit 3 where one cannot be reached"

    def work(self, project: Project, _asked: Asked) -> int:
        """Replicate."""
        workers.fill(project)
        return 0
