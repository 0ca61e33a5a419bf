"""A built demo target for tests: made once into a shared cache, then lent to each test as a state folder of its own."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from build.graph.project import Project
from build.settings import Places
from build.store import generations
from tests.testing.checkout import CHECKOUT

BUILD_LIMIT_S = 900
QUESTION = "What is 6 times 7? Answer with the number alone."


def cache_root() -> Path:
    """Where what is dear to make is kept between runs: ``TWINFOLD_TEST_CACHE``, else a folder of this user's."""
    given = os.environ.get("TWINFOLD_TEST_CACHE")
    return Path(given) if given else Path(tempfile.gettempdir()) / f"twinfold-test-cache-{os.getuid()}"


def doit(*args: str, state: Path, checkout: Path = CHECKOUT, limit_s: float = BUILD_LIMIT_S) -> subprocess.CompletedProcess[str]:
    """Run ``doit`` as a user would, with nothing of this environment's settings."""
    return subprocess.run(
        [sys.executable, "-m", "doit", *args],
        cwd=checkout,
        env=environment(state),
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )


def environment(state: Path) -> dict[str, str]:
    """This environment without settings of twinfold, and with that state folder."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TWINFOLD_")}
    return {**kept, "TWINFOLD_STATE_DIR": str(state)}


IMAGES = tuple(f"{kind}-image-{machine}" for kind in ("engine", "node") for machine in ("amd64", "arm64"))


@cache
def snapshot() -> Path:
    """A copy of what a build reads, named by its content: an edit beside a running test changes nothing under its build."""
    files = {name: (CHECKOUT / name).read_bytes() for name in _build_inputs()}
    digest = hashlib.sha256()
    for name, data in files.items():
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    place = cache_root() / "checkouts" / digest.hexdigest()[:16]
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=place.parent))
        for name, data in files.items():
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            (draft / name).write_bytes(data)
        with contextlib.suppress(OSError):  # another run made the same one first
            draft.rename(place)
        shutil.rmtree(draft, ignore_errors=True)
    return place


def _build_inputs() -> list[str]:
    """Names of the files that building needs, sorted; doit reads the supervisor's settings too."""
    folders = (CHECKOUT / name for name in ("build", "lockfiles", "metrics", "supervisor"))
    found = [path for folder in folders for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return sorted(str(path.relative_to(CHECKOUT)) for path in (CHECKOUT / "dodo.py", CHECKOUT / "pyproject.toml", *found))


def built_store(world: int = 2, *more: str) -> tuple[Path, str]:
    """The shared store with the demo's bundle of these sources in it, and the bundle's entry. A build takes minutes once.

    ``more``: further artefacts, such as the images for other platforms.
    """
    state, checkout = cache_root() / "state", snapshot()
    done = doit("-n", "2", f"world={world}", *(("generation", *more) if more else ()), state=state, checkout=checkout)
    assert done.returncode == 0, done.stdout + done.stderr
    project = Project(checkout, Places(world=world), state)
    entry = project.resolve("bundle").entry
    assert entry is not None
    return state / "store", entry


def demo_state(tmp_path: Path, world: int = 2, *, own_store: bool = False) -> Path:
    """A state folder with the demo built and one generation current.

    Its store is the shared one, by a link, for tests that only read it; with ``own_store`` a copy that may be damaged.
    """
    store, entry = built_store(world)
    state = tmp_path / "state"
    state.mkdir()
    if own_store:
        shutil.copytree(store, state / "store", symlinks=True, ignore=shutil.ignore_patterns("tmp"))
    else:
        (state / "store").symlink_to(store)
    generations.make(state, "demo", entry)
    return state
