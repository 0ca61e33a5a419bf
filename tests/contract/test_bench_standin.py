"""The bench's readings against the stand-in's own: lengths, times, the key."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from build.errors import UsageError
from supervisor.bench.asking import asking
from supervisor.bench.command import _served
from supervisor.bench.measure import Bench
from supervisor.bench.plan import Decode, Options, Prefill, plan
from supervisor.engine.probes import endpoint
from tests.testing.standin import NAME, Gang

KEY = "open-sesame"
PREFILL_S = 20_000


@pytest.fixture(scope="module")
def gang(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gang]:
    environment = {"TF_STANDIN_PREFILL_TOK_S": str(PREFILL_S), "TF_STANDIN_ROUND_MS": "5"}
    with Gang(tmp_path_factory.mktemp("gang"), options=["--api-key", KEY], environment=environment) as running:
        yield running


def test_readings_are_those_of_the_engine(gang: Gang) -> None:
    where = endpoint(f"http://127.0.0.1:{gang.port}", KEY)
    assert _served(where, "", {}) == (NAME, 65536)
    options = Options(2, runs=1, reply_tokens=48, lengths=(8192,), limit_s=120)
    measured = Bench(asking(where), NAME, plan(options, 65536), "c0ffee", say=lambda _: None).run()
    assert (measured.ended, measured.why, measured.by, measured.different) == ("complete", "", "token_sha", ())
    ((prefill,),) = measured.readings[Prefill(8192)]
    assert abs(prefill.prompt_tokens - 8192) <= 8
    assert prefill.cached_tokens == 0
    assert prefill.prefill_s is not None
    assert prefill.ttft_s >= prefill.prefill_s >= 8192 / PREFILL_S * 0.7  # the last chunk's pause is not waited for
    for (group,) in (measured.readings[Decode(kind, 2)] for kind in ("prose", "code")):
        assert len(group) == 2
        for one in group:
            assert 1 < len(one.chunks_s) <= one.reply_tokens <= 48
            assert one.tpot_s is not None
            assert one.accepted_ratio is not None


def test_a_wrong_key_is_told_before_anything_is_measured(gang: Gang) -> None:
    with pytest.raises(UsageError, match="does not take the API key"):
        _served(endpoint(f"http://127.0.0.1:{gang.port}", "another"), "", {})
