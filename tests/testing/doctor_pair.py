"""The healthy pair with one change, as `supervisor doctor --from` and a run's gate see it."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import patch

from build.settings import Sources
from supervisor import cli
from supervisor.configuration import Configuration, configure
from supervisor.doctor import preflight
from supervisor.doctor.inquiry import INDEXES
from tests.testing.captures import STORE, built, copied, troubled
from tests.testing.doctor_changes import Change


class Pair:
    """The changed pair's folder, and the settings of a head that has it. No setting of whoever runs the tests counts."""

    def __init__(self, change: Change, tmp_path: Path) -> None:
        self.state, self.folder = tmp_path / "state", copied(tmp_path / "out", *change.edits)
        if change.needs is not None:
            built(self.state, change.needs)
        if change.trouble[0]:
            troubled(self.folder, *change.trouble)
        if change.before:
            preflight.remember(self.state / "run" / INDEXES, change.before)
        self.settings = {
            "target": "dsv41",
            "state_dir": str(self.state),
            "runner": "docker",
            "worker": "ops@spark-b",
            "fabric_peer": "192.0.2.2",
            "worker_store": STORE,
            "nfs_path": STORE,
            "context": "16384",
            "gate_wait_s": "0.1",
            **change.settings,
        }

    def doctor(self, *args: str) -> int:
        """The command line's exit code, over the folder."""
        flags = [word for key, value in self.settings.items() for word in ("--set", f"{key}={value}")]
        kept = {k: v for k, v in os.environ.items() if not k.startswith("TWINFOLD_") and k != "CONTAINER_NAME"}
        with patch.dict(os.environ, kept, clear=True):
            return cli.main(["doctor", "--from", str(self.folder), *flags, *args])

    @property
    def configuration(self) -> Configuration:
        """The settings of its head."""
        return configure(Sources(None, {}, dict(self.settings)))
