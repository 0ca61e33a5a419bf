"""Every alert against made series, by Prometheus' own rule tester: when it fires, what it says, and when it stays quiet."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from build.units import GIB
from metrics.monitoring.alerts import ALERTS
from tests.testing.checkout import CHECKOUT

pytestmark = pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")


@dataclass(frozen=True)
class Case:
    """``series`` by selector in promtool's notation, a value each 15 s; ``fires`` are the labels expected at ``at``."""

    alert: str
    series: dict[str, str]
    at: str
    fires: tuple[dict[str, str], ...] = ()


def series(name: str, **labels: str) -> str:
    shown = ", ".join(f'{key}="{value}"' for key, value in {"job": "twinfold", "instance": "i", **labels}.items())
    return f"{name}{{{shown}}}"


A, B = {"node": "a"}, {"node": "b"}
FLOOR = {series("twinfold_memory_floor_bytes", node="a", stage="soft"): f"{4 * GIB}x40"}
HEADROOM = series("twinfold_memory_headroom_bytes", node="a")
SERVING = series("twinfold_gang_state", state="serving")
RUNNING = series("twinfold_requests_running", model="m")
RESTARTS = series("twinfold_restarts_total", reason="rank exit")
RANK_A = {series("twinfold_rank_up", rank="0", node="a"): "1x40", series("twinfold_rank_up", rank="1", node="a"): "1x40"}


def clock(node: str) -> str:
    return series("twinfold_gpu_sm_clock_hertz", node=node, device="0")


def link(name: str) -> str:
    return series(name, node="a", device="r0")


CASES = (
    Case("HeadroomLowAndFalling", FLOOR | {HEADROOM: f"{GIB}-{GIB // 64}x40"}, "3m", (A,)),
    Case("HeadroomLowAndFalling", FLOOR | {HEADROOM: f"{GIB}x40"}, "3m"),  # low, and stays
    Case("HeadroomLowAndFalling", FLOOR | {HEADROOM: f"{9 * GIB}-{GIB // 64}x40"}, "3m"),  # falls from far above
    Case("FloorBreached", {HEADROOM: f"{GIB} {-GIB}x40"}, "1m", (A,)),
    Case("FloorBreached", {HEADROOM: f"{GIB} {-GIB} {GIB}x40"}, "2m"),  # resolved
    Case("RankDown", {series("twinfold_rank_up", rank="1", node="b"): "1 0x40"}, "2m", (B | {"rank": "1"},)),
    Case("RankDown", {series("twinfold_rank_up", rank="1", node="b"): "1 0 0 1x40"}, "2m"),  # a relaunch
    Case("GangFlapping", {RESTARTS: "0 0 0 2 4 6 8x60"}, "15m", ({},)),
    Case("GangFlapping", {RESTARTS: "0 0 1x60"}, "15m"),
    Case("GangFlapping", {series("twinfold_restarts_total", reason="asked"): "0 2 4 6 8 10x60"}, "15m"),
    Case("GangGaveUp", {series("twinfold_gang_state", state="gave_up"): "0 1x20"}, "1m", ({"state": "gave_up"},)),
    Case(
        "NoProgress",
        {series("twinfold_last_progress_timestamp_seconds"): "0x40", RUNNING: "1x40", SERVING: "1x40"},
        "4m",
        ({},),
    ),
    Case(
        "NoProgress", {series("twinfold_last_progress_timestamp_seconds"): "0x40", RUNNING: "0x40", SERVING: "1x40"}, "4m"
    ),  # idle
    Case(
        "NoProgress", {series("twinfold_last_progress_timestamp_seconds"): "0+15x40", RUNNING: "1x40", SERVING: "1x40"}, "4m"
    ),  # at work
    Case("GuardSilent", RANK_A | {series("twinfold_guard_up", node="a"): "1 0x40"}, "2m", (A,)),
    Case("GuardSilent", RANK_A | {series("twinfold_guard_sample_age_seconds", node="a"): "0+15x40"}, "3m", (A,)),
    Case("GuardSilent", RANK_A | {series("twinfold_guard_sample_age_seconds", node="a"): "0.1x40"}, "3m"),
    Case("GuardSilent", {series("twinfold_guard_up", node="a"): "1 0x40"}, "2m"),  # no rank, nothing to guard
    Case("SampleStale", {series("twinfold_memory_sample_age_seconds", node="b"): "0+15x40"}, "3m", (B,)),
    Case("SampleStale", {series("twinfold_memory_sample_age_seconds", node="b"): "0.1x40"}, "3m"),
    Case("ClocksUnequal", {clock("a"): "2190e6x60", clock("b"): "1400e6x60", RUNNING: "1x60"}, "10m", ({"job": "twinfold"},)),
    Case("ClocksUnequal", {clock("a"): "2190e6x60", clock("b"): "1400e6x60", RUNNING: "0x60"}, "10m"),  # idle GPUs differ
    Case("ClocksUnequal", {clock("a"): "2190e6x60", clock("b"): "2150e6x60", RUNNING: "1x60"}, "10m"),
    Case("RailDown", {link("twinfold_link_up"): "1 1 0x40"}, "3m", (A | {"device": "r0"},)),
    Case("RailDown", {link("twinfold_link_up"): "0x40"}, "3m"),  # never was up
    Case("MtuChanged", {link("twinfold_link_mtu_bytes"): "9000 1500x40"}, "3m", (A | {"device": "r0"},)),
    Case("MtuChanged", {link("twinfold_link_mtu_bytes"): "9000x40"}, "3m"),
    Case("EngramOnNetwork", {series("twinfold_engram_on_network", node="a"): "1x4"}, "30s", (A,)),
    Case("EngramOnNetwork", {series("twinfold_engram_on_network", node="a"): "0x4"}, "30s"),
    Case(
        "DiskNearlyFull",
        {series("twinfold_disk_free_bytes", node="a"): "4x60", series("twinfold_disk_size_bytes", node="a"): "100x60"},
        "10m",
        (A,),
    ),
    Case(
        "DiskNearlyFull",
        {series("twinfold_disk_free_bytes", node="a"): "40x60", series("twinfold_disk_size_bytes", node="a"): "100x60"},
        "10m",
    ),
    Case("SettingsRefused", {series("twinfold_settings_refused"): "0 1x40"}, "3m", ({},)),
    Case("SettingsRefused", {series("twinfold_settings_refused"): "0 1 0x40"}, "3m"),  # taken back
    Case("StateFolderLost", {series("twinfold_state_folder_lost"): "0 1x40"}, "3m", ({},)),
    Case("StateFolderLost", {series("twinfold_state_folder_lost"): "0 1 0x40"}, "3m"),  # mounted again
    Case("SettingsDiffer", {series("twinfold_settings_parity"): "1 0x40"}, "1m", ({},)),
    Case("SettingsDiffer", {series("twinfold_settings_parity"): "1x40"}, "1m"),
    Case("StoreNotVerified", {series("twinfold_store_verified_timestamp_seconds"): f"{-31 * 86400}x4"}, "30s", ({},)),
    Case("StoreNotVerified", {series("twinfold_store_verified_timestamp_seconds"): f"{-29 * 86400}x4"}, "30s"),
    Case("ScrapeFailing", {series("up"): "1 0x40"}, "2m", ({},)),
    Case("ScrapeFailing", {series("up"): "1 0 0 1x40"}, "2m"),
    Case("ScrapeFailing", {'up{job="other", instance="i"}': "0x40"}, "2m"),
)


def _expected(case: Case) -> list[dict[str, object]]:
    alert = next(one for one in ALERTS if one.name == case.alert)
    by_target = {"job": "twinfold", "instance": "i"}
    return [
        {"exp_labels": {"severity": alert.severity, **({} if "job" in labels else by_target), **labels}} for labels in case.fires
    ]


def test_every_alert_is_tried_both_ways() -> None:
    firing = {case.alert for case in CASES if case.fires}
    quiet = {case.alert for case in CASES if not case.fires} | {"GangGaveUp"}
    assert firing == quiet == {alert.name for alert in ALERTS}


def without_annotations(text: str) -> str:
    """The rules without what they say: texts hold values, which the test against a running Prometheus sees."""
    kept, inside = [], False
    for line in text.splitlines():
        inside = line == "        annotations:" or (inside and line.startswith("          "))
        if not inside:
            kept.append(line)
    return "\n".join(kept) + "\n"


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alert}-{'fires' if case.fires else 'quiet'}")
def test_an_alert_fires_when_it_should_and_only_then(case: Case, tmp_path: Path) -> None:
    rules = tmp_path / "alerts.yml"
    rules.write_text(without_annotations((CHECKOUT / "metrics/rules/alerts.yml").read_text()))
    test = {
        "rule_files": [str(rules)],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "15s",
                "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
                "alert_rule_test": [{"alertname": case.alert, "eval_time": case.at, "exp_alerts": _expected(case)}],
            }
        ],
    }
    (tmp_path / "test.yml").write_text(json.dumps(test))
    done = subprocess.run(
        ["promtool", "test", "rules", str(tmp_path / "test.yml")], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
