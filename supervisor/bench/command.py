"""``supervisor bench``: finds what to measure, measures it, prints it."""

from __future__ import annotations

import json
import secrets
import sys
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from build.errors import CheckFailed, TwinfoldError, UsageError
from build.locks import published
from supervisor.bench import record, table
from supervisor.bench.asking import asking
from supervisor.bench.measure import Bench
from supervisor.bench.plan import QUICK_LENGTHS, Options, plan
from supervisor.bench.readings import INTERRUPTED, Measured
from supervisor.bench.report import Subject, report
from supervisor.configuration import Configuration
from supervisor.engine.line import Endpoint, ProbeFailed
from supervisor.engine.probes import get, read

LOOK_S = 10.0
INTERRUPTED_EXIT = 130
STREAMS = 4  # at an endpoint whose `parallel` is not ours to know
QUICK_LIMIT_S, QUICK_RUNS, QUICK_REPLY_TOKENS = 300.0, 2, 128


def bench(args: Namespace, one: Configuration, where: Endpoint, gang: Mapping[str, Any], checkout: Path) -> int:
    """Measure ``where``; ``gang`` is the status of the own gang, empty for another endpoint. 1 where tokens differ."""
    if args.record and not gang:
        raise UsageError("--record keeps figures of the gang that this state folder's supervisor serves, and of no other")
    model, context_tokens = _served(where, args.model, gang)
    others = _others(where)
    made = plan(_options(args, one), context_tokens)
    known = {name: gang[name] for name in ("target", "generation", "bundle", "variant", "launch_id")} if gang else {}
    subject = Subject(where.base_url, model, context_tokens, known, others, time.time())
    say = _teller(quiet=args.json)
    measured = Bench(asking(where), model, made, secrets.token_hex(4), say=say).run()
    before = record.of_bundle(record.kept(one.state_dir, known), known["bundle"]) if known else None
    found = report(subject, made, measured, _theirs(model, gang, checkout), before)
    print(json.dumps(found, indent=1) if args.json else table.as_text(found))
    code = _end(measured, found)
    if args.record and code == 0:
        print(f"recorded: {record.keep(one.state_dir, found)}", file=sys.stderr)
    return code


def _end(measured: Measured, found: Mapping[str, Any]) -> int:
    """The exit code, or the error that ended the measuring."""
    if measured.error is not None:
        raise measured.error
    if measured.ended == INTERRUPTED:
        return INTERRUPTED_EXIT
    same = found["same_tokens"]
    if same["by"] == "token_sha" and (same["different"] or same["different_from_before"]):
        names = ", ".join(dict.fromkeys((*same["different"], *same["different_from_before"])))
        raise CheckFailed(f"replies were not the same tokens: {names}")
    return 0


def _options(args: Namespace, one: Configuration) -> Options:
    streams = args.streams or (one.serve.parallel if not args.url else STREAMS)
    usual = Options(streams)
    if args.quick:
        usual = Options(streams, QUICK_RUNS, QUICK_REPLY_TOKENS, QUICK_LENGTHS, QUICK_LIMIT_S)
    return Options(
        streams,
        args.runs or usual.runs,
        args.reply_tokens or usual.reply_tokens,
        tuple(sorted(set(args.prefill))) if args.prefill else usual.lengths,
        args.time_limit or usual.limit_s,
    )


def _served(where: Endpoint, wanted: str, gang: Mapping[str, Any]) -> tuple[str, int | None]:
    """The model to ask for and the context it is served with. The first model where none is named; None where none says."""
    answer = get(where, "/v1/models", LOOK_S)
    if answer.status in {401, 403}:
        raise UsageError(f"{where.base_url} does not take the API key: api_key_file names the file with the right one")
    rows = _rows(answer.body)
    if not rows:
        raise TwinfoldError(f"{where.base_url} answers /v1/models with status {answer.status} and no model: is it an OpenAI API?")
    model = wanted or str(rows[0]["id"])
    row = next((row for row in rows if row["id"] == model), None)
    if row is None:
        raise UsageError(f"--model {model}: {where.base_url} serves " + ", ".join(str(row["id"]) for row in rows))
    context = gang.get("context_tokens") or row.get("context_length") or row.get("max_model_len")
    return model, context if type(context) is int and context > 0 else None


def _rows(body: bytes) -> list[dict[str, Any]]:
    try:
        raw = json.loads(body)["data"]
    except (ValueError, KeyError, TypeError):
        return []
    return [row for row in raw if isinstance(row, dict) and row.get("id")] if isinstance(raw, list) else []


def _others(where: Endpoint) -> int | None:
    """Requests that others have under way; None where the endpoint does not say."""
    try:
        seen = read(where, LOOK_S)
    except ProbeFailed:
        return None
    known = [count for count in (seen.running, seen.prefilling, seen.waiting) if count is not None]
    return sum(known) if known else None


def _theirs(model: str, gang: Mapping[str, Any], checkout: Path) -> Sequence[published.Published]:
    """Published figures of what is served: the gang's target; of another endpoint, the target's whose model it names."""
    if gang:
        return published.read(checkout, gang["target"])
    return published.read_for_model(checkout, model)


def _teller(*, quiet: bool) -> Any:
    """Progress goes to a terminal that shows errors, and nowhere else."""
    if quiet or not sys.stderr.isatty():
        return lambda _: None
    return lambda line: print(line, file=sys.stderr, flush=True)
