"""What a scrape costs with two nodes and every family: latency, also while sources hang, and memory over many scrapes.

``python -m bench.scrape [--scrapes N]``. A publisher renders four times a second as the supervisor does; one in-process reader
hangs in ``read`` on a pipe that nobody writes, and a frozen (SIGSTOP) child stands for a node: neither may show in a scrape.
The client opens a connection for each scrape, as a fresh Prometheus does. One JSON line.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from metrics.catalog import CATALOGUE, Kind
from metrics.exporter import Exporter
from metrics.readings import Distribution, Foreign, Reading, Snapshot
from tests.testing.browser import pair

BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, float("inf"))
PUBLISH_S = 0.25
GOAL = {"p50_ms": 3.0, "p99_ms": 10.0}


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
    """As the supervisor's publisher does."""
    step = 0
    while not over.wait(PUBLISH_S):
        step += 1
        now = pair(time.time())
        exporter.publish(Snapshot(now.taken_at_s, readings(step), now.status, live=True, ready=True, foreign=foreign(step)))


def scrape(port: int) -> tuple[float, int]:
    """Milliseconds and bytes of one scrape, with a connection of its own."""
    began = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/metrics")
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
    for _ in range(200):
        scrape(exporter.port)
    before_kib = resident_kib()
    calm = [scrape(exporter.port) for _ in range(args.scrapes)]
    after_kib = resident_kib()
    hung = [took for took, _ in while_sources_hang(exporter.port, max(100, args.scrapes // 10))]
    over.set()
    found = {
        "scrapes": args.scrapes,
        "bytes": calm[-1][1],
        "calm": percentiles([took for took, _ in calm]),
        "a node frozen, the engine hung": percentiles(hung),
        "grown_kib": after_kib - before_kib,
    }
    print(json.dumps(found))
    exporter.close()
    return 0 if all(percentiles(one)[name] <= most for one in ([t for t, _ in calm], hung) for name, most in GOAL.items()) else 1


def exporter_is_empty(exporter: Exporter) -> bool:
    """Nothing published yet."""
    connection = http.client.HTTPConnection("127.0.0.1", exporter.port, timeout=10)
    connection.request("GET", "/metrics")
    empty = connection.getresponse().status != 200
    connection.close()
    return empty


def while_sources_hang(port: int, count: int) -> list[tuple[float, int]]:
    """Scrapes while a child is stopped and a thread waits for an answer that does not come."""
    frozen = subprocess.Popen(["sleep", "600"])
    reader, writer = os.pipe()
    threading.Thread(target=os.read, args=(reader, 1), daemon=True).start()
    os.kill(frozen.pid, signal.SIGSTOP)
    try:
        return [scrape(port) for _ in range(count)]
    finally:
        os.write(writer, b".")
        frozen.kill()
        frozen.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
