"""The same bundle from processes and from containers: the same tokens, and the same rules of the gang."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from build.image.daemon import DockerDaemon
from build.image.docker_api import DockerApi, connect
from supervisor.gang.ports import taken
from supervisor.runners.docker import StoreImages
from tests.testing import dockerd as daemons
from tests.testing.busybox import busybox_image
from tests.testing.demo import QUESTION, demo_state
from tests.testing.supervised import Supervised
from tests.testing.waiting import PATIENCE_S, until

pytestmark = pytest.mark.timeout(1500)
NAME = "twinfold-e2e"
PROMPTS = (QUESTION, "Tell me of tensor parallelism.")


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[daemons.Dockerd]:
    with daemons.dockerd(tmp_path_factory.mktemp("d")) as running:
        yield running


@pytest.fixture
def api(docker: daemons.Dockerd) -> Iterator[DockerApi]:
    found = connect(docker.socket)
    yield found
    found.close()


def _in(docker: daemons.Dockerd) -> dict[str, object]:
    """Settings for containers of this daemon. The name is said: CONTAINER_NAME counts, and some environments have one."""
    return {"runner": "docker", "docker_socket": docker.socket, "container_name": NAME}


def _answers(gang: Supervised) -> list[tuple[str, str]]:
    """Token hash and text of each greedy answer."""
    replies = [gang.ask(prompt, max_tokens=48) for prompt in PROMPTS]
    assert [status for status, _ in replies] == [200, 200]
    return [(reply["tensorfold"]["token_sha"], reply["choices"][0]["message"]["content"]) for _, reply in replies]


def _served(state: Path, folder: Path, **settings: object) -> list[tuple[str, str]]:
    folder.mkdir()
    gang = Supervised(state, folder, idle_probe_s=3600, **settings)
    try:
        gang.start().wait_ready()
        return _answers(gang)
    finally:
        gang.close()


def _ours(api: DockerApi) -> list[dict[str, Any]]:
    filters = json.dumps({"label": ["twinfold.project"]})
    found: list[dict[str, Any]] = api.get("/containers/json", {"all": "1", "filters": filters}).document
    return found


def _guards(api: DockerApi) -> dict[str, str]:
    """Rank to the id of its guard's container."""
    found = api.get("/containers/json", {"all": "1", "filters": json.dumps({"label": ["twinfold.guard"]})}).document
    return {one["Labels"]["twinfold.guard"]: one["Id"] for one in found}


@pytest.mark.parametrize("world", [1, 2, 4])
def test_processes_and_containers_give_the_same_tokens(
    world: int, docker: daemons.Dockerd, api: DockerApi, tmp_path: Path
) -> None:
    state = demo_state(tmp_path, world)
    settings = {"world": world}
    by_processes = _served(state, tmp_path / "p", **settings)
    by_containers = _served(state, tmp_path / "c", **_in(docker), **settings)
    assert by_containers == by_processes
    assert "42" in by_processes[0][1]
    assert _ours(api) == []


@pytest.fixture
def gang(docker: daemons.Dockerd, tmp_path: Path) -> Iterator[Supervised]:
    found = Supervised(demo_state(tmp_path), tmp_path, idle_probe_s=3600, **_in(docker))
    yield found
    found.close()


def test_a_container_killed_from_outside_takes_the_other_down_and_both_come_back(gang: Supervised, api: DockerApi) -> None:
    gang.start().wait_ready()
    before = {one["Id"] for one in _ours(api)}
    names = sorted(name for one in _ours(api) for name in one["Names"])
    assert names == [f"/{NAME}-rank0", f"/{NAME}-rank1"]
    victim = next(one["Id"] for one in _ours(api) if one["Labels"]["twinfold.rank"] == "1")
    assert api.post(f"/containers/{victim}/kill").status == 204
    gang.wait_ready(times=2)
    after = {one["Id"] for one in _ours(api)}
    assert before.isdisjoint(after)
    assert len(after) == 2
    logs = [name for name in gang.logs() if name.endswith(".log.gz")]
    assert len(logs) == 2, "the ended launch's logs are saved before its containers go"


def test_stop_removes_the_containers_and_saves_their_logs(gang: Supervised, api: DockerApi) -> None:
    gang.start().wait_ready()
    assert gang.command("stop").returncode == 0
    assert gang.ended() == 0
    assert _ours(api) == []
    assert _guards(api) == {}
    assert len([name for name in gang.logs() if name.endswith(".log.gz")]) == 2


def test_containers_outlive_a_killed_supervisor_and_the_next_one_adopts_them(gang: Supervised, api: DockerApi) -> None:
    gang.start().wait_ready()
    answer = _answers(gang)
    before, guards = {one["Id"] for one in _ours(api)}, _guards(api)
    assert guards.keys() == {"0", "1"}
    gang.running.kill()
    gang.running.wait(PATIENCE_S)
    gang.start().wait_ready()
    assert {one["Id"] for one in _ours(api)} == before
    assert _guards(api) == guards
    assert _answers(gang) == answer
    status = gang.wait_state("serving")
    assert status["runner"] == "docker"


def test_a_strangers_container_of_our_name_is_named_and_nothing_is_started(gang: Supervised, api: DockerApi) -> None:
    gang.start().wait_ready()
    image = _ours(api)[0]["ImageID"]
    assert gang.command("stop").returncode == 0
    gang.ended()
    made = api.post("/containers/create", {"name": f"{NAME}-rank1"}, {"Image": image, "Cmd": ["/none"]}).document["Id"]
    try:
        gang.start()
        assert gang.ended() == 4
        assert f"container name {NAME}-rank1 on head belongs to a container that is not ours" in gang.err
        assert _ours(api) == []
        assert api.get(f"/containers/{made}/json").status == 200
    finally:
        api.delete(f"/containers/{made}")


def test_a_port_taken_by_a_strangers_container_is_refused_with_its_id(gang: Supervised, api: DockerApi, tmp_path: Path) -> None:
    image = busybox_image(tmp_path / "other-store")
    image_id = StoreImages(DockerDaemon(api), tmp_path / "other-store")(image)
    command = ["/bin/busybox", "httpd", "-f", "-p", f"127.0.0.1:{gang.port}", "-h", "/etc"]
    body = {"Image": image_id, "Cmd": command, "HostConfig": {"NetworkMode": "host"}}
    made = api.post("/containers/create", {}, body).document["Id"]
    try:
        assert api.post(f"/containers/{made}/start").status == 204
        until("the port's owner", lambda: taken("127.0.0.1", gang.port))
        gang.start()
        assert gang.ended() == 3
        assert f"port {gang.port} is taken by pid " in gang.err
        assert f"in container {made[:12]}" in gang.err
    finally:
        api.delete(f"/containers/{made}", {"force": "1"})


def test_a_missing_daemon_is_one_clear_line(tmp_path: Path) -> None:
    gang = Supervised(demo_state(tmp_path), tmp_path, runner="docker", docker_socket=tmp_path / "none.sock")
    gang.start()
    assert gang.ended() == 3
    last = gang.err.strip().splitlines()[-1]
    assert last.startswith("error: Docker is not running on head: there is no socket")
    assert until("one line", lambda: "Traceback" not in gang.err)
