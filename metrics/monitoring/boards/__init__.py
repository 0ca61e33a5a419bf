"""The dashboards, one module each. Pure."""

from __future__ import annotations

from metrics.monitoring.boards.fabric import FABRIC
from metrics.monitoring.boards.history import HISTORY
from metrics.monitoring.boards.memory import MEMORY
from metrics.monitoring.boards.pair import PAIR

BOARDS = (PAIR, MEMORY, FABRIC, HISTORY)
