"""Labels of the ranks' containers that others than their runner read too."""

from __future__ import annotations

PROJECT = "twinfold.project"
OWNER = "twinfold.owner"  # the id of the state folder; a version without it made one that has none
FOLDER = "twinfold.owner.folder"
