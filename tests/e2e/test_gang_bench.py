"""`supervisor bench` and `validate` of a served demo, as commands: figures, ends, and what status says afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import fastjsonschema
import pytest

from supervisor.engine.validate import NAMES
from tests.testing.checkout import CHECKOUT
from tests.testing.demo import demo_state
from tests.testing.supervised import PATIENCE_S, Supervised, until

pytestmark = pytest.mark.timeout(1500)
SCHEMA = json.loads((CHECKOUT / "supervisor/bench/report.schema.json").read_text())


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Supervised]:
    """A gang whose replies take a while."""
    gang = Supervised(demo_state(tmp_path), tmp_path, TF_STANDIN_ROUND_MS=20)
    try:
        yield gang.start().wait_ready()
    finally:
        gang.close()


def under_way(gang: Supervised, folder: Path) -> subprocess.Popen[bytes]:
    """A bench that measures by now: its own requests run."""
    with (folder / "bench.out").open("wb") as out, (folder / "bench.err").open("wb") as err:
        argv = gang.argv("bench", "--runs", "50", "--reply-tokens", "40", "--streams", "2", "--prefill", "1K")
        bench = subprocess.Popen(argv, cwd=CHECKOUT, env=gang.env, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
    until("timed replies", lambda: gang.status()["throughput"].get("generated_tokens", 0) > 700)
    return bench


def test_every_check_of_validate_holds_on_the_demo(shared: Supervised) -> None:
    done = shared.command("validate", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [(one["name"], one["ok"]) for one in json.loads(done.stdout)["checks"]] == [
        (name, True) for name in ("models", *NAMES)
    ]


def test_a_quick_bench_measures_compares_and_is_kept(shared: Supervised) -> None:
    done = shared.command("bench", "--quick", "--record", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    fastjsonschema.compile(SCHEMA)(found)
    assert (found["ended"], found["url"]) == ("complete", f"http://127.0.0.1:{shared.port}/v1")
    assert found["gang"]["bundle"] == shared.status()["bundle"]
    assert [(one["prompts"], one["streams"]) for one in found["decode"]] == [("prose", 1), ("prose", 4), ("code", 1), ("code", 4)]
    assert all(one["tokens_per_s"]["median"] > 0 and one["ttft_s"]["p50"] > 0 for one in found["decode"])
    assert [one["prefill_tokens"] for one in found["prefill"]] == [8192, 32768]
    for one in found["prefill"]:
        assert abs(one["prompt_tokens"] - one["prefill_tokens"]) < one["prefill_tokens"] * 0.01
        assert one["cached_tokens"] == 0
    assert found["same_tokens"]["by"] == "token_sha"
    assert (found["same_tokens"]["same"], found["published"]) == (True, [])
    told = shared.command("status").stdout.splitlines()[-1]
    assert told.startswith("measured ")
    assert "another bundle" not in told
    assert json.loads(shared.command("status", "--json").stdout)["bench"]["of_what_is_served"] is True


def test_tokens_are_the_same_under_other_switches(shared: Supervised) -> None:
    """Drafts, a second ring for the Engram's reads and pauses of prefill change the pace, never a reply."""
    asked = ("--quick", "--runs", "1", "--prefill", "1K")
    assert shared.command("bench", *asked, "--record").returncode == 0
    switches = {"TF_DS_ENGRAM_LANES": "2", "PREFILL_INTERLEAVE_MS": "5"}
    assert shared.command("restart", "--set", "drafts=false", **switches).returncode == 0
    done = shared.command("bench", *asked)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "same tokens as in the bench that was recorded before" in done.stdout


def test_a_bench_for_people_says_what_was_left_out_and_that_nothing_is_published(shared: Supervised) -> None:
    done = shared.command("bench", "--runs", "1", "--reply-tokens", "16", "--prefill", "1K,256K")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "left out: prefill 256K: does not fit the context of 65536 tokens" in done.stdout
    assert "prefill 62K" in done.stdout
    assert "published figures: none for this target" in done.stdout


def test_nothing_that_listens_is_said_with_what_to_do(shared: Supervised) -> None:
    done = shared.command("bench", "--url", f"http://127.0.0.1:{shared.master_port + 1}")
    assert (done.returncode, done.stdout) == (1, "")
    assert "nothing listens there" in done.stderr
    assert shared.command("bench", "--url", shared.status()["url"], "--record").returncode == 2
    assert shared.command("bench", "--prefill", "8Q").returncode == 2


def test_ctrl_c_prints_what_was_measured_so_far(slow: Supervised, tmp_path: Path) -> None:
    bench = under_way(slow, tmp_path)
    bench.send_signal(signal.SIGINT)
    assert bench.wait(PATIENCE_S) == 130
    told = (tmp_path / "bench.out").read_text()
    assert "ended early: interrupted" in told
    assert "prose, 1 stream" in told
    assert (tmp_path / "bench.err").read_text() == ""


def test_an_engine_that_dies_meanwhile_ends_the_bench_with_what_was_measured(slow: Supervised, tmp_path: Path) -> None:
    bench = under_way(slow, tmp_path)
    os.kill(slow.pids()[1], signal.SIGKILL)
    assert bench.wait(PATIENCE_S) == 1
    assert "ended early: " in (tmp_path / "bench.out").read_text()
    assert (tmp_path / "bench.err").read_text().startswith("error: ")
