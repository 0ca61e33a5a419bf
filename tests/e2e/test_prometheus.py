"""A real Prometheus scrapes a gang under load while a rank is killed and memory falls."""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from build.units import GIB, MIB
from metrics.monitoring.boards import BOARDS
from metrics.monitoring.recording import recordings
from tests.testing.demo import demo_state
from tests.testing.hardware import disk_of, nvidia_smi, proc_tree, set_available, sys_tree
from tests.testing.prometheus import Prometheus
from tests.testing.supervised import Supervised, kill
from tests.testing.waiting import until

PLENTY = 8 * GIB
LOW = 300 * MIB  # above the floor of 256 MiB by less than half of it
UNDER = 200 * MIB
ANY = {"$job": ".*", "$node": ".*", "$model": ".*", "$__rate_interval": "30s"}
EXPECTED = {"RankDown", "HeadroomLowAndFalling", "FloorBreached"}

pytestmark = [
    pytest.mark.timeout(1500),
    pytest.mark.skipif(not shutil.which("prometheus"), reason="prometheus is not installed"),
]


class Node:
    """This host as the supervisor sees it: memory, ports, a GPU and a disk that a test can change."""

    def __init__(self, folder: Path) -> None:
        self.proc = proc_tree(folder / "proc", PLENTY, disk_of(folder))
        self.sys = sys_tree(folder / "sys")
        self.path = f"{nvidia_smi(folder / 'bin')}:{os.environ['PATH']}"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def gang(tmp_path: Path, node: Node) -> Iterator[Supervised]:
    roots = {"proc_root": node.proc, "sys_root": node.sys}
    pace = {"hardware_period_s": 1, "idle_probe_s": 2, "restart_pause_s": 5, "floor_grace_s": 1, "TF_STANDIN_ROUND_MS": 20}
    gang = Supervised(demo_state(tmp_path), tmp_path, **roots, **pace)
    gang.env["PATH"] = node.path
    try:
        yield gang.start().wait_ready()
    finally:
        gang.close()


@pytest.fixture
def prometheus(tmp_path: Path, gang: Supervised) -> Iterator[Prometheus]:
    server = Prometheus(tmp_path / "prometheus", f"127.0.0.1:{gang.metrics_port}")
    yield server
    server.close()


@pytest.fixture
def load(gang: Supervised) -> Iterator[None]:
    """Requests one after the other; those that a lost gang fails are part of it."""
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            try:
                gang.ask("Tell me about memory and links.", max_tokens=60)
            except (OSError, ValueError, http.client.HTTPException):
                over.wait(0.2)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    yield
    over.set()
    thread.join(60)


def expression(query: str) -> str:
    """A panel's query as Grafana sends it with everything chosen."""
    for name, value in ANY.items():
        query = query.replace(name, value)
    return query


def test_panels_have_data_and_the_right_alerts_fire_and_resolve(
    gang: Supervised, prometheus: Prometheus, node: Node, load: None
) -> None:
    panels = [(f"{board.title}: {panel.title}", query) for board in BOARDS for panel in board.panels for query in panel.queries]
    queries = {f"{title}: {query.expression}": expression(query.expression) for title, query in panels}
    queries |= {one.name: one.name for one in recordings()}
    until("data for every panel and rule", lambda: not (empty := _empty(prometheus, queries)) or _tell(empty), 120)
    assert prometheus.fired() == set()

    kill(gang.pids()[1])
    until("the alert of the killed rank", lambda: "RankDown" in prometheus.firing())
    gang.wait_ready(2)
    until("the alert's end", lambda: prometheus.firing() == set())
    assert prometheus.fired() == {"RankDown"}

    set_available(node.proc, LOW)
    until("the alert of low headroom", lambda: "HeadroomLowAndFalling" in prometheus.firing())
    set_available(node.proc, UNDER)
    until("the alert of the breached floor", lambda: "FloorBreached" in prometheus.firing())
    until("the eviction", lambda: prometheus.query('twinfold_evictions_total{stage="soft"} == 1'))
    set_available(node.proc, PLENTY)
    gang.wait_ready(3)
    until("the alerts' end", lambda: prometheus.firing() == set())
    assert prometheus.fired() == EXPECTED

    until("data after the restarts", lambda: not _empty(prometheus, queries), 120)
    assert _counters_gone_back(prometheus) == []
    _promtool_agrees(gang)


def _empty(prometheus: Prometheus, queries: dict[str, str]) -> list[str]:
    return [name for name, query in queries.items() if all(one["value"][1] == "NaN" for one in prometheus.query(query))]


def _counters_gone_back(prometheus: Prometheus) -> list[str]:
    """Those that Prometheus saw fall at any time, the engine's own among them."""
    listed = prometheus.query('count by (__name__) ({__name__=~"(twinfold|tensorfold)_.*(_total|_bucket|_sum|_count)"})')
    counters = {one["metric"]["__name__"] for one in listed}
    assert {"twinfold_generated_tokens_total", "twinfold_time_to_first_token_seconds_bucket"} <= counters
    assert any(name.startswith("tensorfold_") for name in counters)
    return [name for name in sorted(counters) if prometheus.query(f"resets({name}[1h]) > 0")]


def _tell(empty: list[str]) -> bool:
    print("no data yet:", *empty, sep="\n  ")
    return False


def _promtool_agrees(gang: Supervised) -> None:
    from urllib.request import urlopen

    with urlopen(f"http://127.0.0.1:{gang.metrics_port}/metrics", timeout=30) as reply:
        text = reply.read()
    done = subprocess.run(["promtool", "check", "metrics"], check=False, input=text, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
