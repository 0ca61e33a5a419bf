"""The status page in headless Chromium: live, in both colour schemes and on a phone, and nothing serious for axe-core to find."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest

from metrics.exporter import Exporter
from tests.testing.browser import browser, minutes, pair
from tests.testing.checkout import CHECKOUT
from tests.testing.demo import demo_state
from tests.testing.supervised import Supervised, kill

PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 900}
PATIENCE_S = 60.0
SHOWN_S = 2.0  # the goal, of which a test on a busy machine may take ten

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as started:
        yield started


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    exporter = Exporter("127.0.0.1", 0)
    exporter.start()
    for snapshot in minutes(count=60):
        exporter.publish(snapshot)
    yield exporter
    exporter.close()


class Page:
    """One page with all that its console said and all that it asked for."""

    def __init__(self, chromium: Any, port: int, scheme: str = "light", viewport: dict[str, int] | None = None) -> None:
        self.context = chromium.new_context(color_scheme=scheme, viewport=viewport or DESK)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: set[str] = set()
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.page.on("request", lambda request: self.asked.add(request.url))
        self.address = f"http://127.0.0.1:{port}"
        self.page.goto(self.address + "/")
        self.until("document.querySelectorAll('#nodes .curve').length > 0")

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def until(self, expression: str) -> None:
        """Wait for it from outside: the page's policy forbids what Playwright would put in for that."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.page.evaluate(expression):
            assert time.monotonic() < deadline, f"{expression} did not come; the page says: {self.text('main')}"
            self.page.wait_for_timeout(20)

    def close(self) -> None:
        self.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_nothing_serious_is_found_by_axe_and_nothing_is_said_on_the_console(
    chromium: Any, exporter: Exporter, scheme: str, viewport: dict[str, int]
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    shown = Page(chromium, exporter.port, scheme, viewport)
    # axe is put in from here, which the page's own policy forbids to everybody else
    found = Axe().run(shown.page, options={"resultTypes": ["violations"]}).response["violations"]
    serious = [f"{one['id']}: {one['nodes'][0]['html']}" for one in found if one["impact"] in {"serious", "critical"}]
    assert serious == []
    assert shown.said == []
    assert all(url.startswith((shown.address, "data:")) for url in shown.asked)
    wide = shown.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide[0] <= wide[1]
    shown.close()


def test_the_two_schemes_differ(chromium: Any, exporter: Exporter) -> None:
    grounds = []
    for scheme in ("light", "dark"):
        shown = Page(chromium, exporter.port, scheme)
        grounds.append(shown.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        shown.close()
    assert grounds[0] != grounds[1]


def test_the_page_shows_what_the_status_says_and_follows_it(chromium: Any, exporter: Exporter) -> None:
    shown = Page(chromium, exporter.port)
    assert shown.text("#state") == "serving"
    assert "DeepSeek-V4.1-Flash: serving for 3 h 12 min" in shown.text("#headline")
    assert shown.page.locator("#nodes .floor").count() == 4
    assert "12 (13 waits for a restart)" in shown.text("#bundle")
    assert "held down by power cap" in shown.text("#hardware")
    assert "rank 0: signal 9, rank 1: signal 9" in shown.text("#launches")
    ranks = [{"rank": 0, "node": "spark-a", "up": True, "loaded": True}, {"rank": 1, "node": "<b>", "up": False, "loaded": False}]
    exporter.publish(pair(time.time(), state="launching", ranks=ranks))
    shown.until("document.querySelector('#ranks').innerText.includes('down')")
    assert "rank 1 on <b>" in shown.text("#ranks")
    exporter.close()
    shown.until("document.querySelector('#state').innerText === 'no answer'")
    shown.close()


def test_a_node_below_its_floor_is_seen_at_once(chromium: Any, exporter: Exporter) -> None:
    memory = dict(pair(time.time()).status["memory"][0], headroom_bytes=-(1 << 30), available_bytes=3 << 30)
    exporter.publish(pair(time.time(), memory=[memory]))
    shown = Page(chromium, exporter.port)
    shown.until("document.querySelectorAll('#nodes .big').length === 1")
    assert shown.text("#nodes .big.bad") == "1.00 GiB below the floor"
    shown.close()


def test_the_first_request_can_be_copied(chromium: Any, exporter: Exporter) -> None:
    shown = Page(chromium, exporter.port)
    shown.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=shown.address)
    shown.page.click("#copy")
    shown.until("document.querySelector('#copy').innerText === 'Copied'")
    copied = shown.page.evaluate("navigator.clipboard.readText()")
    assert copied == shown.page.text_content("#request")
    body = json.loads(copied.split("-d '")[1].rstrip("'"))
    assert body["model"] == "DeepSeek-V4.1-Flash"
    shown.close()


def test_a_killed_rank_shows_on_a_running_gangs_page(chromium: Any, tmp_path: Path) -> None:
    gang = Supervised(demo_state(tmp_path), tmp_path)
    try:
        gang.start().wait_ready()
        gang.wait_state("serving")
        shown = Page(chromium, gang.metrics_port)
        shown.until("document.querySelector('#state').innerText === 'serving'")
        told = json.loads(shown.page.request.get(shown.address + "/status.json").text())
        fastjsonschema.compile(json.loads((CHECKOUT / "metrics/status.schema.json").read_text()))(told)
        began_s = time.monotonic()
        kill(gang.pids()[1])
        shown.until("/down|signal 9/.test(document.querySelector('main').innerText)")
        took_s = time.monotonic() - began_s
        print(f"the page showed a killed rank after {took_s:.2f} s")
        assert took_s < 10 * SHOWN_S
        shown.until("document.querySelector('#launches').innerText.includes('rank 1: signal 9')")
        gang.wait_ready(2)
        shown.until("document.querySelector('#state').innerText === 'serving'")
        assert shown.said == []
        shown.close()
    finally:
        gang.close()
