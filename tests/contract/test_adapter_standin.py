"""The adapter against the stand-in engine: real processes started from the table, read through logs and HTTP."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import pytest

from build.bundle import Bundle, from_json
from build.store import generations
from supervisor.engine.contract import RankPaths, gang_commands, parity
from supervisor.engine.facts import Done, Fact, Followed, MemoryLine, RankLoaded, Ready, StartFailure
from supervisor.engine.line import Endpoint, ProbeFailed
from supervisor.engine.log import LogReader, logged
from supervisor.engine.probes import chat, get_models, question, read, smoke, tiny_generation
from supervisor.engine.validate import validate
from supervisor.settings import Serve
from tests.testing.demo import built_store
from tests.testing.waiting import free_port, until

PATIENCE_S = 60.0  # ten times what a start or an end may take
CONTEXT = 8192
F = TypeVar("F")
TOTALS = ("TF_STANDIN_DIALECT", "totals")


@dataclass
class Rank:
    """A started rank: its process, its log file, and the facts read from it so far."""

    process: subprocess.Popen[bytes]
    log: Path
    reader: LogReader = field(default_factory=LogReader)
    read_bytes: int = 0
    facts: list[Fact] = field(default_factory=list)

    def look(self) -> list[Fact]:
        with self.log.open("rb") as log:
            log.seek(self.read_bytes)
            piece = log.read()
        self.read_bytes += len(piece)
        self.facts += self.reader.feed(piece)
        return self.facts


@dataclass
class Gang:
    """A gang of real processes."""

    bundle: Bundle
    serve: Serve
    ranks: list[Rank]

    @property
    def where(self) -> Endpoint:
        return Endpoint(f"http://127.0.0.1:{self.serve.port}/v1")

    def said(self, rank: int, kind: type[F]) -> tuple[F, ...]:
        return tuple(fact for fact in self.ranks[rank].look() if isinstance(fact, kind))

    def loads(self) -> None:
        """Wait until rank 0 has loaded, and then until it serves."""
        until("rank 0 loads", lambda: self.said(0, MemoryLine))
        until("rank 0 serves", lambda: self.said(0, Ready) or self.said(0, StartFailure))
        assert not self.said(0, StartFailure)

    def refusal(self) -> StartFailure:
        """Why rank 0 has ended."""
        assert self.ranks[0].process.wait(PATIENCE_S)
        (failure,) = self.said(0, StartFailure)
        return failure


def demo() -> tuple[Path, Bundle]:
    store, entry = built_store()
    return store, from_json((store / entry / generations.BUNDLE_FILE).read_text(encoding="utf-8"), entry)


@contextlib.contextmanager
def gang(
    folder: Path,
    *,
    env: tuple[tuple[str, str], ...] = (),
    only: tuple[int, ...] = (1, 0),
    swap: Callable[[RankPaths], RankPaths] = lambda here: here,
    **serve: object,
) -> Iterator[Gang]:
    """Start ranks from the table, followers first, and end them whatever happens. ``swap`` changes a rank's paths."""
    store, bundle = demo()
    settings = Serve(**{"port": free_port(), "master_port": free_port(), **serve})  # type: ignore[arg-type]
    commands = gang_commands(
        bundle,
        settings,
        CONTEXT,
        [
            swap(
                RankPaths(
                    str(bundle.model.under(store)),
                    str(cache.under(store)),
                    str(bundle.kit.under(store)),
                    str(bundle.token_map.under(store)),
                    str(bundle.engram.under(store)) if bundle.engram else None,
                )
            )
            for cache in bundle.rank_caches
        ],
        binaries=(str(bundle.engine.server.under(store)), str(bundle.engine.follower.under(store))),
        master="127.0.0.1",
        engine_env=env,
        reserve_gib=0.5,
    )
    ranks: dict[int, Rank] = {}
    try:
        for rank in only:
            log = folder / f"rank{rank}.log"
            with log.open("wb") as out:
                command = commands[rank]
                process = subprocess.Popen(command.argv, env=dict(command.env), stdout=out, stderr=out, start_new_session=True)
            ranks[rank] = Rank(process, log)
        yield Gang(bundle, settings, [ranks[rank] for rank in sorted(ranks)])
    finally:
        for rank in ranks.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank.process.pid, signal.SIGKILL)
            rank.process.wait()


@pytest.fixture(params=[(), (TOTALS,)], ids=["live dialect", "totals dialect"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Gang]:
    with gang(tmp_path, env=(*request.param, ("TF_STANDIN_ROUND_MS", "5"))) as one:
        one.loads()
        yield one


def test_the_tables_commands_start_a_gang_whose_logs_and_readings_are_understood(served: Gang) -> None:
    (ready,) = served.said(0, Ready)
    assert (ready.port, ready.context_tokens, ready.drafts) == (served.serve.port, CONTEXT, "on")
    assert ready.probe_url == served.where.base_url
    assert served.said(1, RankLoaded)
    said = [logged(rank, one.look()) for rank, one in enumerate(served.ranks)]
    assert said[1].pool_tokens == said[0].context_tokens == CONTEXT
    assert parity(CONTEXT, True, said) == ()

    model = served.bundle.served_name
    assert get_models(served.where, PATIENCE_S) == (model,)
    result = smoke(served.where, model, served.bundle.smoke, deadline_s=PATIENCE_S)
    assert result.passed, result.verdict.why
    assert tiny_generation(served.where, model, PATIENCE_S).kind == "ok"
    until("the log tells of the reply", lambda: served.said(0, Done))

    before = read(served.where, PATIENCE_S)
    assert (before.busy, before.live, before.fatal in {None, False}) == (False, True, True)
    answers: list[object] = []
    body = question(model, "Tell me about tensor parallelism.", 400) | {"temperature": 1.0, "ignore_eos": True}
    asking = threading.Thread(target=lambda: answers.append(chat(served.where, body, PATIENCE_S)))
    asking.start()
    moves = set()
    while asking.is_alive():
        seen = read(served.where, PATIENCE_S)
        if seen.busy:
            moves.add(seen.generated_tokens_live)
    asking.join()
    after = read(served.where, PATIENCE_S)
    assert len(moves) > 2, "tokens are seen to move while the request runs"
    assert (after.generated_tokens_live or 0) > (before.generated_tokens_live or 0)
    assert (after.drafted_tokens or 0) >= (after.accepted_tokens or 0) > 0


def test_every_check_of_an_endpoint_holds(served: Gang) -> None:
    results = validate(served.where, asked=served.bundle.smoke, long_tokens=512, deadline_s=PATIENCE_S)
    assert [(r.name, r.evidence) for r in results if not r.ok] == []


def test_a_lone_rank_0_waits_for_its_peer_and_is_never_called_ready(tmp_path: Path) -> None:
    with gang(tmp_path, only=(0,)) as one:
        until("rank 0 loads", lambda: one.said(0, MemoryLine))
        with pytest.raises(ProbeFailed) as caught:
            read(one.where, 1.0)
        assert caught.value.kind in {"unreachable", "timeout"}
        assert not one.said(0, Ready)


def test_a_stopped_follower_shows_as_no_progress_with_health_still_answering(served: Gang) -> None:
    os.kill(served.ranks[1].process.pid, signal.SIGSTOP)
    body = question(served.bundle.served_name, "Tell me about memory.", 50)
    failed: list[str] = []

    def ask() -> None:
        try:
            chat(served.where, body, 3.0)
        except ProbeFailed as late:
            failed.append(late.kind)

    asking = threading.Thread(target=ask)
    asking.start()
    until("the request is seen", lambda: read(served.where, PATIENCE_S).busy)
    first = read(served.where, PATIENCE_S)
    asking.join()
    last = read(served.where, PATIENCE_S)
    assert failed == ["timeout"]
    assert first.generated_tokens_live == last.generated_tokens_live
    assert first.rounds == last.rounds


def test_a_dead_rank_0_is_told_by_its_follower(served: Gang) -> None:
    served.ranks[0].process.kill()
    until("the follower says why it ends", lambda: served.said(1, Followed))
    assert [fact for fact in served.ranks[1].facts if isinstance(fact, Followed)] == [Followed(1, "PeerDown")]
    assert served.ranks[1].process.wait(PATIENCE_S) == 1


def test_an_orderly_end_of_rank_0_ends_its_follower_cleanly(served: Gang) -> None:
    served.ranks[0].process.terminate()
    assert served.ranks[0].process.wait(PATIENCE_S) == 0
    assert served.ranks[1].process.wait(PATIENCE_S) == 0
    assert Followed(1) in served.ranks[1].look()


def test_settings_that_are_off_reach_both_ranks(tmp_path: Path) -> None:
    with gang(tmp_path, drafts=False, parallel=1) as one:
        one.loads()
        said = [logged(rank, rank_.look()) for rank, rank_ in enumerate(one.ranks)]
        assert [one.drafts for one in said] == [False, False]
        assert parity(CONTEXT, False, said) == ()


def test_too_little_memory_is_a_refusal_that_is_not_repeated(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "meminfo").write_text("MemTotal: 1000000 kB\nMemFree: 600000 kB\nMemAvailable: 500000 kB\n")
    with gang(tmp_path, env=(("TF_STANDIN_PROC", str(proc)),)) as one:
        failure = one.refusal()
        assert (failure.kind, failure.restart) == ("memory_refused", False), failure.message


Swap = Callable[[RankPaths, Path], RankPaths]


@pytest.mark.parametrize(
    ("swap", "kind"),
    [
        (lambda here, _: replace(here, model="/nowhere"), "model_path_missing"),
        (lambda here, empty: replace(here, rank_cache=str(empty)), "rank_cache_bad"),
    ],
    ids=["no model", "no rank file"],
)
def test_wrong_inputs_are_a_refusal_that_is_not_repeated(tmp_path: Path, swap: Swap, kind: str) -> None:
    with gang(tmp_path, only=(0,), swap=lambda here: swap(here, tmp_path)) as one:
        failure = one.refusal()
        assert (failure.kind, failure.restart) == (kind, False), failure.message


def test_a_taken_port_is_named_as_such(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, gang(tmp_path, port=taken.getsockname()[1]) as one:
        failure = one.refusal()
        assert (failure.kind, failure.restart) == ("port_taken", True), failure.message


def test_a_follower_that_finds_no_rank_0_is_worth_another_start(tmp_path: Path) -> None:
    with gang(tmp_path, only=(1,), env=(("TF_STANDIN_CONNECT_S", "0.5"),)) as one:
        follower = one.ranks[0]
        assert follower.process.wait(PATIENCE_S) == 1
        said = [fact for fact in follower.look() if isinstance(fact, StartFailure)]
        assert [(fact.kind, fact.restart) for fact in said] == [("peer_not_found", True)], follower.log.read_text()
