"""The fault matrix, one trial each of the kinds that are quick: one gang over two hosts under load meets them all.

`doit soak` makes twenty trials of every kind.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.soak.fault import Fault
from bench.soak.kinds import KINDS
from bench.soak.rig import Rig
from bench.soak.trial import trial
from tests.testbed.bed import Testbed

pytestmark = [pytest.mark.testbed, pytest.mark.timeout(900)]
SEED = 9


@pytest.fixture(scope="module")
def rig(session_testbed: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    session_testbed.heal()
    made = Rig(session_testbed, tmp_path_factory.mktemp("rig"), SEED)
    yield made
    made.close()


@pytest.mark.parametrize("fault", [pytest.param(one, id=one.name.replace(" ", "-")) for one in KINDS if one.quick])
def test_the_gang_is_safe_at_once_and_serves_again(rig: Rig, fault: Fault) -> None:
    outcome = trial(rig, fault)
    assert not outcome.complaints, str(outcome)


def test_there_are_kinds_enough_and_each_has_a_name_of_its_own() -> None:
    assert len({one.name for one in KINDS}) == len(KINDS) >= 24
