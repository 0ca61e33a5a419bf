"""The program that reads hardware, on this host and on another over ssh, whatever its login shell is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from build.nodes.node import Node
from supervisor.gang.board import Board
from supervisor.hardware.watch import HardwareWatch
from supervisor.machine import Policy, State
from tests.testing.folders import let_others_in
from tests.testing.hardware import GIB, disk_of, proc_tree, sys_tree
from tests.testing.nodes import kinds, node_of


@pytest.fixture(params=kinds("root", "fishy"))
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Node]:
    with node_of(request, tmp_path) as found:
        yield found


def test_every_node_is_read_in_the_same_way(node: Node, tmp_path: Path) -> None:
    let_others_in(tmp_path)
    proc, sys_ = proc_tree(tmp_path / "proc", GIB, disk_of(tmp_path)), sys_tree(tmp_path / "sys")
    board = Board(State(Policy(world_size=2)), 1)
    roots = (PurePosixPath(proc), PurePosixPath(sys_))
    watch = HardwareWatch(node, board, roots=roots, paths=lambda: (str(tmp_path), str(tmp_path)), period_s=60)
    watch.start()
    watch.stop()
    watch.join(60)
    (read,) = board.view().hardware
    assert (read.node, read.up) == (node.name, True)
    assert read.hardware is not None
    assert [port.device for port in read.hardware.ports] == ["enp1s0f0np0", "enp1s0f1np1", "rocep1s0f1"]
    assert read.hardware.disk_free_bytes
    assert read.hardware.engram is not None
    assert dict(read.hardware.stalls).keys() == {"cpu", "io"}
