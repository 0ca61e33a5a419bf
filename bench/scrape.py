"""What a scrape costs with two nodes and every family: latency, also while sources hang, and memory over many scrapes.

``python -m bench.scrape [--scrapes N]``. A publisher publishes four times a second, as often as the supervisor ever does. For
the second figure the supervisor's own watchers hang: one on an engine that accepts and says nothing, one on a node whose commands
are stopped (SIGSTOP). The client opens a connection for each scrape, as a fresh Prometheus does. One JSON line.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import statistics
import sys
import threading
import time
from array import array
from collections.abc import Sequence
from pathlib import Path

from build.nodes.node import LocalNode, Result
from metrics.catalog import CATALOGUE, Kind
from metrics.exporter import Exporter
from metrics.readings import Distribution, Foreign, Reading, Snapshot
from supervisor.engine.line import Endpoint
from supervisor.engine.progress import Patience
from supervisor.gang.board import Board
from supervisor.gang.engine_watch import EngineWatch
from supervisor.hardware.watch import HardwareWatch
from supervisor.machine import Phase, Policy, State
from tests.testing.browser import pair

BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, float("inf"))
PUBLISH_S = 0.25
# as Prometheus 2.42 asks
ACCEPT = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"}
GOAL = {"p50_ms": 3.0, "p99_ms": 10.0}
WARM_UP = 4000
GROWN_KIB = 1024  # at most so much more memory after all the scrapes


def readings(step: int) -> tuple[Reading, ...]:
    """Every family, those with a node for both nodes, and two devices where there are devices."""
    found = []
    for metric in CATALOGUE:
        if metric.name == "twinfold_snapshot_age_seconds":
            continue
        value = Distribution(tuple((bound, step + n) for n, bound in enumerate(BOUNDS)), 1.0 * step)
        for node in ("spark-a", "spark-b") if "node" in metric.labels else ("",):
            for device in ("0", "1") if "device" in metric.labels else ("",):
                labels = {name: {"node": node, "device": device}.get(name, "x") for name in metric.labels}
                found.append(Reading(metric, value if metric.kind is Kind.HISTOGRAM else float(step), labels))
    return tuple(found)


def foreign(step: int) -> tuple[Foreign, ...]:
    """Forty families of an engine."""
    return tuple(
        Foreign(f"tensorfold_other{n}_total", "counter", "Other.", ((f"tensorfold_other{n}_total", {"key": "a"}, 1.0 * step),))
        for n in range(40)
    )


def publish(exporter: Exporter, over: threading.Event) -> None:
    """As the supervisor's publisher does while the machine steps on and on."""
    step = 0
    while not over.wait(PUBLISH_S):
        step += 1
        now = pair(time.time())
        exporter.publish(Snapshot(now.taken_at_s, readings(step), now.status, live=True, ready=True, foreign=foreign(step)))


def scrape(port: int) -> tuple[float, int]:
    """Milliseconds and bytes of one scrape, with a connection of its own."""
    began = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/metrics", headers=ACCEPT)
    body = connection.getresponse().read()
    connection.close()
    return (time.perf_counter() - began) * 1e3, len(body)


def resident_kib() -> int:
    """This process's memory."""
    rows = Path("/proc/self/status").read_text().splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith("VmRSS"))


def percentiles(took_ms: list[float]) -> dict[str, float]:
    """Median and 99th percentile."""
    cuts = statistics.quantiles(took_ms, n=100)
    return {"p50_ms": round(statistics.median(took_ms), 3), "p99_ms": round(cuts[98], 3), "max_ms": round(max(took_ms), 2)}


def main(argv: list[str]) -> int:
    """0 where the goals are met."""
    parser = argparse.ArgumentParser(prog="python -m bench.scrape", description=__doc__)
    parser.add_argument("--scrapes", type=int, default=10_000)
    args = parser.parse_args(argv)
    exporter, over = Exporter("127.0.0.1", 0), threading.Event()
    exporter.start()
    threading.Thread(target=publish, args=(exporter, over), daemon=True).start()
    while exporter_is_empty(exporter):
        time.sleep(0.05)
    for _ in range(WARM_UP):  # the allocator's own pools are full only then
        scrape(exporter.port)
    calm = array("d", bytes(8 * args.scrapes))  # there before memory is looked at: it is the bench's own
    before_kib = resident_kib()
    for number in range(args.scrapes):
        calm[number], size = scrape(exporter.port)
    after_kib = resident_kib()
    hung = [took for took, _ in while_sources_hang(exporter.port, max(100, args.scrapes // 10))]
    over.set()
    found = {
        "scrapes": args.scrapes,
        "bytes": size,
        "calm": percentiles(calm.tolist()),
        "a node frozen, the engine hung": percentiles(hung),
        "grown_kib": after_kib - before_kib,
    }
    print(json.dumps(found))
    exporter.close()
    quick = all(percentiles(one)[name] <= most for one in (calm.tolist(), hung) for name, most in GOAL.items())
    return 0 if quick and after_kib - before_kib <= GROWN_KIB else 1


def exporter_is_empty(exporter: Exporter) -> bool:
    """Nothing published yet."""
    connection = http.client.HTTPConnection("127.0.0.1", exporter.port, timeout=10)
    connection.request("GET", "/metrics")
    empty = connection.getresponse().status != 200
    connection.close()
    return empty


class Frozen(LocalNode):
    """A node on which every command stops in the middle, as all do on a frozen machine."""

    def run(self, argv: Sequence[str], deadline_s: float, *, stdin: bytes | None = None, check: bool = True) -> Result:
        """Never answers before the deadline."""
        del argv
        return super().run(["sh", "-c", "kill -STOP $$"], deadline_s, stdin=stdin, check=check)


def while_sources_hang(port: int, count: int) -> list[tuple[float, int]]:
    """Scrapes while the supervisor's own watchers wait for an engine that accepts and says nothing, and for a frozen node."""
    state = State(Policy(world_size=2), phase=Phase.SERVING, launch=1)
    board = Board(state, os.getpid())
    here = Path(__file__).resolve().parent
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = Endpoint(f"http://127.0.0.1:{silent.getsockname()[1]}")
        patience = Patience(600, 3, 3600, 400, 65536)
        engine = EngineWatch(
            endpoint, "m", 1, patience=patience, period_s=0.5, deadline_s=5, board=board, post=lambda _event: None
        )
        roots = (Path("/proc"), Path("/sys"))
        node = HardwareWatch(Frozen("spark-b", here), board, roots=roots, paths=lambda: (str(here), ""), period_s=1)
        engine.start()
        node.start()
        found = [scrape(port) for _ in range(count)]
        if any(one.up for one in board.view().hardware) or board.view().engine:
            raise SystemExit("error: the sources did not hang")
        engine.stop()
        node.stop()
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
