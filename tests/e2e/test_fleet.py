"""Two hosts: rank 1 on a worker over ssh, which has nothing of ours but what was brought to it."""

from __future__ import annotations

import pytest

from tests.testbed.bed import Testbed
from tests.testing.demo import QUESTION
from tests.testing.fleet import NAME, SupervisedFleet, containers, ranks_on, store

pytestmark = [pytest.mark.testbed, pytest.mark.timeout(1500)]


def test_rank_1_runs_on_the_worker_and_stop_leaves_only_store_and_images(fleet: SupervisedFleet, testbed: Testbed) -> None:
    (worker,) = testbed.workers
    home = {path.name for path in worker.plan.home.iterdir()}
    fleet.start().wait_ready()
    assert ranks_on(testbed.head) == ["0"]
    assert ranks_on(worker) == ["1"]
    assert "42" in fleet.answers(QUESTION)[0]
    assert [one["Names"] for one in containers(worker)] == [[f"/{NAME}"]]
    lines = fleet.command("logs").stdout.splitlines()
    assert {line.partition(" | ")[0] for line in lines} == {"rank 0", "rank 1"}
    assert fleet.command("stop").returncode == 0
    assert fleet.ended() == 0
    assert ranks_on(testbed.head) == ranks_on(worker) == []
    assert {path.name for path in worker.plan.home.iterdir()} - home <= {store(worker).name}
    assert len([name for name in fleet.logs() if name.endswith(".log.gz")]) == 2
