from __future__ import annotations

import json
from pathlib import Path

import pytest

from build.settings import Sources
from build.units import GIB
from supervisor.configuration import configure
from supervisor.memory.figures import published
from supervisor.memory.needs import RESERVE, reserve_differs
from supervisor.memory.plan import NodePlan
from supervisor.memory.report import Asked, as_text, report

WEIGHTS = int(98.7 * GIB)
WINDOW = 1 << 20
SETTINGS = (("context", "auto", "default"), ("min_avail_gib", "4.0", "config.toml:3"))


def head(available_gib: float, parallel: int = 4) -> NodePlan:
    figures = published("dsv41")
    per_token = 930 + figures.state_bytes_per_token * parallel
    return NodePlan("head", int(available_gib * GIB), WEIGHTS, per_token, figures.scratch_bytes)


def test_the_published_headroom_at_the_whole_window_and_four_streams() -> None:
    left = 116 * GIB - head(116).need_bytes(WINDOW)
    assert 5.0 <= left / GIB <= 6.4


@pytest.mark.parametrize(("context", "fits"), [(524288, True), (655360, False)])
def test_what_was_reported_of_a_head_that_other_software_uses_6_gib_of(context: int, fits: bool) -> None:
    asked = Asked(context, WINDOW, 4 * GIB, 4.0, SETTINGS)
    found = report(asked, lambda _: (head(110),))
    assert bool(found["refused"]) is not fits
    assert 524288 <= found["largest_context_tokens"] < 655360
    assert fits or str(found["largest_context_tokens"]) in found["refused"]


def test_every_node_has_a_table_and_every_setting_its_origin() -> None:
    plans = (head(116), NodePlan("worker", 0, WEIGHTS, 930))
    found = report(Asked("auto", WINDOW, 4 * GIB, 4.0, SETTINGS), lambda _: plans, {"worker": "no route to host"})
    text = as_text(json.loads(json.dumps(found)))
    assert "context: 1048576 tokens" in text
    assert "head, by" in text
    assert "worker, by" in text
    assert "not read: no route to host" in text
    assert "min_avail_gib  4.0  (config.toml:3)" in text
    assert "the whole window fits until" in text


def test_what_would_change_a_refusal_is_said() -> None:
    found = report(Asked(655360, WINDOW, 4 * GIB, 4.0, SETTINGS), lambda _: (head(100),))
    assert "more must be available" in as_text(found)


@pytest.mark.parametrize(
    ("given", "floor", "said"), [("6", "4", True), ("4.0", "4", False), (None, "4", False), ("much", "4", True)]
)
def test_an_engine_reserve_that_is_not_the_floor_is_told(given: str | None, floor: str, said: bool, tmp_path: Path) -> None:
    environ = {} if given is None else {RESERVE: given}
    one = configure(Sources(None, {"TWINFOLD_STATE_DIR": str(tmp_path), **environ}, {"min_avail_gib": float(floor)}))
    told = reserve_differs(one)
    assert bool(told) is said
    assert not said or (f"{RESERVE} = {given}" in told and "4 GiB" in told)
