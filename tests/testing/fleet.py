"""`supervisor run` on the testbed's head, with the other hosts as its workers."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from build.image.docker_api import DockerApi, connect
from tests.testbed.bed import Testbed
from tests.testbed.hosts import Host
from tests.testing.checkout import CHECKOUT
from tests.testing.demo import demo_state, environment
from tests.testing.supervised import Supervised

NAME = "twinfold-fleet"
STORE = "twinfold-store"  # in the ssh user's home
ASK = """
import sys, json
from openai import OpenAI
url, prompts = sys.argv[1], json.loads(sys.argv[2])
client = OpenAI(base_url=url, api_key="none", timeout=60, max_retries=0)
model = client.models.list().data[0].id
for prompt in prompts:
    asked = [{"role": "user", "content": prompt}]
    reply = client.chat.completions.create(model=model, messages=asked, temperature=0, max_tokens=32)
    print(json.dumps(reply.choices[0].message.content))
"""


class SupervisedFleet(Supervised):
    """One supervisor at a time on the head. Its API listens in the head's own network."""

    def __init__(self, testbed: Testbed, state: Path, folder: Path, **settings: object) -> None:
        self.bed = testbed
        workers = testbed.workers
        given: dict[str, object] = {
            "runner": "docker",
            "docker_socket": testbed.head.plan.docker_socket,
            "container_name": NAME,
            "worker": " ".join(host.name for host in workers),
            "worker_store": STORE,
            "worker_docker_socket": " ".join(str(host.plan.docker_socket) for host in workers),
            "idle_probe_s": 3600,
        }
        super().__init__(state, folder, **{**given, **settings})
        self.env = {**self.env, **testbed.head.environment()}

    def argv(self, *args: str) -> list[str]:
        """In the head's name spaces."""
        return self.bed.head.command(super().argv(*args), CHECKOUT)

    def answers(self, *prompts: str) -> list[str]:
        """What the OpenAI client gets on the head."""
        argv = [sys.executable, "-c", ASK, f"http://127.0.0.1:{self.port}/v1", json.dumps(prompts)]
        done = self.bed.head.run(argv, folder=CHECKOUT, env=environment(self.state))
        return [json.loads(line) for line in done.stdout.splitlines()]


@contextlib.contextmanager
def supervised_fleet(testbed: Testbed, folder: Path, **settings: object) -> Iterator[SupervisedFleet]:
    """A fleet's supervisor, not started yet, with nothing of others on the hosts; nothing of it is left on them either."""
    clear(testbed)
    fleet = SupervisedFleet(testbed, demo_state(folder), folder, **settings)
    try:
        yield fleet
    finally:
        fleet.close()
        clear(testbed)


def containers(host: Host) -> list[dict[str, Any]]:
    """Every container of the host's daemon but the ranks' guards."""
    return [one for one in everything(host) if "twinfold.guard" not in one["Labels"]]


def guards(host: Host) -> dict[str, str]:
    """Rank to the id of its guard's container."""
    return {one["Labels"]["twinfold.guard"]: one["Id"] for one in everything(host) if "twinfold.guard" in one["Labels"]}


def everything(host: Host) -> list[dict[str, Any]]:
    """Every container of the host's daemon."""
    api = connect(str(host.plan.docker_socket), host.name)
    try:
        found: list[dict[str, Any]] = api.get("/containers/json", {"all": "1"}).document
        return found
    finally:
        api.close()


def api(host: Host) -> DockerApi:
    """The host's daemon; the caller closes it."""
    return connect(str(host.plan.docker_socket), host.name)


def store(host: Host) -> Path:
    """The worker's store as this machine sees it."""
    return host.plan.home / STORE


def clear(testbed: Testbed) -> None:
    """Remove what a test left on the hosts: containers and stores; images stay."""
    for host in testbed.hosts:
        daemon = api(host)
        for one in everything(host):
            daemon.delete(f"/containers/{one['Id']}", {"force": "1"})
        daemon.close()
        host.run(["sh", "-c", f"chmod -R u+w {STORE} 2>/dev/null; rm -rf {STORE}"])


def doit(
    testbed: Testbed, state: Path, *args: str, checkout: Path = CHECKOUT, **variables: str
) -> subprocess.CompletedProcess[str]:
    """A doit command on the head, with the other hosts as its workers."""
    workers = testbed.workers
    env = {
        **environment(state),
        **testbed.head.environment(),
        "TWINFOLD_WORKER": " ".join(host.name for host in workers),
        "TWINFOLD_WORKER_STORE": STORE,
        "TWINFOLD_WORKER_DOCKER_SOCKET": " ".join(str(host.plan.docker_socket) for host in workers),
        **variables,
    }
    argv = testbed.head.command([sys.executable, "-m", "doit", *args], checkout)
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300, check=False, stdin=subprocess.DEVNULL)


def flip(path: Path) -> None:
    """Change one byte in the middle."""
    mode = path.stat().st_mode
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))
    path.chmod(mode)


def ranks_on(host: Host) -> list[str]:
    """The ranks whose containers a host has, by label."""
    return sorted(one["Labels"].get("twinfold.rank", "?") for one in containers(host))
