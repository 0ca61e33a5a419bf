"""Gangs and hosts that several files of these tests ask for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.testbed.bed import Testbed
from tests.testing.demo import demo_state
from tests.testing.fleet import SupervisedFleet, clear, supervised_fleet
from tests.testing.supervised import Supervised


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    """A gang of this host that serves, for all tests of a file that leave it serving."""
    folder = tmp_path_factory.mktemp("gang")
    with closing(Supervised(demo_state(folder), folder)) as gang:
        yield gang.start().wait_ready()


@pytest.fixture
def bed(testbed: Testbed) -> Iterator[Testbed]:
    """The testbed with nothing of ours on it, before and after."""
    clear(testbed)
    yield testbed
    clear(testbed)


@pytest.fixture
def fleet(testbed: Testbed, tmp_path: Path) -> Iterator[SupervisedFleet]:
    """A gang over the testbed's hosts, not started yet."""
    with supervised_fleet(testbed, tmp_path) as found:
        yield found
