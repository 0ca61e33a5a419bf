"""Nodes of the testbed as a program on its head reaches them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath

import pytest

from build.nodes.node import LocalNode, Node, SshNode
from build.nodes.ssh_link import Destination
from tests.testbed.bed import Testbed

LOCAL = "local"


def ssh_node(testbed: Testbed, target: str = "", *options: str) -> SshNode:
    """The worker, by its own name or by another that the head's ssh knows, with options of that ssh."""
    worker = testbed.worker
    return SshNode(
        Destination(worker.name, target or worker.name, (*testbed.head.prefix, "ssh", *options)),
        PurePosixPath(worker.plan.folder / "store"),
        docker_socket=str(worker.plan.docker_socket),
    )


def kinds(*accounts: str) -> list[object]:
    """Parameters of a fixture that gives :func:`node_of`: this host, and the testbed's worker under each account."""
    return [LOCAL, *(pytest.param(account, marks=pytest.mark.testbed) for account in accounts)]


@contextmanager
def node_of(request: pytest.FixtureRequest, store: Path) -> Iterator[Node]:
    """The node that the fixture's parameter names; ``store`` is this host's."""
    if request.param == LOCAL:
        yield LocalNode("here", store)
        return
    testbed = request.getfixturevalue("session_testbed")
    with closing(ssh_node(testbed, f"{request.param}@{testbed.worker.name}")) as made:
        yield made
