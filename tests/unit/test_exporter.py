"""The metrics server over real sockets: what it serves, and that nobody can hold it up."""

from __future__ import annotations

import base64
import gc
import hashlib
import http.client
import json
import re
import shutil
import socket
import subprocess
import threading
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from metrics import exposition
from metrics.catalog import CATALOGUE, GANG_STATE, GENERATED_TOKENS, HEADROOM, SNAPSHOT_AGE, Kind, Metric
from metrics.exporter import CONNECTIONS, CannotListen, Exporter
from metrics.readings import Distribution, Foreign, Reading, Snapshot

OPENMETRICS = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"}


class Clock:
    """Monotonic seconds, moved by hand."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def exporter(clock: Clock) -> Iterator[Exporter]:
    exporter = Exporter("127.0.0.1", 0, stale_s=30.0, clock=clock)
    exporter.start()
    yield exporter
    exporter.close()


def a_reading(metric: Metric) -> Reading:
    value = Distribution(((0.5, 1), (float("inf"), 2)), 3.0) if metric.kind is Kind.HISTOGRAM else 1.0
    return Reading(metric, value, dict.fromkeys(metric.labels, 'a "quoted" \\ value\n'))


def snapshot(*readings: Reading, **changes: Any) -> Snapshot:
    plain = Snapshot(taken_at_s=1.7e9, readings=readings, status={"state": "serving"}, live=True, ready=True)
    return replace(plain, **changes)


def tokens(count: float) -> Reading:
    return Reading(GENERATED_TOKENS, count, {"model": "m"})


def get(exporter: Exporter, path: str, headers: dict[str, str] | None = None, method: str = "GET") -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", exporter.port, timeout=30)
    try:
        connection.request(method, path, headers=headers or {})
        reply = connection.getresponse()
        return reply.status, reply.headers["Content-Type"], reply.read().decode()
    finally:
        connection.close()


def was_ended(client: socket.socket) -> bool:
    """Whether the other side ends the connection; a reset is an end as well."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_the_last_snapshot_is_served(exporter: Exporter, clock: Clock) -> None:
    exporter.publish(snapshot(tokens(1)))
    exporter.publish(snapshot(tokens(5), Reading(HEADROOM, 2048.0, {"node": "spark-a"})))
    clock.now_s += 0.25
    status, kind, body = get(exporter, "/metrics")
    assert (status, kind) == (200, exposition.TEXT)
    assert 'twinfold_generated_tokens_total{model="m"} 5.0' in body
    assert 'twinfold_memory_headroom_bytes{node="spark-a"} 2048.0' in body
    assert "twinfold_snapshot_age_seconds 0.25" in body


def test_openmetrics_is_served_to_who_asks_for_it(exporter: Exporter) -> None:
    exporter.publish(snapshot(tokens(5)))
    _, kind, body = get(exporter, "/metrics", OPENMETRICS)
    assert kind == exposition.OPENMETRICS
    assert body.endswith("# EOF\n")
    assert "# TYPE twinfold_generated_tokens counter" in body


@pytest.mark.parametrize("form", [exposition.TEXT, exposition.OPENMETRICS])
def test_every_metric_of_the_catalogue_reads_back(form: str) -> None:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
    from prometheus_client.parser import text_string_to_metric_families as parse_text

    body = exposition.render([a_reading(metric) for metric in CATALOGUE], form).decode()
    samples = {
        sample.name
        for family in (parse_openmetrics if form == exposition.OPENMETRICS else parse_text)(body)
        for sample in family.samples
    }
    expected = {metric.name + ("_bucket" if metric.kind is Kind.HISTOGRAM else "") for metric in CATALOGUE}
    assert expected <= samples


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
def test_promtool_finds_nothing_to_say_about_any_metric() -> None:
    body = exposition.render([a_reading(metric) for metric in CATALOGUE], exposition.TEXT)
    done = subprocess.run(["promtool", "check", "metrics"], check=False, input=body, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_histogram_keeps_the_buckets_it_came_with() -> None:
    metric = next(metric for metric in CATALOGUE if metric.kind is Kind.HISTOGRAM)
    body = exposition.render(
        [Reading(metric, Distribution(((0.05, 1), (2.5, 7), (float("inf"), 9)), 11.5), {"model": "m"})], exposition.TEXT
    )
    for line in (
        'bucket{le="0.05",model="m"} 1.0',
        'bucket{le="2.5",model="m"} 7.0',
        'bucket{le="+Inf",model="m"} 9.0',
        'count{model="m"} 9.0',
        'sum{model="m"} 11.5',
    ):
        assert f"{metric.name}_{line}\n" in body.decode()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Reading(GENERATED_TOKENS, 1.0),
        lambda: Reading(SNAPSHOT_AGE, 1.0, {"node": "a"}),
        lambda: Reading(GENERATED_TOKENS, Distribution(((float("inf"), 1),), 1.0), {"model": "m"}),
        lambda: Distribution(((1.0, 5), (float("inf"), 4)), 1.0),
        lambda: Distribution(((1.0, 5),), 1.0),
        lambda: snapshot(tokens(1), tokens(2)),
    ],
)
def test_a_reading_that_does_not_fit_is_refused_when_made(make: Any) -> None:
    with pytest.raises(ValueError):
        make()


def test_bytes_are_rendered_at_most_once_a_second(exporter: Exporter, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[str] = []
    real = exposition.render
    monkeypatch.setattr(
        exposition, "render", lambda readings, form, foreign: rendered.append(form) or real(readings, form, foreign)
    )
    bodies = []
    for count, later_s in ((1, 0.0), (2, 0.9), (3, 0.2)):
        clock.now_s += later_s
        exporter.publish(snapshot(tokens(count)))
        bodies.append(get(exporter, "/metrics")[2])
    assert rendered == [exposition.TEXT] * 2
    assert bodies[0] == bodies[1]
    assert "} 3.0" in bodies[2]


def test_status_is_json(exporter: Exporter) -> None:
    status = {"state": "serving", "ranks": [{"rank": 0, "node": "spark-a"}], "memory": []}
    exporter.publish(snapshot(status=status))
    code, kind, body = get(exporter, "/status.json")
    assert (code, kind) == (200, "application/json")
    told = json.loads(body)
    assert {key: told[key] for key in status} == status
    assert (told["ready"], told["live"], told["taken_at_s"]) == (True, True, 1.7e9)


def test_the_page_needs_nothing_from_anywhere_and_may_run_its_own_script_alone(exporter: Exporter) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", exporter.port, timeout=30)
    connection.request("GET", "/")
    reply = connection.getresponse()
    body, sent = reply.read().decode(), reply.headers["Content-Security-Policy"]
    connection.close()
    assert (reply.status, reply.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    (script,) = re.findall(r"<script>(.*)</script>", body, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in sent
    assert sent.startswith("default-src 'none'; ")
    outside = [
        url
        for url in re.findall(r"""https?://[^\s"'`$]+""", body)
        if not url.startswith(("http://127.0.0.1", "http://www.w3.org/2000/svg"))
    ]
    assert outside == []
    assert re.findall(r"<(?:link|script|img|iframe)[^>]*(?:src|href)=\"(?!data:|/)", body) == []
    assert "innerHTML" not in script


def test_the_pages_curves_are_there_at_once(exporter: Exporter) -> None:
    for second, rate in ((0.0, 1.0), (0.4, 2.0), (1.1, 3.0)):
        throughput = {"decode_tokens_per_s": rate}
        memory = [{"node": "spark-a", "available_bytes": 5}]
        exporter.publish(snapshot(status={"throughput": throughput, "memory": memory}, taken_at_s=100.0 + second))
    code, kind, body = get(exporter, "/history.json")
    assert (code, kind) == (200, "application/json")
    assert json.loads(body)["points"] == [
        {"t": 100.0, "decode_tokens_per_s": 1.0, "available_bytes": {"spark-a": 5}},
        {"t": 101.1, "decode_tokens_per_s": 3.0, "available_bytes": {"spark-a": 5}},
    ]


def test_who_asks_gets_figures_that_are_at_most_a_second_old(exporter: Exporter, clock: Clock) -> None:
    made = []
    exporter.renew_by(lambda: made.append(clock.now_s) or exporter.publish(snapshot(tokens(7))))
    exporter.publish(snapshot(tokens(1)))
    assert "} 1.0" in get(exporter, "/metrics")[2]
    clock.now_s += 1.0
    assert "} 7.0" in get(exporter, "/metrics")[2]
    clock.now_s += 0.5
    get(exporter, "/metrics")
    get(exporter, "/readyz")
    assert made == [clock.now_s - 0.5]


def test_a_publisher_that_makes_nothing_new_is_seen_by_the_age(exporter: Exporter, clock: Clock) -> None:
    exporter.publish(snapshot(tokens(1)))
    get(exporter, "/metrics")
    clock.now_s += 5.0
    assert "twinfold_snapshot_age_seconds 5.0" in get(exporter, "/metrics")[2]


def test_a_fault_in_making_a_snapshot_fails_no_scrape_and_is_shown(
    exporter: Exporter, clock: Clock, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise ValueError("a fault of ours")

    exporter.publish(snapshot())
    exporter.renew_by(broken)
    clock.now_s += 7.0
    status, _, body = get(exporter, "/metrics")
    assert (status, "twinfold_snapshot_age_seconds 7.0" in body) == (200, True)
    assert "a fault of ours" in capfd.readouterr().err


def test_memory_is_flat_over_scrapes(exporter: Exporter, clock: Clock) -> None:
    def scrape(times: int) -> None:
        for step in range(times):
            clock.now_s += 1.0
            exporter.publish(snapshot(tokens(step)))
            get(exporter, "/metrics")

    scrape(50)
    tracemalloc.start()
    try:
        scrape(50)
        before, _ = tracemalloc.get_traced_memory()
        scrape(300)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 64 * 1024


@pytest.mark.parametrize("path", ["/nothing", "/metrics/", "/livez/x"])
def test_another_path_is_not_found(exporter: Exporter, path: str) -> None:
    assert get(exporter, path)[0] == 404


def test_only_reading_is_allowed(exporter: Exporter) -> None:
    exporter.publish(snapshot())
    assert get(exporter, "/metrics", method="POST")[0] == 501
    assert get(exporter, "/metrics?x=1", method="HEAD") == (200, exposition.TEXT, "")


def test_before_the_first_snapshot_it_is_live_and_not_ready(exporter: Exporter) -> None:
    assert get(exporter, "/livez")[0] == 200
    assert get(exporter, "/readyz")[::2] == (503, "starting\n")
    assert get(exporter, "/metrics")[0] == 503


@pytest.mark.parametrize(
    ("live", "ready", "codes"),
    [(True, True, (200, 200)), (True, False, (200, 503)), (False, False, (503, 503)), (False, True, (503, 503))],
)
def test_live_and_ready_are_what_the_snapshot_says(exporter: Exporter, live: bool, ready: bool, codes: tuple[int, int]) -> None:
    exporter.publish(snapshot(live=live, ready=ready, why="" if live and ready else "rank 1 left"))
    told = [get(exporter, path) for path in ("/livez", "/readyz")]
    assert tuple(code for code, _, _ in told) == codes
    assert all(body == ("ok\n" if code == 200 else "rank 1 left\n") for code, _, body in told)


def test_readiness_changes_at_once(exporter: Exporter) -> None:
    for ready in (True, False, True):
        exporter.publish(snapshot(ready=ready))
        assert get(exporter, "/readyz")[0] == (200 if ready else 503)


def test_a_supervisor_that_publishes_no_more_is_not_live(exporter: Exporter, clock: Clock) -> None:
    exporter.publish(snapshot())
    clock.now_s += 31.0
    assert get(exporter, "/livez")[::2] == (503, "the supervisor published nothing for 31 s\n")
    assert get(exporter, "/readyz")[0] == 503
    exporter.publish(snapshot())
    assert get(exporter, "/livez")[0] == 200


def test_idle_and_half_asking_clients_hold_up_nobody(exporter: Exporter) -> None:
    exporter.publish(snapshot(tokens(5)))
    held = [socket.create_connection(("127.0.0.1", exporter.port), timeout=30) for _ in range(CONNECTIONS // 2)]
    try:
        for number, client in enumerate(held):
            client.sendall((b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\nHost: x\r\n")[number % 3])
        begun = time.monotonic()
        assert get(exporter, "/metrics")[0] == 200
        assert time.monotonic() - begun < 5.0
    finally:
        for client in held:
            client.close()


def test_more_connections_than_there_is_room_for_are_turned_away_and_room_comes_back(exporter: Exporter) -> None:
    exporter.publish(snapshot())
    held = [socket.create_connection(("127.0.0.1", exporter.port), timeout=30) for _ in range(CONNECTIONS)]
    turned_away = socket.create_connection(("127.0.0.1", exporter.port), timeout=30)
    assert was_ended(turned_away)
    turned_away.close()
    for client in held:
        client.close()
    deadline = time.monotonic() + 30
    while True:
        try:
            assert get(exporter, "/livez")[0] == 200
            break
        except (ConnectionError, http.client.HTTPException):
            assert time.monotonic() < deadline


def test_a_client_that_drips_is_cut_off_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metrics.exporter.CONNECTION_S", 1.0)
    exporter = Exporter("127.0.0.1", 0)
    exporter.start()
    try:
        with socket.create_connection(("127.0.0.1", exporter.port), timeout=0.1) as client:
            client.sendall(b"GET /livez HTTP/1.1\r\n")
            begun = time.monotonic()
            while time.monotonic() - begun < 20.0:
                try:
                    client.sendall(b"X-Drip: 1\r\n")
                    if client.recv(1) == b"":
                        break
                except TimeoutError:
                    continue
                except ConnectionError:
                    break
            assert 0.9 < time.monotonic() - begun < 15.0
    finally:
        exporter.close()


def test_clients_that_leave_in_the_middle_are_no_news(exporter: Exporter, capfd: pytest.CaptureFixture[str]) -> None:
    exporter.publish(snapshot(*(a_reading(metric) for metric in CATALOGUE)))
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", exporter.port), timeout=30) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")  # reset on close
            client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    assert get(exporter, "/livez")[0] == 200
    assert capfd.readouterr().err == ""


def test_a_taken_port_is_one_clear_line(exporter: Exporter) -> None:
    second = Exporter("127.0.0.1", exporter.port)
    with pytest.raises(CannotListen) as refused:
        second.start()
    assert (
        str(refused.value)
        == f"metrics port 127.0.0.1:{exporter.port} is taken: stop what listens there, or set metrics_port to another"
    )
    second.close()


def test_an_address_of_another_machine_is_one_clear_line() -> None:
    with pytest.raises(
        CannotListen, match=r"^metrics cannot listen on 192\.0\.2\.77:0 \(.+\): set metrics_host and metrics_port$"
    ):
        Exporter("192.0.2.77", 0).start()


def test_a_closed_exporter_frees_its_port_and_its_threads() -> None:
    before = threading.active_count()
    exporter = Exporter("127.0.0.1", 0)
    exporter.start()
    port = exporter.port
    with socket.create_connection(("127.0.0.1", port), timeout=30) as idle:
        exporter.close()
        assert was_ended(idle)
    exporter.close()
    again = Exporter("127.0.0.1", port)
    again.start()
    again.close()
    deadline = time.monotonic() + 30
    while threading.active_count() > before:
        assert time.monotonic() < deadline


def test_one_hot_states_share_a_family() -> None:
    body = exposition.render(
        [Reading(GANG_STATE, float(state == "serving"), {"state": state}) for state in ("stopped", "serving")], exposition.TEXT
    )
    assert body.decode().count("# TYPE twinfold_gang_state gauge") == 1


NAN, INF = float("nan"), float("inf")
FOREIGN = (
    Foreign("tensorfold_a_total", "counter", 'A "quoted" \\ help.', (("tensorfold_a_total", {"key": 'x"\\\n'}, 3.0),)),
    Foreign("tensorfold_b", "counter", "No suffix.", (("tensorfold_b", {}, 4.0),)),
    Foreign(
        "tensorfold_c", "gauge", "A gauge.", (("tensorfold_c", {}, float("nan")), ("tensorfold_c", {"k": "v"}, float("-inf")))
    ),
    Foreign("tensorfold_d", "odd", "No type of the format.", (("tensorfold_d", {}, 1e21),)),
    Foreign(
        "tensorfold_e_seconds",
        "histogram",
        "Times.",
        (
            ("tensorfold_e_seconds_bucket", {"le": "1.0"}, 1.0),
            ("tensorfold_e_seconds_bucket", {"le": "+Inf"}, 2.0),
            ("tensorfold_e_seconds_count", {}, 2.0),
            ("tensorfold_e_seconds_sum", {}, 5.0),
        ),
    ),
)


@pytest.mark.parametrize("form", [exposition.TEXT, exposition.OPENMETRICS])
def test_what_is_written_reads_back_value_by_value(form: str) -> None:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
    from prometheus_client.parser import text_string_to_metric_families as parse_text

    written = [a_reading(metric) for metric in CATALOGUE]
    body = exposition.render(written, form, FOREIGN).decode()
    families = list((parse_openmetrics if form == exposition.OPENMETRICS else parse_text)(body))
    read = {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}
    for reading in written:
        if reading.metric.kind is not Kind.HISTOGRAM:
            assert read.pop((reading.metric.name, tuple(sorted(reading.labels.items())))) == reading.value
    for one in FOREIGN:
        for name, labels, value in one.points:
            assert repr(read.pop((name, tuple(sorted(labels.items()))))) == repr(value)
    histograms = [metric.name for metric in CATALOGUE if metric.kind is Kind.HISTOGRAM]
    assert {name for name, _ in read} == {name + suffix for name in histograms for suffix in ("_bucket", "_count", "_sum")}
    helps = {family.name: family.documentation for family in families}
    assert helps["tensorfold_a"] == FOREIGN[0].help
    types = {family.name: family.type for family in families}
    assert [types[name] for name in ("tensorfold_a", "tensorfold_b", "tensorfold_c", "tensorfold_d")] == [
        "counter",
        "unknown",
        "gauge",
        "unknown",
    ]
    units = {family.name: family.unit for family in families} if form == exposition.OPENMETRICS else {}
    assert all(units[metric.family] == metric.unit for metric in CATALOGUE if metric.unit and units)


def test_nothing_read_is_nothing_written() -> None:
    assert exposition.render((), exposition.TEXT) == b""
    assert exposition.render((), exposition.OPENMETRICS) == b"# EOF\n"
