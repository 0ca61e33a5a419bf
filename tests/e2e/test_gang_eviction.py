"""Conversations that grow until memory runs short, with real memory: the gang comes back a rung down and nobody hangs."""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from build.units import MIB
from tests.testing.demo import demo_state
from tests.testing.memory_group import MemoryGroup, NoGroups
from tests.testing.supervised import Supervised
from tests.testing.waiting import exists, until

pytestmark = pytest.mark.timeout(1500)
LIMIT = 1100 * MIB
TOP, BELOW = 8192, 6144
# 64 KiB a token a rank: a full context of 8192 takes the whole gigabyte, one of 6144 leaves the floor
BYTES_PER_TOKEN = 64 << 10
SENTENCE = "Memory, links and reproducible builds are what this conversation is about. "


@pytest.fixture
def group(tmp_path: Path) -> Iterator[MemoryGroup]:
    try:
        with MemoryGroup(tmp_path / "proc", LIMIT) as made:
            yield made
    except NoGroups as error:
        pytest.skip(f"no memory control groups: {error}")


class Conversation:
    """Grows with every answer, until it is too long or the gang goes away. Every outcome is kept; a hang is none."""

    def __init__(self, gang: Supervised) -> None:
        self.gang, self.text = gang, SENTENCE * 8
        self.outcomes: list[str] = []
        self._thread = threading.Thread(target=self._talk, daemon=True)
        self._thread.start()

    def _talk(self) -> None:
        while len(self.outcomes) < 200:
            try:
                status, answer = self.gang.ask(self.text, max_tokens=16, patience_s=60)
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.outcomes.append(type(error).__name__)
                return
            self.outcomes.append(str(status))
            if status != 200:
                self.outcomes.append(json.dumps(answer))
                return
            self.text += SENTENCE * 8

    def over(self) -> list[str]:
        self._thread.join(90)
        assert not self._thread.is_alive(), f"a client hangs after {self.outcomes[-3:]}"
        return self.outcomes


def test_growing_conversations_are_answered_one_rung_down_and_nobody_hangs(group: MemoryGroup, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "proc_root": group.root, "min_avail_gib": 0.15, "context": TOP, "context_least": 1024, "context_bytes_per_token": 930,
        "TF_STANDIN_BYTES_PER_TOKEN": BYTES_PER_TOKEN, "TF_STANDIN_PREFILL_TOK_S": 1500, "gate_stable_s": 0.3,
    }  # fmt: skip
    gang = Supervised(demo_state(tmp_path), tmp_path, **settings)
    try:
        gang.start()
        group.add(gang.running.pid)
        gang.wait_ready()
        ranks = gang.pids()
        talks = [Conversation(gang) for _ in range(2)]
        gang.wait_ready(times=2)
        assert not any(exists(pid) for pid in ranks.values())
        outcomes = [talk.over() for talk in talks]
        assert all(one[0] == "200" for one in outcomes), "they were served before"
        assert group.lowest_bytes > 0

        status = gang.wait_state("serving", launch=2)
        assert (status["context_tokens"], status["context_ladder_rung"]) == (BELOW, 1)
        assert "1 rung down after an eviction" in gang.command("status").stdout
        assert f"the next launch takes at most {BELOW}" in gang.err
        back = re.search(r"memory was back (\d+\.\d) s after the eviction", gang.err)
        assert back is not None
        print(f"memory was back {back[1]} s after the eviction; {group.lowest_bytes / MIB:.0f} MiB were left at the lowest")
        assert float(back[1]) < 60
        assert sum(gang.series("twinfold_evictions_total").values()) == 1
        assert list(gang.series("twinfold_context_ladder_rung").values()) == [1.0]
        assert list(gang.series("twinfold_context_tokens").values()) == [float(BELOW)]
        reasons = {one["reason"] for one in status["restarts"]}
        assert len(reasons) == 1
        assert reasons <= {"memory soft floor", "memory hard floor", "memory slope"}

        again = Conversation(gang).over()  # up to what the smaller context takes: refused there, never evicted again
        assert "context_length_exceeded" in again[-1]
        assert gang.status()["launch"] == 2
        assert gang.command("restart").returncode == 0
        assert gang.status()["context_tokens"] == TOP
    finally:
        gang.close()


def test_after_a_quiet_time_the_gang_goes_one_rung_up(group: MemoryGroup, tmp_path: Path) -> None:
    gang = Supervised(
        demo_state(tmp_path), tmp_path, proc_root=group.root, min_avail_gib=0.15, context=TOP, ladder_up_s=3, probe_period_s=0.2
    )
    try:
        (gang.state / "run").mkdir(exist_ok=True)
        (gang.state / "run" / "ladder.json").write_text(
            '{"cap_tokens": 4096, "top_tokens": 8192, "evictions": 1, "moved_s": 0.0}'
        )
        gang.start().wait_ready()
        assert gang.status()["context_tokens"] == 4096
        gang.wait_ready(times=2)
        assert gang.wait_state("serving", launch=2)["context_tokens"] == BELOW
        until("the top", lambda: gang.status().get("context_tokens") == TOP)
        assert gang.wait_state("serving", launch=3)["context_ladder_rung"] == 0
        assert gang.status()["restarts"] == [{"reason": "ladder", "count": 2}]
    finally:
        gang.close()
