"""Which rank runs where, from the settings alone."""

from __future__ import annotations

import pytest

from build.errors import Refused, UsageError
from build.nodes.hosts import Host, hosts, nodes_of
from build.nodes.workers import Workers
from supervisor.fleet import address


def test_without_a_worker_all_ranks_are_on_the_head() -> None:
    assert nodes_of(hosts(Workers(), 4)) == ("head",) * 4


@pytest.mark.parametrize(
    ("worker", "world", "nodes"),
    [
        ("b", 2, ("head", "worker")),
        ("b", 4, ("head", "head", "worker", "worker")),
        ("b c d", 4, ("head", "worker1", "worker2", "worker3")),
    ],
)
def test_ranks_are_shared_out_evenly_and_in_order(worker: str, world: int, nodes: tuple[str, ...]) -> None:
    assert nodes_of(hosts(Workers(worker=worker), world)) == nodes


def test_ranks_that_cannot_be_shared_out_are_refused() -> None:
    with pytest.raises(UsageError, match="2 ranks cannot be shared out over 3 hosts"):
        hosts(Workers(worker="b c"), 2)


def test_one_word_holds_for_all_workers_and_several_are_one_each() -> None:
    workers = Workers(
        worker="b c d", worker_store="s", worker_docker_socket="/1 /2 /3", fabric_peer="192.0.2.2 192.0.2.3 192.0.2.4"
    )
    found = hosts(workers, 4)[1:]
    assert [one.store for one in found] == ["s"] * 3
    assert [one.docker_socket for one in found] == ["/1", "/2", "/3"]
    assert [one.fabric for one in found] == ["192.0.2.2", "192.0.2.3", "192.0.2.4"]


@pytest.mark.parametrize("said", [{"fabric_peer": "192.0.2.2"}, {"worker_store": "a b"}])
def test_a_list_of_another_length_is_refused(said: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="one for each"):
        hosts(Workers(worker="b c d", **said), 4)


def test_a_worker_that_ssh_would_read_as_an_option_is_refused() -> None:
    with pytest.raises(UsageError, match="dash"):
        hosts(Workers(worker="-oProxyCommand=x"), 2)


def test_the_ranks_meet_at_the_heads_address_towards_its_workers() -> None:
    workers = [Host("worker1", (1,), "b", "192.0.2.2"), Host("worker2", (2,), "c", "192.0.2.3")]
    assert address.master(workers, None, lambda _to: "192.0.2.1") == "192.0.2.1"


def test_workers_on_different_links_need_an_address_that_is_said() -> None:
    workers = [Host("worker1", (1,), "b", "192.0.2.2"), Host("worker2", (2,), "c", "198.51.100.3")]
    with pytest.raises(Refused, match="set master_addr"):
        address.master(workers, None, lambda to: to.rpartition(".")[0] + ".1")


def test_loopback_is_spoken_to_from_loopback() -> None:
    assert address.source_towards("127.0.0.1") == "127.0.0.1"
