"""Commands that ask an API: the own gang's, wherever its supervisor put it, or one that ``--url`` names."""

from __future__ import annotations

import contextlib
import json
from argparse import Namespace
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from build.errors import TwinfoldError
from build.settings import Sources
from supervisor import control, service
from supervisor.commands.files import CHECKOUT
from supervisor.configuration import Configuration, configure

if TYPE_CHECKING:
    from supervisor.engine.line import Endpoint


def smoke(args: Namespace, sources: Sources) -> int:
    """``supervisor smoke``: the smoke question to any endpoint; 1 when it does not pass."""
    from build.errors import CheckFailed
    from supervisor.engine.probes import get_models
    from supervisor.engine.probes import smoke as ask
    from supervisor.engine.validate import QUESTION, smoke_text

    one = configure(sources)
    where, probes = _endpoint(args, one), one.probes
    with _hinting(args, one):
        served = get_models(where, probes.probe_deadline_s)
        model = args.model or (served[0] if served else "")
        result = ask(where, model, _question(args, one, QUESTION), asks=probes.smoke_asks, deadline_s=probes.smoke_deadline_s)
    shown = {"ok": result.passed, "why": result.verdict.why, "asks": result.asks, "took_s": round(result.took_s, 3)}
    print(json.dumps(shown) if args.json else smoke_text(result))
    if not result.passed:
        raise CheckFailed(f"the smoke test failed: {result.verdict.why}")
    return 0


def validate(args: Namespace, sources: Sources) -> int:
    """``supervisor validate``: every check of an endpoint; 1 when one says no."""
    from supervisor.engine import validate as checks

    one = configure(sources)
    long_tokens = args.long_tokens or checks.LONG_PROMPT_TOKENS
    asked = _question(args, one, checks.QUESTION)
    with _hinting(args, one):
        results = checks.validate(_endpoint(args, one), args.model, asked, skip=args.skip, long_tokens=long_tokens)
    print(checks.as_json(results) if args.json else checks.as_text(results))
    checks.require(results)
    return 0


def bench(args: Namespace, sources: Sources) -> int:
    """``supervisor bench``: 1 where replies are not the same tokens, 130 when interrupted, with what was measured so far."""
    from supervisor.bench.command import bench as measure

    one = configure(sources)
    gang = {} if args.url else _serving(one)
    with _hinting(args, one):
        return measure(args, one, _endpoint(args, one), gang, CHECKOUT)


def _endpoint(args: Namespace, one: Configuration) -> Endpoint:
    from supervisor.api_key import made_key
    from supervisor.engine.facts import connectable
    from supervisor.engine.probes import endpoint, read_api_key

    url = args.url or _serving(one).get("url") or f"http://{connectable(one.serve.host)}:{one.serve.port}"
    return endpoint(url, read_api_key(one.serve.api_key_file or (None if args.url else made_key(one.state_dir))))


@contextlib.contextmanager
def _hinting(args: Namespace, one: Configuration) -> Iterator[None]:
    """Say what to do where the own gang was to be asked and nothing listens."""
    from supervisor.engine.line import ProbeFailed

    try:
        yield
    except ProbeFailed as failed:
        if args.url or failed.kind != "unreachable":
            raise
        alive = service.alive(one.run_dir) is not None
        hint = "`supervisor status` says what its supervisor does" if alive else "`supervisor run` starts the gang"
        raise TwinfoldError(f"{failed}: {hint}, `--url` names another endpoint") from None


def _serving(one: Configuration) -> Mapping[str, Any]:
    """The status of the gang that this state folder's supervisor serves, which flags may have put elsewhere; {} for none."""
    try:
        answers = control.ask(one.run_dir, {"do": "status"}) if one.run_dir.is_dir() else None
        shown: Mapping[str, Any] = control.last(answers)["status"] if answers is not None else {}
    except TwinfoldError:
        return {}  # a supervisor that is stuck says nothing; its gang may serve
    return shown if "url" in shown else {}


def _question(args: Namespace, one: Configuration, otherwise: tuple[str, str]) -> tuple[str, str]:
    """The bundle's own question where the gang of this state folder is asked."""
    from build.store.generations import chosen_or_none

    generation = None if args.url else chosen_or_none(one.state_dir, one.places.target, one.places.variant)
    return generation.bundle.smoke if generation else otherwise
