"""The main job from a fresh clone: `make run` builds, serves and stops as the README says, and is quick when warm.

Every command in the README's `sh` blocks is run here as it stands there, with this test's ports put in; blocks of `shell`
want a second machine. Takes minutes: it makes a .venv and compiles the engine. pip's own cache is used where there is one.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testing.checkout import CHECKOUT
from tests.testing.waiting import free_ports

COLD_LIMIT_S = 1500
WARM_GOAL_S = 5.0
PORTS = {"TWINFOLD_PORT": 8888, "TWINFOLD_METRICS_PORT": 9888, "TWINFOLD_MASTER_PORT": 29620}
# commands of the README that this test cannot run as they stand, and what it runs in their place
INSTEAD = {"make test": "make test ARGS='-q tests/unit/test_catalog.py'"}

pytestmark = pytest.mark.timeout(3600)


class Clone:
    """A clone of HEAD with a state folder and ports of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "a clone"
        self.ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        settings = {name: str(port) for name, port in self.ports.items()}
        settings |= {"TWINFOLD_STATE_DIR": str(folder / "state"), "TWINFOLD_MIN_AVAIL_GIB": "0.25"}
        self.env = {
            k: v for k, v in os.environ.items() if not k.startswith(("TWINFOLD_", "VIRTUAL_ENV", "PYTHON", "MAKE"))
        } | settings
        subprocess.run(["git", "clone", "-q", str(CHECKOUT), str(self.root)], check=True, timeout=120)

    def here(self, text: str) -> str:
        """The README's text with this clone's ports."""
        for name, usual in PORTS.items():
            text = text.replace(f":{usual}", f":{self.ports[name]}")
        return text

    def readme(self, language: str) -> list[str]:
        return re.findall(rf"^```{language}\n(.*?)^```", (self.root / "README.md").read_text(), re.DOTALL | re.MULTILINE)

    def sh(self, command: str, limit_s: float = 120) -> str:
        done = subprocess.run(
            ["bash", "-c", self.here(command)],
            check=False,
            cwd=self.root,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=limit_s,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout


class Run:
    """`make run`, with what it says in files."""

    def __init__(self, clone: Clone, number: int) -> None:
        self.out, self.err = clone.folder / f"run{number}.out", clone.folder / f"run{number}.err"
        self.begun_s = time.monotonic()
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                ["make", "run"],
                cwd=clone.root,
                env=clone.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self.ready = clone.here("READY twinfold-demo http://127.0.0.1:8888/v1")

    def said(self) -> str:
        return self.out.read_text() + self.err.read_text()

    def wait_ready(self, limit_s: float) -> float:
        """Seconds until the last line of stdout was READY."""
        while self.ready not in self.out.read_text().splitlines()[-1:]:
            assert self.process.poll() is None, self.said()
            assert time.monotonic() - self.begun_s < limit_s, self.said()
            time.sleep(0.02)
        return time.monotonic() - self.begun_s

    def interrupt(self) -> None:
        """Ctrl-C, as a terminal sends it: to every process of the job."""
        os.killpg(self.process.pid, signal.SIGINT)

    def wait(self) -> int:
        return self.process.wait(120)

    def end(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
            self.process.wait(120)


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


@pytest.fixture
def runs(clone: Clone) -> Iterator[list[Run]]:
    runs: list[Run] = []
    yield runs
    for run in runs:
        run.end()


def commands(clone: Clone) -> list[str]:
    """The README's shell commands in order, without comments."""
    joined = "".join(clone.readme("sh")).replace("\\\n", " ")
    return [line for line in (re.sub(r"\s+#.*$", "", line).strip() for line in joined.splitlines()) if line]


def test_a_fresh_clone_serves_as_the_readme_says(clone: Clone, runs: list[Run]) -> None:
    todo = commands(clone)
    assert todo[0] == "make run"
    runs.append(Run(clone, 1))
    cold_s = runs[0].wait_ready(COLD_LIMIT_S)

    stop = todo.index(".venv/bin/supervisor stop")
    for command in [*todo[1:stop], *todo[stop + 1 :]]:
        said = clone.sh(INSTEAD.get(command, command))
        if "chat/completions" in command:
            assert "42" in said
        elif "/metrics" in command:
            assert re.search(r"^twinfold_generated_tokens_total\{.*\} [1-9]", said, re.MULTILINE), said
        elif command.endswith("restart"):
            assert_serves(clone)
    (snippet,) = clone.readme("python")
    (clone.folder / "snippet.py").write_text(clone.here(snippet))
    assert "42" in clone.sh(f"'{clone.root}/.venv/bin/python' '{clone.folder}/snippet.py'")

    clone.sh(todo[stop])
    assert runs[0].wait() == 0, runs[0].said()

    runs.append(Run(clone, 2))
    warm_s = runs[1].wait_ready(10 * WARM_GOAL_S)
    assert_serves(clone)
    runs[1].interrupt()
    runs[1].wait()
    assert "Traceback" not in runs[0].said() + runs[1].said()
    assert_nothing_left(clone)
    print(f"READY after {cold_s:.1f} s from a fresh clone, and after {warm_s:.2f} s warm (goal {WARM_GOAL_S:g} s)")


def assert_serves(clone: Clone) -> None:
    deadline = time.monotonic() + 120
    question = next(command for command in commands(clone) if "chat/completions" in command)
    while subprocess.run(
        ["bash", "-c", clone.here("curl -sf http://127.0.0.1:9888/readyz")], check=False, capture_output=True
    ).returncode:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "42" in clone.sh(question)


def assert_nothing_left(clone: Clone) -> None:
    """No process of this clone's state folder, and no port of its own in use."""
    for port in clone.ports.values():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    mine = str(clone.folder / "state").encode()
    left = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            argv = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if mine in argv:
            left.append((process.name, argv))
    assert left == []
