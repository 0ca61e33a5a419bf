"""Two hosts, and what can go wrong between them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testbed.bed import Testbed
from tests.testbed.hosts import Host
from tests.testing.demo import QUESTION, demo_state
from tests.testing.edited import edited
from tests.testing.fleet import SupervisedFleet, api, clear, containers, flip, ranks_on, store

pytestmark = [pytest.mark.testbed, pytest.mark.timeout(1500)]


def rank_file(worker: Host) -> Path:
    """Rank 1's weight file on the worker."""
    return next(path for path in store(worker).glob("*/rank1of*.bin"))


def test_what_is_there_is_not_copied_again_and_a_flipped_byte_is_mended_before_the_launch(
    fleet: SupervisedFleet, testbed: Testbed
) -> None:
    (worker,) = testbed.workers
    fleet.start().wait_ready()
    assert "worker: " in fleet.out + fleet.err
    assert "copied" in fleet.out + fleet.err
    fleet.command("stop")
    fleet.ended()

    fleet.start().wait_ready()
    assert "copied" not in fleet.out + fleet.err
    fleet.command("stop")
    fleet.ended()

    flip(rank_file(worker))
    fleet.start().wait_ready()
    said = fleet.out + fleet.err
    assert f"{rank_file(worker).name} has other content: mending" in said
    assert said.index("mending") < said.index("launching")
    fleet.command("stop")
    fleet.ended()

    flip(rank_file(worker))
    fleet.env["PREPARE"] = "0"
    fleet.start()
    assert fleet.ended() == 3
    assert "has other content: run `doit replicate`" in fleet.err
    assert ranks_on(testbed.head) == ranks_on(worker) == []


def test_a_worker_that_was_never_filled_is_refused_where_nothing_may_be_copied(fleet: SupervisedFleet, testbed: Testbed) -> None:
    (worker,) = testbed.workers
    fleet.env["PREPARE"] = "0"
    fleet.start()
    assert fleet.ended() == 3
    assert "run `doit replicate`" in fleet.err.strip().splitlines()[-1]
    assert not store(worker).exists()


@pytest.mark.parametrize("victim", ["0", "1"])
def test_a_rank_killed_on_either_host_takes_the_gang_down_and_it_comes_back(
    fleet: SupervisedFleet, testbed: Testbed, victim: str
) -> None:
    fleet.start().wait_ready()
    before = {one["Id"] for host in testbed.hosts for one in containers(host)}
    host = testbed.hosts[int(victim)]
    daemon = api(host)
    assert daemon.post(f"/containers/{containers(host)[0]['Id']}/kill").status == 204
    daemon.close()
    fleet.wait_ready(times=2)
    after = {one["Id"] for host in testbed.hosts for one in containers(host)}
    assert before.isdisjoint(after)
    assert len(after) == 2
    assert "42" in fleet.answers(QUESTION)[0]


def test_status_logs_and_stop_work_over_the_nodes_without_a_supervisor(fleet: SupervisedFleet, testbed: Testbed) -> None:
    fleet.start().wait_ready()
    before = {one["Id"] for host in testbed.hosts for one in containers(host)}
    fleet.running.kill()
    fleet.running.wait()
    status = fleet.command("status")
    assert "rank 0" in status.stdout
    assert "worker" in status.stdout
    lines = fleet.command("logs").stdout.splitlines()
    assert {line.partition(" | ")[0] for line in lines} == {"rank 0", "rank 1"}

    fleet.start().wait_ready()
    assert {one["Id"] for host in testbed.hosts for one in containers(host)} == before, "the gang is taken over as it is"
    fleet.running.kill()
    fleet.running.wait()
    stopped = fleet.command("stop")
    assert (stopped.returncode, stopped.stderr) == (0, "")
    assert [ranks_on(host) for host in testbed.hosts] == [[], []]
    assert len([name for name in fleet.logs() if name.endswith(".log.gz")]) == 2


def test_a_lone_rank_on_the_worker_is_removed_with_its_log_before_a_new_launch(fleet: SupervisedFleet, testbed: Testbed) -> None:
    (worker,) = testbed.workers
    fleet.start().wait_ready()
    fleet.running.kill()
    fleet.running.wait()
    old = containers(worker)[0]["Id"]
    daemon = api(testbed.head)
    daemon.delete(f"/containers/{containers(testbed.head)[0]['Id']}", {"force": "1"})
    daemon.close()
    fleet.start().wait_ready()
    assert "removing what an earlier supervisor left: rank 1" in fleet.err + fleet.out
    assert [one["Id"] for one in containers(worker)] != [old]
    assert len([name for name in fleet.logs() if name.endswith("rank1.log.gz")]) == 1


@pytest.mark.parametrize("supervised", [True, False])
def test_stop_ends_with_5_while_a_ranks_node_cannot_be_reached(
    fleet: SupervisedFleet, testbed: Testbed, supervised: bool
) -> None:
    (worker,) = testbed.workers
    fleet.start().wait_ready()
    if not supervised:
        fleet.running.kill()
        fleet.running.wait()
    worker.stop_sshd()
    try:
        stopped = fleet.command("stop", "--force")
        assert stopped.returncode == 5, stopped.stderr
        assert ("rank 1" if supervised else "worker cannot be reached") in stopped.stderr
        assert all(one["State"] == "exited" for one in containers(testbed.head)), "what can be reached is ended"
        if supervised:
            fleet.running.wait(60)
    finally:
        worker.restart_sshd()
    assert fleet.command("stop").returncode == 0
    assert ranks_on(worker) == []


def test_a_worker_that_cannot_be_reached_refuses_the_launch(fleet: SupervisedFleet, testbed: Testbed) -> None:
    (worker,) = testbed.workers
    worker.stop_sshd()
    try:
        fleet.start()
        assert fleet.ended() == 3
        assert "worker: its address answers, but no ssh server listens there" in fleet.err
    finally:
        worker.restart_sshd()


def test_a_setting_that_differs_on_rank_1_is_named_before_ready(testbed: Testbed, tmp_path: Path) -> None:
    (worker,) = testbed.workers
    clear(testbed)
    front = worker.plan.folder / "edited.sock"
    with edited(front, worker.plan.docker_socket, b'"--pool", "8192"', b'"--pool", "4096"'):
        gang = SupervisedFleet(testbed, demo_state(tmp_path), tmp_path, context=8192, worker_docker_socket=front)
        try:
            gang.start("--once")
            assert gang.ended() == 4
            assert "rank 1 has pool 4096, the gang was asked for 8192" in gang.err
            assert "READY" not in gang.out
            assert [ranks_on(host) for host in testbed.hosts] == [[], []]
        finally:
            gang.close()
            clear(testbed)


def test_a_rank_whose_container_was_made_anew_by_hand_is_not_taken_over_and_named_before_ready(
    testbed: Testbed, tmp_path: Path
) -> None:
    (worker,) = testbed.workers
    clear(testbed)
    gang = SupervisedFleet(testbed, demo_state(tmp_path), tmp_path, context=8192)
    try:
        gang.start().wait_ready()
        gang.running.kill()
        gang.running.wait()
        edit_by_hand(worker, "8192", "4096")
        daemon = api(testbed.head)
        ids = [one["Id"] for one in containers(testbed.head)]
        assert daemon.post(f"/containers/{ids[0]}/restart", {"t": "0"}).status == 204
        daemon.close()
        assert [one["State"] for host in testbed.hosts for one in containers(host)] == ["running", "running"]
        gang.start().wait_ready()
        said = gang.out + gang.err
        assert "(--pool) is '4096': it is not taken over" in said
        assert said.index("it is not taken over") < said.index("launching")
        assert ids != [one["Id"] for one in containers(testbed.head)]
        assert "42" in gang.answers(QUESTION)[0]
    finally:
        gang.close()
        clear(testbed)


def edit_by_hand(host: Host, word: str, other: str) -> None:
    """Make the host's container anew under its name and labels, with one word of its command replaced."""
    daemon = api(host)
    try:
        (old,) = containers(host)
        found = daemon.get(f"/containers/{old['Id']}/json").document
        command = [other if one == word else one for one in found["Config"]["Cmd"]]
        assert command != found["Config"]["Cmd"]
        daemon.delete(f"/containers/{old['Id']}", {"force": "1"})
        body = {**found["Config"], "Cmd": command, "HostConfig": found["HostConfig"]}
        made = daemon.post("/containers/create", {"name": found["Name"].lstrip("/")}, body)
        assert daemon.post(f"/containers/{made.document['Id']}/start").status == 204
    finally:
        daemon.close()
