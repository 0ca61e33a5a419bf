"""Nodes of the testbed as a program on its head reaches them."""

from __future__ import annotations

from pathlib import PurePosixPath

from build.nodes.node import SshNode
from build.nodes.ssh_link import Destination
from tests.testbed.bed import Testbed


def ssh_node(testbed: Testbed, target: str = "spark-b", *options: str) -> SshNode:
    """The worker under a name that the head's ssh knows, with options of that ssh."""
    worker = testbed.on("spark-b")
    return SshNode(
        Destination("spark-b", target, (*testbed.head.prefix, "ssh", *options)),
        PurePosixPath(worker.plan.folder / "store"),
        docker_socket=str(worker.plan.docker_socket),
    )
