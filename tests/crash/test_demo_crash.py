"""kill -9 at each named point of each artefact's making, in the demo's own graph; then a build: as if nothing had happened."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from build.graph import graph
from build.graph.project import Project
from build.settings import Places
from build.store.store import Store
from tests.testing import crashpoints
from tests.testing.checkout import CHECKOUT
from tests.testing.demo import IMAGES, built_store, doit

pytestmark = pytest.mark.timeout(1800)
LIMIT_S = 900


@pytest.fixture(scope="module")
def given() -> Path:
    """The undisturbed store."""
    return built_store(2, *IMAGES)[0]


@pytest.mark.parametrize("point", crashpoints.POINTS)
def test_a_build_killed_at_a_point_of_any_artefact_is_completed_by_the_next(tmp_path: Path, given: Path, point: str) -> None:
    state = tmp_path / "state"
    shutil.copytree(given, state / "store", symlinks=True, ignore=shutil.ignore_patterns("tmp"))
    for file in given.parent.glob("fingerprints.sqlite"):
        shutil.copy(file, state)
    project = Project(CHECKOUT, Places(), state)
    names = [a.name for a in graph.ordered(project.graph.values()) if project.ready(a.name)]
    assert {"bundle", "rank0of2", *IMAGES} <= set(names)
    done = subprocess.run(
        [sys.executable, str(CHECKOUT / "tests" / "testing" / "crashpoints.py"), state, given, point, *names],
        env={"PYTHONPATH": str(CHECKOUT), "PATH": "/usr/local/bin:/usr/bin:/bin"},
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["name"] for one in told] == names
    one, two = Store(given), Store(state / "store")
    for run in told:
        assert run["signal"] in {signal.SIGKILL, signal.SIGXFSZ}, (run, done.stderr)
        assert not run["after"]["record"], run
        assert run["after"]["path"] == (point == "before the JSON"), run
        assert run["after"]["tmp"] > 0, run
        assert run["again"] == 0, (run, done.stderr)
        assert two.need(run["entry"]).files == one.need(run["entry"]).files
    assert list((state / "store" / "tmp").iterdir()) == []
    built = doit(state=state)
    assert (built.returncode, "nothing to do" in built.stdout) == (0, True), built.stdout + built.stderr
    assert doit("verify", state=state).returncode == 0
