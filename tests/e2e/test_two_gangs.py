"""Two gangs with state folders of their own on one Docker daemon: neither takes the other's ranks for its leftovers."""

from __future__ import annotations

import contextlib
import json
import platform
from collections.abc import Iterator
from pathlib import Path

import pytest

from build.image.docker_api import DockerApi, connect
from tests.testing import dockerd
from tests.testing.demo import QUESTION, demo_state
from tests.testing.supervised import Supervised

pytestmark = pytest.mark.timeout(1500)


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dockerd.Dockerd]:
    with dockerd.dockerd(tmp_path_factory.mktemp("d")) as running:
        yield running


@contextlib.contextmanager
def gang(docker: dockerd.Dockerd, folder: Path, name: str) -> Iterator[Supervised]:
    folder.mkdir()
    found = Supervised(
        demo_state(folder), folder, idle_probe_s=3600, runner="docker", docker_socket=docker.socket, container_name=name
    )
    try:
        yield found
    finally:
        found.close()


def _ranks(api: DockerApi, name: str) -> dict[str, str]:
    """State of each of a gang's containers, by id."""
    filters = json.dumps({"label": ["twinfold.project"], "name": [f"^/{name}"]})
    return {one["Id"]: one["State"] for one in api.get("/containers/json", {"all": "1", "filters": filters}).document}


def test_gangs_of_two_state_folders_leave_each_other_alone(docker: dockerd.Dockerd, tmp_path: Path) -> None:
    with (
        contextlib.closing(connect(docker.socket)) as api,
        gang(docker, tmp_path / "a", "first") as first,
        gang(docker, tmp_path / "b", "second") as second,
    ):
        first.start().wait_ready()
        before = _ranks(api, "first")
        assert list(before.values()) == ["running"] * 2
        second.start().wait_ready()
        assert f":{first.state}: rank 0 of launch" in second.err
        assert len(_ranks(api, "second")) == 2
        assert _ranks(api, "first") == before

        second.running.kill()
        second.running.wait()
        stopped = second.command("stop")
        assert stopped.returncode == 0, stopped.stderr
        assert f"another gang runs beside this one, of {_host(first)}" in stopped.stderr
        assert _ranks(api, "second") == {}
        assert _ranks(api, "first") == before
        assert "42" in first.ask(QUESTION)[1]["choices"][0]["message"]["content"]

        second.env["TWINFOLD_PORT"] = str(first.port)
        assert second.start().ended() == 3
        assert f"port {first.port} is taken by pid" in second.err
        assert f"of launch {first.status()['launch_id']}" in second.err
        assert _ranks(api, "first") == before


def _host(one: Supervised) -> str:
    return f"{platform.node()}:{one.state}"
