"""The checkpoint's target in small as a user has it: a checkout, a state folder, a hub's cache, and the hub that fills it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.testing import checkpoint
from tests.testing.checkpoint import TARGET
from tests.testing.demo import built_store
from tests.testing.hub import TOKEN, TestHub

BUILD_LIMIT_S = 1200


@dataclass(frozen=True)
class Site:
    """A checkout, a state folder, a hub's cache, and the hub that fills it."""

    folder: Path
    hub: TestHub

    @property
    def checkout(self) -> Path:
        return self.folder / "checkout"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    def environment(self, *, ablit: bool = False, offline: bool = False) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("TWINFOLD_", "HF_", "CONTAINER_NAME"))}
        return kept | {
            "TWINFOLD_STATE_DIR": str(self.state),
            "HF_CACHE": str(self.cache),
            "HF_ENDPOINT": "http://127.0.0.1:9" if offline else self.hub.endpoint,
            "HF_TOKEN": TOKEN,
            "ABLIT": str(int(ablit)),
        }

    def run(self, *argv: str, ablit: bool = False, offline: bool = False) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", *argv],
            cwd=self.checkout, env=self.environment(ablit=ablit, offline=offline),
            capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=False,
        )  # fmt: skip

    def build(self, *args: str, ablit: bool = False, offline: bool = False) -> str:
        done = self.run("doit", *args, f"target={TARGET}", ablit=ablit, offline=offline)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@contextlib.contextmanager
def small_site(folder: Path) -> Iterator[Site]:
    """A site under a folder; nothing is built yet but the demo's programs, whose keys are the same."""
    hubs = checkpoint.repos(folder / "contents")
    checkpoint.checkout(folder / "checkout", hubs)
    lend_programs(folder / "state" / "store")
    with TestHub(checkpoint.by_repo(hubs)) as hub:
        yield Site(folder, hub)


def lend_programs(store: Path) -> None:
    """The demo's binaries and images, whose keys are the same here: compiling them again is another test's work."""
    lender, _ = built_store()
    store.mkdir(parents=True)
    for path in lender.glob("*.json"):
        entry = path.name.removesuffix(".json")
        if re.search(r"-(tensorfold|tf-dsv41|twinfold-node|engine-image|node-image|toolchain)", entry):
            shutil.copytree(lender / entry, store / entry, symlinks=True)
            shutil.copy2(path, store / path.name)
