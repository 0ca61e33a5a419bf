"""Four hosts, four ranks: nothing counts on two."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbed import bed
from tests.testbed.bed import Testbed
from tests.testbed.fixtures import LOCK_WAIT_S
from tests.testbed.layout import Layout
from tests.testing.demo import QUESTION, demo_state
from tests.testing.fleet import SupervisedFleet, containers

pytestmark = [pytest.mark.testbed, pytest.mark.timeout(900)]


@pytest.fixture
def four() -> Iterator[Testbed]:
    """Beside the two hosts of the other tests."""
    if reason := bed.why_not():
        pytest.skip(reason)
    usual = Layout.here(os.environ)
    layout = Layout(usual.folder.with_name(usual.folder.name + "-four"), 4, usual.prefix[:4] + "4")
    with bed.locked(layout, LOCK_WAIT_S):
        try:
            yield bed.up(layout, keep=False)
        finally:
            bed.down(layout)


def test_each_of_four_hosts_has_a_rank(four: Testbed, tmp_path: Path) -> None:
    gang = SupervisedFleet(four, demo_state(tmp_path, 4), tmp_path, world=4)
    try:
        gang.start().wait_ready()
        assert [[one["Labels"]["twinfold.rank"] for one in containers(host)] for host in four.hosts] == [
            ["0"],
            ["1"],
            ["2"],
            ["3"],
        ]
        assert "42" in gang.answers(QUESTION)[0]
        assert gang.command("stop").returncode == 0
        assert [containers(host) for host in four.hosts] == [[], [], [], []]
    finally:
        gang.close()
