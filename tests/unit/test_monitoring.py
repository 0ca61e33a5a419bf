"""Dashboards, rules and configuration: what is checked in is what the catalogue gives, and what is unknown is refused."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.catalog import CATALOGUE, HEADROOM
from metrics.monitoring import files, grafana, promql
from metrics.monitoring.alerts import ALERTS
from metrics.monitoring.boards import BOARDS
from metrics.monitoring.panels import Board, Panel, Query, Row
from metrics.monitoring.promql import Unknown, check, names
from metrics.monitoring.yamltext import dump
from tests.testing.checkout import CHECKOUT

promtool = pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")


def test_the_generated_files_are_the_checked_in_ones() -> None:
    assert files.stale(CHECKOUT) == ()


def test_a_file_that_is_stale_missing_or_left_over_is_named(tmp_path: Path) -> None:
    files.write(tmp_path)
    assert files.stale(tmp_path) == ()
    (tmp_path / "metrics/prometheus.yml").write_text("edited")
    (tmp_path / "metrics/rules/alerts.yml").unlink()
    (tmp_path / "metrics/dashboards/old.json").write_text("{}")
    assert files.stale(tmp_path) == ("metrics/dashboards/old.json", "metrics/prometheus.yml", "metrics/rules/alerts.yml")
    files.write(tmp_path)
    assert files.stale(tmp_path) == ()


@pytest.mark.parametrize(
    ("expression", "names_"),
    [
        ("twinfold_headroom_bytes", "twinfold_headroom_bytes"),
        ('rate(twinfold_tokens_total{job=~"$job"}[5m])', "twinfold_tokens_total"),
        ('sum by (node) (twinfold_memory_headroom_bytes{rank="0"})', "rank"),
        ("histogram_quantile(0.5, rate(twinfold_time_to_first_token_seconds[5m]))", "twinfold_time_to_first_token_seconds"),
    ],
)
def test_a_dashboard_that_names_what_the_catalogue_lacks_is_refused(expression: str, names_: str) -> None:
    board = Board("x", "X", "", (Row("R", (Panel("P", "", "short", (Query(expression),)),)),))
    with pytest.raises(Unknown, match=rf"panel 'P' of 'X' .*{names_}"):
        grafana.render(board)


def test_the_generator_fails_where_a_metric_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promql, "CATALOGUE", tuple(metric for metric in CATALOGUE if metric is not HEADROOM))
    with pytest.raises(Unknown, match=HEADROOM.name):
        files.generate()


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("up", {"up"}),
        ('a{x="b{c}", y!~"d e"} / on (job, instance) group_left (z) clamp_min(f[5m], 1e-9)', {"a", "f"}),
        ("sum without (x) (rate(a_total[$__rate_interval])) > bool 3 and b unless c offset 5m", {"a_total", "b", "c"}),
        ("time() - vllm:b", {"vllm:b"}),
        ('label_replace(a_bucket, "model_name", "$1", "model", "(.*)")', {"a_bucket"}),
    ],
)
def test_metric_names_are_told_from_everything_else(expression: str, expected: set[str]) -> None:
    assert names(expression) == expected


def test_every_query_and_rule_passes_its_own_check() -> None:
    for board in BOARDS:
        for panel in board.panels:
            for query in panel.queries:
                check(query.expression, panel.title)


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_a_dashboard_is_as_grafana_wants_it(board: Board) -> None:
    made = json.loads(grafana.render(board))
    assert made["id"] is None
    assert made["uid"] == board.uid
    assert made["graphTooltip"] == 2
    assert [variable["name"] for variable in made["templating"]["list"]] == ["datasource", "job", "node", "model"]
    ids = [panel["id"] for panel in made["panels"]]
    assert len(set(ids)) == len(ids)
    shown = [panel for panel in made["panels"] if panel["type"] != "row"]
    assert len(shown) == len(board.panels)
    for panel in shown:
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert re.search(r"Metrics?: (twinfold_\w+(, )?)+$", panel["description"])
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_windows_of_rates_are_grafanas() -> None:
    ranges = re.findall(r"\[([^\]]+)\]", "".join(q.expression for b in BOARDS for p in b.panels for q in p.queries))
    assert set(ranges) == {"$__rate_interval"}


def test_every_alert_has_a_page_and_says_what_to_do() -> None:
    made = files.generate()
    for alert in ALERTS:
        page = made[f"docs/alerts/{alert.name}.md"]
        assert alert.means in page
        assert all(step in page for step in (*alert.look, *alert.act))
        assert alert.severity in {"warning", "critical"}
        assert f"docs/alerts/{alert.name}.md" in made["metrics/rules/alerts.yml"]


@promtool
def test_promtool_finds_nothing_wrong_with_configuration_and_rules() -> None:
    for verb, name in (("config", "prometheus.yml"), ("rules", "rules/alerts.yml"), ("rules", "rules/recording.yml")):
        done = subprocess.run(
            ["promtool", "check", verb, str(CHECKOUT / "metrics" / name)], capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        assert "FAILED" not in done.stdout


TEXT = st.text(alphabet=st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")))
SCALARS = st.one_of(TEXT, st.booleans(), st.integers())
KEYS = st.text("abc-: #", min_size=1)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner.filter(lambda value: not isinstance(value, list)), max_size=3),
        st.dictionaries(KEYS, inner, max_size=3),
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text("abcxyz_", min_size=1), VALUES, max_size=4))
def test_yaml_reads_back_as_what_was_written(value: Mapping[str, Any]) -> None:
    yaml = pytest.importorskip("yaml")
    assert yaml.safe_load(dump(value, "one\ntwo")) == (value or None)


def test_longer_texts_stand_as_blocks() -> None:
    assert dump({"a": {"b": "one\n  two"}}) == "a:\n  b: |-\n    one\n      two\n"


def test_a_panels_description_names_its_metrics() -> None:
    panel = Panel("P", "What it shows.", "short", (Query("up"), Query("sum(up)")))
    assert panel.description == "What it shows. Metric: up"
    assert replace(panel, queries=(Query("b"), Query("a"))).description == "What it shows. Metrics: a, b"
