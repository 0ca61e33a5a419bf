"""What a gang really took is kept, and the next plan of the same bundle and context is made of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from build.units import MIB
from tests.testing.demo import demo_state
from tests.testing.memory_group import MemoryGroup, NoGroups
from tests.testing.supervised import Supervised, until

pytestmark = pytest.mark.timeout(600)
CONTEXT = 4096
BYTES_PER_TOKEN = 64 << 10  # a rank, while the settings plan with 930: what is measured is far from what was planned
SENTENCE = "Memory, links and reproducible builds are what this conversation is about. "


@pytest.fixture
def group(tmp_path: Path) -> Iterator[MemoryGroup]:
    try:
        with MemoryGroup(tmp_path / "proc", 2048 * MIB) as made:
            yield made
    except NoGroups as error:
        pytest.skip(f"no memory control groups: {error}")


def plan(gang: Supervised) -> dict[str, Any]:
    (node,) = json.loads(gang.command("plan", "--json").stdout)["nodes"]
    found: dict[str, Any] = node
    return found


def needed(node: dict[str, Any]) -> int:
    return int(node["rows"]["needed before a launch"])


def test_the_plan_of_a_bundle_that_was_served_is_made_of_what_it_took(group: MemoryGroup, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "proc_root": group.root, "min_avail_gib": 0.15, "context": CONTEXT, "probe_period_s": 0.1,
        "TF_STANDIN_BYTES_PER_TOKEN": BYTES_PER_TOKEN, "TF_STANDIN_PREFILL_TOK_S": 20000,
    }  # fmt: skip
    gang = Supervised(demo_state(tmp_path), tmp_path, **settings)
    try:
        before = plan(gang)
        assert not before["measured"]
        gang.start()
        group.add(gang.running.pid)
        gang.wait_ready()
        words = ""
        while True:  # until the context is full
            words += SENTENCE * 8
            status, answer = gang.ask(words, max_tokens=8)
            if status != 200:
                assert answer["error"]["code"] == "context_length_exceeded"
                break
        full_s = time.monotonic()
        until(
            "a sample of the full context", lambda: time.monotonic() - gang.status()["memory"][0]["sample_age_s"] > full_s + 0.5
        )
        assert gang.command("stop").returncode == 0
        assert gang.ended() == 0

        (kept,) = (gang.state / "memory").glob("*.json")
        assert kept.stat().st_mode & 0o777 == 0o600
        (took,) = json.loads(kept.read_text())
        assert took["context_tokens"] == CONTEXT
        assert took["filled"] > 0.7
        contexts = took["filled"] * CONTEXT * BYTES_PER_TOKEN * 2  # two ranks
        assert 0.7 * contexts < took["full_bytes"] - took["loaded_bytes"] < 1.5 * contexts + 64 * MIB
        assert took["said_bytes"] > 0

        after = plan(gang)
        assert after["measured"]
        assert "measured here in 1 launch" in gang.command("plan").stdout
        assert needed(after) - needed(before) > 0.6 * contexts
        # what stays available is chosen so that the figures of before would let it start, and the measured ones do not
        floor = (group.limit_bytes - took["loaded_bytes"] - contexts / 2) / (1 << 30)
        gang.env |= {"TWINFOLD_MIN_AVAIL_GIB": f"{floor:.3f}", "TWINFOLD_GATE_WAIT_S": "1"}
        refused = gang.command("plan")
        assert refused.returncode == 3
        assert "largest that fits" in refused.stderr
        assert not plan_at(gang, CONTEXT // 2)["measured"], "another context was not measured"

        gang.start()
        assert gang.ended() == 3
        assert "largest that fits" in gang.err.splitlines()[-1]
    finally:
        gang.close()


def plan_at(gang: Supervised, context: int) -> dict[str, Any]:
    (node,) = json.loads(gang.command("plan", "--json", TWINFOLD_CONTEXT=str(context)).stdout)["nodes"]
    found: dict[str, Any] = node
    return found
