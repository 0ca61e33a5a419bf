"""The runner that the settings ask for. Docker's library is only paid for where containers are wanted."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from supervisor.configuration import Configuration
from supervisor.gang.launch import HEAD
from supervisor.runners.protocol import Runner

if TYPE_CHECKING:
    from supervisor.runners.docker_spec import Options

LOG_PARTS = 3  # a process's output is kept in at most so many files


def runner_for(one: Configuration, say: Callable[[str], None]) -> Runner:
    """The runner of this node. An unreachable Docker daemon is an error that says what to do."""
    if one.serve.runner == "docker":
        return _docker(one, say)
    from supervisor.runners.process import ProcessRunner

    return ProcessRunner(one.run_dir, HEAD, log_cap_bytes=(one.logs.rank_log_max_mib << 20) // LOG_PARTS)


def _docker(one: Configuration, say: Callable[[str], None]) -> Runner:
    from build.image.daemon import DockerDaemon
    from build.image.docker_api import DEFAULT_SOCKET, connect
    from supervisor.runners.docker import DockerRunner, StoreImages

    api = connect(str(one.serve.docker_socket or DEFAULT_SOCKET), HEAD)
    options = container_options(one)
    assert options.cache is not None
    options.cache.mkdir(parents=True, exist_ok=True)
    images = StoreImages(DockerDaemon(api), one.state_dir / "store", say)
    return DockerRunner(api, images, HEAD, options)


def container_options(one: Configuration) -> Options:
    """What all containers of this node's ranks share."""
    from supervisor.runners.docker_spec import Options

    return Options(user=f"{os.getuid()}:{os.getgid()}", cache=one.state_dir / "cache" / "ranks")
