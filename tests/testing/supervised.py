"""`supervisor run` of the built demo, as a process on free ports, for tests that look at it from outside."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from supervisor import control
from tests.testing.checkout import CHECKOUT
from tests.testing.demo import environment
from tests.testing.waiting import PATIENCE_S, free_ports, until


class Supervised:
    """One supervisor at a time over one state folder. ``settings`` become TWINFOLD_* variables, names with TF_ go as they are."""

    def __init__(self, state: Path, folder: Path, **settings: object) -> None:
        self.state, self.folder = state, folder
        self.port, self.metrics_port, self.master_port = free_ports(3)
        ports = {"port": self.port, "metrics_port": self.metrics_port, "master_port": self.master_port}
        given = {"min_avail_gib": 0.25, **ports, **settings}
        self.env = environment(state) | {_variable(name): str(value) for name, value in given.items()}
        self.process: subprocess.Popen[bytes] | None = None
        self.runs = 0

    def argv(self, *args: str) -> list[str]:
        """A command of the supervisor as a program to start."""
        return [sys.executable, "-m", "supervisor", *args]

    @property
    def out(self) -> str:
        return (self.folder / f"out{self.runs}").read_text()

    @property
    def err(self) -> str:
        return (self.folder / f"err{self.runs}").read_text()

    @property
    def running(self) -> subprocess.Popen[bytes]:
        assert self.process is not None
        return self.process

    def start(self, *args: str) -> Supervised:
        """Start `supervisor run`, and wait for nothing."""
        self.runs += 1
        with (self.folder / f"out{self.runs}").open("wb") as out, (self.folder / f"err{self.runs}").open("wb") as err:
            self.process = subprocess.Popen(
                self.argv("run", "--verbose", *args),
                cwd=CHECKOUT,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
        return self

    def wait_ready(self, times: int = 1) -> Supervised:
        """Wait for the n-th READY of this run."""

        def ready() -> bool:
            assert self.running.poll() is None, self.err
            return self.out.count("READY ") >= times

        until("READY", ready)
        return self

    def ended(self) -> int:
        """The exit code, once it has ended."""
        return self.running.wait(PATIENCE_S)

    def signal(self, number: int) -> None:
        self.running.send_signal(number)

    def command(self, *args: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Another command of the supervisor, in the same environment."""
        return subprocess.run(
            self.argv(*args),
            cwd=CHECKOUT,
            env=self.env | variables,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def status(self) -> Mapping[str, Any]:
        """What the control socket says; {} while none listens."""
        answers = control.ask(self.state / "run", {"do": "status"})
        found = list(answers) if answers is not None else []
        status: Mapping[str, Any] = found[-1].get("status", {}) if found else {}
        return status

    def series(self, metric: str) -> dict[str, float]:
        """What Prometheus would read of one metric, by series."""
        connection = http.client.HTTPConnection("127.0.0.1", self.metrics_port, timeout=10)
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        rows = re.findall(rf"^({metric}(?:\{{[^}}]*\}})?) (\S+)$", text, re.MULTILINE)
        return {name: float(value) for name, value in rows}

    def wait_state(self, state: str, launch: int = 1) -> Mapping[str, Any]:
        """The status once the gang is in this state in this launch or a later one."""
        return dict(until(f"state {state}", lambda: (s := self.status()).get("state") == state and s["launch"] >= launch and s))

    def pids(self) -> dict[int, int]:
        """Rank to pid, from the records of the newest launch."""
        records = [json.loads(path.read_text()) for path in (self.state / "run" / "ranks").glob("*.json")]
        newest = max((record["launch_id"] for record in records), default="")
        return {record["rank"]: record["pid"] for record in records if record["launch_id"] == newest}

    def guards(self) -> dict[int, int]:
        """Rank to its guard's pid, from the records of the newest launch."""
        found = sorted((self.state / "run").glob("*/guard*.json"))
        newest = [path for path in found if path.parent == found[-1].parent]
        return {int(path.stem.removeprefix("guard")): json.loads(path.read_text())["pid"] for path in newest}

    def ask(self, prompt: str, *, patience_s: float = PATIENCE_S, **more: object) -> tuple[int, dict[str, Any]]:
        """One chat completion: HTTP status and answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience_s)
        body = {"model": "twinfold-demo", "messages": [{"role": "user", "content": prompt}], "temperature": 0, **more}
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read())
        finally:
            connection.close()

    def ask_in_background(self, prompt: str, **more: object) -> Request:
        """A request under way: returns once the engine says that it runs."""
        request = Request(lambda: self.ask(prompt, **more))
        until("a running request", self._running)
        return request

    def _running(self) -> bool:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
            connection.close()
        except OSError:
            return False
        rows = [
            line.split()
            for line in text.splitlines()
            if line.startswith(("tensorfold:requests_running", "tensorfold_requests_inflight"))
        ]
        return any(float(row[-1]) > 0 for row in rows)

    def logs(self) -> list[str]:
        """Names of the saved logs of launches."""
        folder = self.state / "logs"
        return sorted(path.name for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []

    def close(self) -> None:
        """End whatever this test left: the supervisor, then its ranks."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            time.sleep(0.05)
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(PATIENCE_S)
            finally:
                if self.process.poll() is None:
                    self.process.kill()
                    self.process.wait()
        self.command("stop", "--force")


class Request:
    """A request in a thread of its own: its outcome is an answer or an error, never a hang."""

    def __init__(self, ask: Callable[[], tuple[int, dict[str, Any]]]) -> None:
        self._outcome: tuple[int, dict[str, Any]] | Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(ask,), daemon=True)
        self._thread.start()

    def _run(self, ask: Callable[[], tuple[int, dict[str, Any]]]) -> None:
        try:
            self._outcome = ask()
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._outcome = error

    def outcome(self, patience_s: float = PATIENCE_S) -> tuple[int, dict[str, Any]] | Exception:
        self._thread.join(patience_s)
        assert self._outcome is not None, "the request hangs"
        return self._outcome


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    os.kill(pid, number)


def _variable(name: str) -> str:
    return name if name.startswith(("TF_", "TENSORFOLD_")) else f"TWINFOLD_{name.upper()}"
