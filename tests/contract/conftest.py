"""A real Docker daemon for the contracts with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from build.image.daemon import DockerDaemon
from build.image.docker_api import DockerApi
from tests.testing import dockerd


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerApi]:
    with dockerd.docker_api(tmp_path_factory.mktemp("d")) as found:
        yield found


@pytest.fixture(scope="module")
def docker(api: DockerApi) -> DockerDaemon:
    return DockerDaemon(api)
