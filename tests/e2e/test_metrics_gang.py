"""A running gang's metrics, as Prometheus would see them while one long request runs."""

from __future__ import annotations

import http.client
import json
import subprocess
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from build.units import MIB
from supervisor.engine.promtext import parse
from tests.testing.demo import demo_state
from tests.testing.supervised import Supervised
from tests.testing.waiting import until

# slow enough to be seen at work, and hungry: each token touches a MiB on every rank
PACE = {"TF_STANDIN_ROUND_MS": 250, "TF_STANDIN_BYTES_PER_TOKEN": MIB}
LONG_PROMPT = "Tell me all you know about memory, links and reproducible builds."

pytestmark = pytest.mark.timeout(1500)


@pytest.fixture(scope="module")
def gang(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    folder = tmp_path_factory.mktemp("gang")
    gang = Supervised(demo_state(folder), folder, **PACE)
    try:
        gang.start().wait_ready()
        until("a snapshot of the serving gang", lambda: figures(get(gang), "twinfold_gang_state").get((("state", "serving"),)))
        until("a reading of the engine", lambda: figures(get(gang), "twinfold_generated_tokens_total"))
        yield gang
    finally:
        gang.close()


def get(gang: Supervised, path: str = "/metrics", port: int | None = None) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port or gang.metrics_port, timeout=30)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def figures(text: str, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    """One metric's samples by their labels."""
    return {tuple(sorted(p.labels.items())): p.value for family in parse(text) for p in family.points if p.name == name}


def one(text: str, name: str) -> float:
    (value,) = figures(text, name).values()
    return value


def promtool_says(text: str) -> tuple[int, str, str]:
    done = subprocess.run(["promtool", "check", "metrics"], check=False, input=text, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_promtool_finds_nothing_to_say(gang: Supervised) -> None:
    assert promtool_says(get(gang)) == (0, "", "")


def test_a_served_gang_shows_itself_whole(gang: Supervised) -> None:
    text = get(gang)
    ranks = figures(text, "twinfold_rank_up")
    assert {dict(labels)["rank"]: up for labels, up in ranks.items()} == {"0": 1.0, "1": 1.0}
    assert one(text, "twinfold_engine_up") == 1
    assert one(text, "twinfold_launches_total") == 1
    assert set(figures(text, "twinfold_restarts_total").values()) == {0.0}
    assert figures(text, "twinfold_probe_success")[("probe", "smoke"),] == 1
    phases = {dict(labels)["phase"] for labels in figures(text, "twinfold_launch_phase_duration_seconds")}
    assert {"gating", "launching", "probing", "serving"} <= phases
    (bundle,) = figures(text, "twinfold_bundle_info")
    assert dict(bundle)["target"] == "demo"


def test_tokens_and_the_headroom_of_both_ranks_move_during_one_long_request(gang: Supervised) -> None:
    before = get(gang)
    nodes = {dict(labels)["rank"]: dict(labels)["node"] for labels in figures(before, "twinfold_rank_up")}
    start = one(before, "twinfold_generated_tokens_total")
    request = gang.ask_in_background(LONG_PROMPT, chat_template_kwargs={"enable_thinking": False})
    seen: dict[float, str] = {}  # by tokens generated, so that each is a step of progress

    def headrooms(rank: str) -> list[float]:
        node = (("node", nodes[rank]),)
        return [figures(text, "twinfold_memory_headroom_bytes")[node] for text in (before, *seen.values())]

    def moved_enough() -> bool:
        text = get(gang)
        tokens = one(text, "twinfold_generated_tokens_total")
        if tokens > start and one(text, "twinfold_requests_running") == 1:
            seen.setdefault(tokens, text)
        return len(seen) >= 3 and all(len(set(headrooms(rank))) >= 3 for rank in ("0", "1"))

    until("three readings of each while the request runs", moved_enough)
    status, answer = request.outcome()  # type: ignore[misc]
    assert status == 200, answer
    assert max(seen) <= start + answer["usage"]["completion_tokens"]
    assert list(seen) == sorted(seen)
    assert max(one(text, "twinfold_decode_tokens_per_second") for text in seen.values()) > 0
    for rank in ("0", "1"):
        headroom = headrooms(rank)
        assert headroom[0] - min(headroom) > 64 * MIB, headroom


def test_a_reply_is_counted_once_and_whole(gang: Supervised) -> None:
    before = one(get(gang), "twinfold_generated_tokens_total")
    status, answer = gang.ask("What is 6 times 7?")
    assert status == 200
    engine = one(get(gang, port=gang.port), "tensorfold:generation_tokens_total")
    assert engine >= before + answer["usage"]["completion_tokens"]
    until("the engine's own total", lambda: one(get(gang), "twinfold_generated_tokens_total") == engine)


def test_status_page_and_command_tell_the_same(gang: Supervised) -> None:
    status = json.loads(get(gang, "/status.json"))
    assert (status["state"], status["ready"], status["url"]) == ("serving", True, f"http://127.0.0.1:{gang.port}/v1")
    told = gang.command("status", "--json")
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["launch_id"] == status["launch_id"]
    assert "<h1>twinfold</h1>" in get(gang, "/")
    assert get(gang, "/readyz") == "ok\n"


def test_a_replaced_gang_is_counted_and_its_tokens_are_kept(gang: Supervised) -> None:
    before = one(get(gang), "twinfold_generated_tokens_total")
    assert before > 0
    assert gang.command("restart").returncode == 0
    gang.wait_ready(2)
    asked = (("reason", "asked"),)
    until("the restart in the metrics", lambda: figures(get(gang), "twinfold_restarts_total")[asked] == 1)
    until("a reading of the new engine", lambda: one(get(gang), "twinfold_engine_up") == 1)
    text = get(gang)
    assert one(text, "twinfold_generated_tokens_total") >= before
    assert one(text, "twinfold_launches_total") == 2


def stream(gang: Supervised, prompt: str) -> Generator[float]:
    """The moments at which a reply's tokens come."""
    connection = http.client.HTTPConnection("127.0.0.1", gang.port, timeout=120)
    messages = [{"role": "user", "content": prompt}]
    body = {"model": "twinfold-demo", "messages": messages, "stream": True, "max_tokens": 1000, "ignore_eos": True}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    try:
        while line := reply.readline():
            if line.startswith(b"data: {") and any(
                choice["delta"].get("content") or choice["delta"].get("reasoning_content")
                for choice in json.loads(line[6:])["choices"]
            ):
                yield time.monotonic()
    finally:
        connection.close()


def test_a_long_request_shows_in_tokens_a_second_soon_after_its_first_token(gang: Supervised) -> None:
    rate = "twinfold_decode_tokens_per_second"
    until("an idle engine", lambda: one(get(gang), rate) == 0 and one(get(gang), "twinfold_requests_running") == 0)
    ended = one(get(gang, port=gang.port), "tensorfold:generation_tokens_total")
    tokens = stream(gang, LONG_PROMPT)
    first_s = next(tokens)
    until("tokens a second", lambda: one(get(gang), rate) > 0)
    took_s = time.monotonic() - first_s
    print(f"tokens a second showed {took_s:.2f} s after the first token")
    assert one(get(gang, port=gang.port), "tensorfold:generation_tokens_total") == ended, (
        "the engine's own total moves at the end"
    )
    assert took_s < 10 * 2.0
    tokens.close()


def test_the_other_dialect_with_an_api_key_is_read_as_well(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("sesame-opens-this\n")
    key.chmod(0o600)
    gang = Supervised(demo_state(tmp_path), tmp_path, api_key_file=key, TF_STANDIN_DIALECT="totals", idle_probe_s=1)
    try:
        gang.start().wait_ready()
        until("tokens of the smoke test", lambda: sum(figures(get(gang), "twinfold_generated_tokens_total").values()) > 0)
        text = get(gang)
        assert one(text, "twinfold_engine_up") == 1
        assert figures(text, "twinfold_requests_running")
        assert one(text, "twinfold_prompt_tokens_total") > 0
        assert figures(text, "tensorfold_requests_rejected_total"), "a family without a name of ours is passed through"
        assert "sesame" not in text + get(gang, "/status.json")
        checked = subprocess.run(
            ["promtool", "check", "metrics"], check=False, input=text, capture_output=True, text=True, timeout=60
        )
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    finally:
        gang.close()
