"""One container run to its end on this node's daemon: an image by digest, no network, this user's ids, its output in a log."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from build.errors import BuildFailed
from build.image import docker_api
from build.image.docker_api import DockerApi

PULL_LIMIT_S = 6 * 3600.0
POLL_S = 0.2
LABEL = "twinfold.build"
LAST_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Run:
    """What runs: ``image`` is ``host/repository@sha256:…``; ``mounts`` are (host path, container path, read-only)."""

    image: str
    argv: tuple[str, ...]
    cwd: str
    env: tuple[tuple[str, str], ...]
    mounts: tuple[tuple[Path, str, bool], ...]
    log: Path


def run_once(socket: str, run: Run, what: str) -> None:
    """Pull where the daemon lacks the image, run, keep the log, remove. ``BuildFailed`` where it ends with anything but 0."""
    api = docker_api.connect(socket)
    try:
        _have(api, run.image, what)
        with _container(api, run, what) as name:
            _checked(api.post(f"/containers/{name}/start"), 204, what)
            code = _end(api, name)
            run.log.parent.mkdir(parents=True, exist_ok=True)
            run.log.write_text(api.get(f"/containers/{name}/logs", {"stdout": "1", "stderr": "1"}).text, encoding="utf-8")
    finally:
        api.close()
    if code:
        said = run.log.read_bytes()[-LAST_BYTES:].decode(errors="replace").splitlines()
        errors = [line.strip() for line in said if "error" in line.lower()]
        last = (errors or [line.strip() for line in said if line.strip()][-1:] or ["it said nothing"])[0]
        raise BuildFailed(f"{what}: {Path(run.argv[0]).name} ended with {code} in {run.image}: {last[:300]} (log: {run.log})")


def _have(api: DockerApi, image: str, what: str) -> None:
    if api.get(f"/images/{image}/json").status == 200:
        return
    name, _, digest = image.partition("@")
    answer = api.post("/images/create", {"fromImage": name, "tag": digest}, timeout_s=PULL_LIMIT_S)
    if api.get(f"/images/{image}/json").status != 200:
        raise BuildFailed(f"{what}: {image} cannot be pulled: {_pull_error(answer.text) or answer.message}")


def _pull_error(text: str) -> str:
    """A pull answers 200 and says in a line of its stream that it failed."""
    for line in reversed(text.splitlines()):
        try:
            told = json.loads(line)
        except ValueError:
            continue
        if isinstance(told, dict) and "error" in told:
            return str(told["error"])
    return ""


@contextmanager
def _container(api: DockerApi, run: Run, what: str) -> Iterator[str]:
    """Made, and gone again whatever happens."""
    body = {
        "Image": run.image,
        "Entrypoint": [run.argv[0]],
        "Cmd": list(run.argv[1:]),
        "Tty": True,  # without it the log comes in frames
        "WorkingDir": run.cwd,
        "Env": [f"{k}={v}" for k, v in run.env],
        "User": f"{os.getuid()}:{os.getgid()}",
        "Labels": {LABEL: what},
        "HostConfig": {
            "NetworkMode": "none",
            "Binds": [f"{host}:{inside}:{'ro' if fixed else 'rw'}" for host, inside, fixed in run.mounts],
            "LogConfig": {"Type": "json-file", "Config": {}},
        },
    }
    made = _checked(api.post("/containers/create", body=body), 201, what)
    try:
        yield str(made["Id"])
    finally:
        api.delete(f"/containers/{made['Id']}", {"force": "1", "v": "1"})


def _end(api: DockerApi, name: str) -> int:
    """The exit code, by asking now and then: a wait without end would block where the daemon goes."""
    while True:
        state = api.get(f"/containers/{name}/json").document["State"]
        if state["Status"] in {"exited", "dead"}:
            return int(state["ExitCode"])
        time.sleep(POLL_S)


def _checked(answer: docker_api.Answer, wanted: int, what: str) -> dict[str, object]:
    if answer.status != wanted:
        raise BuildFailed(f"{what}: Docker refuses the build's container: {answer.message}")
    return dict(answer.document) if answer.text else {}
