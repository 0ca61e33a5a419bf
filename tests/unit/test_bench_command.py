"""What `supervisor bench` finds out of an endpoint before it measures."""

from __future__ import annotations

import json

import pytest

from build.errors import TwinfoldError, UsageError
from supervisor.bench.command import _others, _served
from supervisor.cli import _parser, main
from supervisor.engine.probes import endpoint
from tests.testing.api import JSON, serving


def models(*rows: dict[str, object], status: int = 200):  # type: ignore[no-untyped-def]
    return {"/v1/models": lambda _: (status, JSON, json.dumps({"data": rows}).encode())}


@pytest.mark.parametrize(
    ("row", "context"),
    [
        ({"id": "m", "context_length": 4096}, 4096),
        ({"id": "m", "max_model_len": 8192}, 8192),
        ({"id": "m"}, None),
        ({"id": "m", "context_length": "long"}, None),
        ({"id": "m", "context_length": True}, None),
        ({"id": "m", "context_length": -5}, None),
    ],
)
def test_the_context_is_the_endpoints_own_word(row: dict[str, object], context: int | None) -> None:
    with serving(models(row, {"id": "other"})) as api:
        assert _served(endpoint(api.url), "", {}) == ("m", context)
        assert _served(endpoint(api.url), "other", {}) == ("other", None)


def test_the_gangs_own_context_counts_before_it() -> None:
    with serving(models({"id": "m", "context_length": 65536})) as api:
        assert _served(endpoint(api.url), "", {"context_tokens": 2048}) == ("m", 2048)


def test_what_is_no_api_and_what_is_not_served_are_told() -> None:
    with serving({}) as api, pytest.raises(TwinfoldError, match="status 404 and no model"):
        _served(endpoint(api.url), "", {})
    with serving(models({"id": "m"})) as api, pytest.raises(UsageError, match=r"--model n: .* serves m"):
        _served(endpoint(api.url), "n", {})
    with serving(models(status=401)) as api, pytest.raises(UsageError, match="does not take the API key"):
        _served(endpoint(api.url), "", {})


def test_requests_of_others_are_seen_where_the_endpoint_tells() -> None:
    health = json.dumps({"ok": True, "inflight": 3, "streams": {"decoding": 2, "prefilling": 1}}).encode()
    with serving({"/health": lambda _: (200, JSON, health)}) as api:
        assert _others(endpoint(api.url)) == 3
    with serving({"/health": lambda _: (200, JSON, b'{"status": "ok"}')}) as api:
        assert _others(endpoint(api.url)) is None


def test_lengths_are_whole_numbers_or_so_many_k() -> None:
    args = _parser().parse_args(["bench", "--prefill", "8K,32k,1000", "--runs", "2"])
    assert (args.prefill, args.runs) == ((8192, 32768, 1000), 2)


SAY_NOTHING = [["--prefill", "8Q"], ["--prefill", "5"], ["--prefill", ""], ["--runs", "0"], ["--streams", "x"]]
TOO_MUCH = [
    ["--prefill", "8K,20000K"],
    ["--streams", "1025"],
    ["--time-limit", "9" * 11],
    ["--time-limit", "1" + "0" * 400],
    ["--runs", "1" * 5000],
]


@pytest.mark.parametrize("flags", [*SAY_NOTHING, *TOO_MUCH])
def test_flags_that_say_nothing_are_refused_in_one_line(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: argument --")
    assert "wanted" in line
    assert line.endswith("see `supervisor bench --help`")


@pytest.mark.parametrize("argv", [[], ["serve"], ["run", "--runner", "vm"], ["logs", "--launch"], ["export"]])
def test_a_command_line_that_is_none_is_refused_in_one_line(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert "--help`" in line
