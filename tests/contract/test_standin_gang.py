"""The stand-in as a gang: worlds of 1, 2 and 4, losses and hangs, queues, memory, keys, both dialects."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from tests.testing.standin import NAME, WORLDS, Answer, Gang, long_request, wait_for

QUESTION = "What is 6 times 7?"
ESSAY = "Write an essay about the gang rule."


def total(gang: Gang, name: str) -> float:
    """The sum of a metric's samples."""
    lines = gang.get("/metrics").body.decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((name + "{", name + " ")))


def in_background(gang: Gang, question: str, into: list[Answer], **fields: object) -> threading.Thread:
    thread = threading.Thread(target=lambda: into.append(gang.chat(question, **fields)))
    thread.start()
    return thread


def started(gang: Gang) -> None:
    wait_for("a request runs and has tokens", lambda: total(gang, "tensorfold:generation_tokens_running") > 0)


def test_tokens_are_the_same_in_every_world_after_a_restart_and_without_drafts(tmp_path: Path) -> None:
    setups: list[tuple[int, list[str], list[str]]] = [(world, [], []) for world in WORLDS]
    setups += [(2, [], []), (2, ["--no-drafts"], ["--drafts", "0"])]
    seen = set()
    for place, (world, options, flags) in enumerate(setups):
        folder = tmp_path / str(place)
        folder.mkdir()
        with Gang(folder, world, options, lane_flags=flags) as gang:
            answers = [gang.sha(ESSAY), gang.sha(ESSAY, temperature=1, seed=3), gang.sha(QUESTION, reasoning_effort="high")]
            seen.add(tuple(answers))
            for rank in range(1, world):
                assert json.loads(gang.ranks[rank].text().splitlines()[0])["rank"] == rank
            gang.ranks[0].signal(signal.SIGTERM)
            assert [rank.wait() for rank in gang.ranks.values()] == [0] * world
            for rank in range(1, world):
                assert json.loads(gang.ranks[rank].text().splitlines()[-1]) == {"rank": rank, "followed": True}
    assert len(seen) == 1


def test_a_killed_rank_0_takes_its_follower_with_it(tmp_path: Path) -> None:
    with Gang(tmp_path) as gang:
        gang.ranks[0].signal(signal.SIGKILL)
        assert gang.ranks[1].wait() == 1
        assert '{"rank": 1, "follow": "PeerDown"}' in gang.ranks[1].text()


def test_a_killed_follower_fails_live_requests_and_leaves_health_at_200(tmp_path: Path) -> None:
    with Gang(tmp_path, environment={"TF_STANDIN_ROUND_MS": "20"}) as gang, long_request(gang) as stream:
        events = stream.getresponse()
        waiting: list[Answer] = []
        thread = in_background(gang, ESSAY, waiting, ignore_eos=True, max_tokens=20000)
        started(gang)
        gang.ranks[1].signal(signal.SIGKILL)
        thread.join()
        tail = events.read().decode().split("\n\n")
        assert waiting[0].status == 500
        assert "PeerDown" in waiting[0].json()["error"]["message"]
        assert "PeerDown" in tail[-3]
        assert tail[-2] == "data: [DONE]"
        assert gang.get("/health").status == 200
        assert gang.chat(QUESTION).status == 500
        assert gang.ranks[0].process.poll() is None
        assert "reason=error (PeerDown)" in gang.ranks[0].text()


def test_a_stopped_follower_hangs_requests_while_health_and_metrics_answer(tmp_path: Path) -> None:
    with Gang(tmp_path) as gang:
        gang.ranks[1].signal(signal.SIGSTOP)
        answers: list[Answer] = []
        thread = in_background(gang, QUESTION, answers)
        wait_for("the request runs", lambda: gang.get("/health").json()["live"]["connections"] == 1)
        thread.join(1.0)
        assert thread.is_alive()
        assert gang.get("/v1/models").status == 200
        assert total(gang, "tensorfold:requests_running") == 1
        gang.ranks[1].signal(signal.SIGCONT)
        thread.join()
        assert answers[0].status == 200


def test_sigterm_ends_rank_0_even_while_a_stopped_follower_holds_a_round(tmp_path: Path) -> None:
    with Gang(tmp_path) as gang, long_request(gang):
        started(gang)
        gang.ranks[1].signal(signal.SIGSTOP)
        gang.ranks[0].signal(signal.SIGTERM)
        assert gang.ranks[0].wait() == 0


@pytest.mark.parametrize(
    ("flags", "error"),
    [(["--pool", "1024"], "PoolExceeded"), (["--drafts", "0"], "DraftsDiffer"), (["--context", "1024"], "ContextExceeded")],
)
def test_settings_that_differ_between_ranks_hang(flags: list[str], error: str, tmp_path: Path) -> None:
    with Gang(tmp_path, lane_flags=flags) as gang, long_request(gang):
        wait_for("the follower refuses", lambda: f'{{"follow_refused": "{error}"}}' in gang.ranks[1].text())
        assert gang.get("/health").status == 200
        assert gang.get("/health").json()["live"]["connections"] == 1


def test_the_queue_has_no_end_and_a_client_that_leaves_frees_its_stream(tmp_path: Path) -> None:
    with Gang(tmp_path, options=["--parallel", "1"], environment={"TF_STANDIN_ROUND_MS": "5"}) as gang:
        answers: list[Answer] = []
        with long_request(gang):
            started(gang)
            threads = [in_background(gang, QUESTION, answers) for _ in range(12)]
            wait_for("twelve wait", lambda: total(gang, "tensorfold:requests_waiting") == 12)
        for thread in threads:
            thread.join()
        assert [answer.status for answer in answers] == [200] * 12
        assert "reason=client-left" in gang.ranks[0].text()
        assert total(gang, "tensorfold:client_disconnections_total") == 1


def test_a_client_that_leaves_within_a_write_frees_its_stream_too(tmp_path: Path) -> None:
    """Rounds follow close on each other, so that the engine is mostly writing when the client goes."""
    with Gang(tmp_path, environment={"TF_STANDIN_ROUND_MS": "0.5"}) as gang:
        for left in range(1, 21):
            with long_request(gang) as connection:
                connection.getresponse().read(2000)
            wait_for("the stream is free", lambda n=left: total(gang, "tensorfold:client_disconnections_total") == n)
        assert gang.ranks[0].text().count("reason=client-left") == 20


def test_a_client_that_does_not_read_stalls_nobody(tmp_path: Path) -> None:
    with Gang(tmp_path) as gang, long_request(gang):
        started(gang)
        assert gang.chat(QUESTION).json()["choices"][0]["message"]["content"] == "42"


def test_streams_that_outgrow_memory_yield_and_still_say_the_same(tmp_path: Path) -> None:
    fields: dict[str, object] = {"ignore_eos": True, "max_tokens": 1700}
    questions = [ESSAY, "Tell me about leases.", "Who are you?", "Write an essay about logs."]
    with Gang(tmp_path, options=["--context", "2048"], lane_flags=["--pool", "2048"]) as gang:
        alone = [gang.sha(question, **fields) for question in questions]
        answers: dict[str, str] = {}
        threads = [
            threading.Thread(target=lambda q=question: answers.update({q: gang.sha(q, **fields)})) for question in questions
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [answers[question] for question in questions] == alone
        assert total(gang, "tensorfold:preemptions_total") > 0


def test_a_memory_full_of_kept_prompts_changes_no_reply(tmp_path: Path) -> None:
    """A page that is taken from a kept prompt and written at once must not be dropped afterwards: followers read it."""
    questions = ["What is 3 plus 4?", "What is 9 times 8?", "Who are you?"]
    with Gang(tmp_path, options=["--context", "2048"], lane_flags=["--pool", "2048"]) as gang:
        fresh = [gang.sha(question) for question in questions]
        for letter in "abcdef":
            gang.sha(f"{letter * 1500} {QUESTION}")
        assert [gang.sha(question) for question in questions] == fresh


def resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS:"))


@pytest.mark.parametrize(("gib", "kept"), [("4", True), ("0", False)])
def test_contexts_cost_memory_on_every_rank_and_are_kept_as_the_cache_allows(gib: str, kept: bool, tmp_path: Path) -> None:
    options, environment = ["--prompt-cache-gib", gib], {"TF_STANDIN_BYTES_PER_TOKEN": "8192"}
    with Gang(tmp_path, options=options, environment=environment) as gang:
        before = [resident_mib(rank.process.pid) for rank in gang.ranks.values()]
        peak = gang.chat("word " * 1600).json()
        assert peak["usage"]["prompt_tokens"] > 8000

        def grown() -> list[bool]:
            after = [resident_mib(rank.process.pid) for rank in gang.ranks.values()]
            return [now - then > 50 for then, now in zip(before, after, strict=True)]

        wait_for("memory is as the cache allows on both ranks", lambda: grown() == [kept, kept])
        assert (gang.get("/memory").json()["peak"] - gang.get("/memory").json()["cache"] > 50 << 20) is not kept


def test_loading_takes_the_time_and_memory_it_is_told_to(tmp_path: Path) -> None:
    with Gang(tmp_path, environment={"TF_STANDIN_LOAD_S": "0.8", "TF_STANDIN_LOAD_MIB": "64"}) as gang:
        assert json.loads(gang.ranks[1].text().splitlines()[0])["loaded_s"] >= 0.8
        assert all(resident_mib(rank.process.pid) > 64 for rank in gang.ranks.values())


def test_paces_of_prefill_and_rounds_are_kept(tmp_path: Path) -> None:
    environment = {"TF_STANDIN_PREFILL_TOK_S": "4000", "TF_STANDIN_ROUND_MS": "10"}
    with Gang(tmp_path, environment=environment) as gang:
        figures = gang.chat("word " * 800, ignore_eos=True, max_tokens=60).json()
        assert figures["tensorfold"]["prefill_seconds"] >= 0.9
        decode_s = figures["tensorfold"]["seconds"] - figures["tensorfold"]["prefill_seconds"]
        assert decode_s >= 0.01 * figures["speculative"]["rounds"] * 0.9


def test_an_api_key_file_guards_all_but_a_bare_health(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("not-a-real-key\n")
    with Gang(tmp_path, options=["--api-key-file", str(tmp_path / "key")]) as gang:
        assert gang.get("/health").json() == {"status": "ok"}
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "not-a-real-key"}):
            assert gang.request("GET", "/v1/models", headers=headers).status == 401
            assert gang.request("GET", "/metrics", headers=headers).status == 401
        for headers in ({"Authorization": "Bearer not-a-real-key"}, {"x-api-key": "not-a-real-key"}):
            assert gang.request("GET", "/v1/models", headers=headers).status == 200
        assert "not-a-real-key" not in gang.ranks[0].text()


def test_the_other_dialect_counts_tokens_live_in_health_and_at_the_end_in_metrics(tmp_path: Path) -> None:
    environment = {"TF_STANDIN_DIALECT": "totals", "TF_STANDIN_ROUND_MS": "5"}
    with Gang(tmp_path, environment=environment) as gang:
        with long_request(gang):
            wait_for("tokens are counted", lambda: gang.get("/health").json()["completion_tokens_total"] > 20)
            health = gang.get("/health").json()
            assert (health["ok"], health["inflight"], health["streams"]["decoding"]) == (True, 1, 1)
            assert total(gang, "tensorfold_completion_tokens_total") == 0
        wait_for("the request's end is counted", lambda: total(gang, "tensorfold_completion_tokens_total") > 20)
        promtool = shutil.which("promtool")
        if promtool is None:
            pytest.skip("promtool is not installed")
        page = gang.get("/metrics").body
        done = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, check=False, env=dict(os.environ))
        assert (done.returncode, done.stdout + done.stderr) == (0, b"")
        gang.ranks[1].signal(signal.SIGKILL)
        assert gang.chat(QUESTION).status == 500
        assert gang.get("/health").status == 200
        assert gang.get("/health?strict=1").status == 503


def test_connections_are_kept_and_bodies_may_come_in_chunks(tmp_path: Path) -> None:
    with Gang(tmp_path, world=1) as gang:
        connection = http.client.HTTPConnection("127.0.0.1", gang.port, timeout=60)
        body = json.dumps({"model": NAME, "messages": [{"role": "user", "content": QUESTION}], "temperature": 0}).encode()
        for _ in range(3):
            pieces = iter([body[:10], body[10:]])
            connection.request("POST", "/v1/chat/completions", pieces, encode_chunked=True)
            answer = connection.getresponse()
            assert answer.status == 200
            answer.read()
        port = connection.sock.getsockname()
        assert port is not None
        connection.close()
