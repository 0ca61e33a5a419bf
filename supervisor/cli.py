"""The command line: arguments to a command, its end to an exit code. What a command does is in :mod:`supervisor.commands`.

Argument parsing loads nothing heavy: ``supervisor --help`` answers at once.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from build.errors import Refused, TwinfoldError, UsageError
from build.settings import Sources

CHECKOUT = Path(__file__).resolve().parent.parent
EXIT_CODES = (
    "exit codes: 0 done, 1 a check said no, 2 wrong usage or settings, 3 refused before a launch, 4 the launch failed,"
    " 5 gave up or a rank could not be stopped, 6 store damaged, 7 pins missing"
)
# What is meant stays below these; what is typed by mistake would take all memory, or overflow a clock.
MOST = 16 << 20  # tokens, runs, seconds
MOST_STREAMS = 1024  # each has a thread
DIGITS = 20


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. Errors are one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # no locale's lack of a character ends a command
    try:
        return _run(_parser().parse_args(argv), os.environ)
    except TwinfoldError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes it once more
        return 0
    except OSError as error:  # a state folder that cannot be read, a disk that is full
        where = f" ({error.filename})" if error.filename else ""
        print(f"error: {error.strerror or error}{where}", file=sys.stderr)
        return Refused.exit_code


def _run(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from supervisor import commands

    sources = Sources(CHECKOUT / "config.toml", dict(environ), _flags(args))
    done: int = getattr(commands, args.command.replace("-", "_"))(args, sources)
    return done


def _flags(args: argparse.Namespace) -> dict[str, object]:
    """Settings given as flags: those with a flag of their own, then ``--set key=value``."""
    flags: dict[str, object] = {
        name: value for name in ("target", "runner", "state_dir", "strict") if (value := getattr(args, name, None)) is not None
    }
    from build.settings import Places, names
    from supervisor.settings import GROUPS

    known = names(Places, *GROUPS)
    for pair in getattr(args, "set", None) or ():
        key, equals, value = pair.partition("=")
        key = key.strip().replace("-", "_")
        if not equals:
            raise UsageError(f"--set {pair}: write it as key=value")
        if key not in known:
            raise UsageError(_unknown(key, known))
        flags[key] = value
    return flags


def _unknown(key: str, known: frozenset[str]) -> str:
    import difflib

    near = difflib.get_close_matches(key, sorted(known), n=1, cutoff=0.6)
    return f"--set {key}: unknown setting" + (f": did you mean {near[0]}?" if near else ": docs/settings.md lists them all")


class _Parser(argparse.ArgumentParser):
    """Its errors are as all others are: one line, without the usage of everything before it."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}: see `{self.prog} --help`")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="supervisor", description="Serve one bundle from a gang of ranks.", epilog=EXIT_CODES)
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    run = _command(commands, "run", "serve the current bundle in the foreground")
    run.add_argument("--runner", choices=["process", "docker"], help="run ranks as processes or in containers")
    run.add_argument("--dry-run", action="store_true", help="show all that a launch would do; nothing is started or written")
    run.add_argument("--json", action="store_true", help="the dry run for programs")
    run.add_argument("--once", action="store_true", help="one launch, no restarts")
    run.add_argument("--strict", action="store_true", default=None, help="refuse a launch on warnings too")
    run.add_argument("--verbose", action="store_true", help="also say each phase")
    doctor = _command(commands, "doctor", "what is wrong on any node, and what to do about it")
    doctor.add_argument("--json", action="store_true", help="for programs")
    doctor.add_argument("--strict", action="store_true", default=None, help="exit 1 on warnings too")
    doctor.add_argument("--from", dest="folder", metavar="DIR", type=Path, help="judge a folder of captured outputs")
    doctor.add_argument("--save", metavar="DIR", type=Path, help="also save what the nodes printed, for --from")
    plan = _command(commands, "plan", "what memory a launch needs on each node, and what the answer rests on")
    plan.add_argument("--json", action="store_true", help="for programs")
    init = _command(commands, "init", "write config.toml: asks for the worker, finds the links, runs the doctor")
    init.add_argument("--worker", help="ssh target of the worker; of several, separated by spaces")
    init.add_argument("--out", metavar="FILE", type=Path, help="write there (default: config.toml of the checkout)")
    status = _command(commands, "status", "what the supervisor, or what it left, is doing")
    status.add_argument("--json", action="store_true", help="for programs")
    status.add_argument("--watch", action="store_true", help="again every second, with curves; Ctrl-C ends it")
    stop = _command(commands, "stop", "end the gang in order, and its supervisor")
    stop.add_argument("--force", action="store_true", help="kill the ranks at once")
    _command(commands, "handover", "end the supervisor and leave its gang serving, for the next `supervisor run`")
    _command(commands, "restart", "replace the gang; settings given here and in this environment count")
    logs = _command(commands, "logs", "the ranks' output, interleaved")
    logs.add_argument("-f", "--follow", action="store_true", help="go on as it comes")
    logs.add_argument("--all", action="store_true", help="also each look at /health and /metrics")
    logs.add_argument("--rank", type=int, help="one rank only")
    for name, help_ in (
        ("smoke", "ask an endpoint the smoke question"),
        ("validate", "check an endpoint: text, thinking, tools, an image, long prompts"),
    ):
        check = _command(commands, name, help_)
        check.add_argument("--url", help="the API's address (default: the gang of this state folder)")
        check.add_argument("--model", default="", help="model id (default: what is served)")
        check.add_argument("--json", action="store_true", help="for programs")
        if name == "validate":
            check.add_argument(
                "--skip", action="append", default=[], metavar="CHECK", help="leave a check out, by its name; may be repeated"
            )
            check.add_argument("--long-tokens", type=_count, metavar="N", help="length of the long prompt, about (default: 8192)")
    _bench(commands)
    recipe = _command(commands, "import-recipe", "a shell recipe's settings to config.toml; nothing of it is run")
    recipe.add_argument("folder", type=Path, metavar="DIR", help="the recipe's checkout: scripts/local.sh and .env are read")
    recipe.add_argument("--dry-run", action="store_true", help="say what would be written, write nothing")
    recipe.add_argument("--force", action="store_true", help="replace a config.toml that is there")
    export = _command(commands, "export", "units and manifests for what is current")
    export.add_argument("form", choices=["systemd", "compose", "lws"], help="a systemd unit, compose files, a LeaderWorkerSet")
    export.add_argument("--output", metavar="DIR", help="write files there instead of printing")
    return parser


def _bench(commands: argparse._SubParsersAction[_Parser]) -> None:
    bench = _command(commands, "bench", "measure an endpoint: decode, prefill, times to tokens, beside published figures")
    bench.add_argument("--url", help="the API's address (default: the gang of this state folder)")
    bench.add_argument("--model", default="", help="model id (default: what is served)")
    bench.add_argument("--json", action="store_true", help="for programs: supervisor/bench/report.schema.json")
    bench.add_argument("--quick", action="store_true", help="two short runs, prompts of 8K and 32K")
    bench.add_argument("--record", action="store_true", help="keep the figures: `supervisor status` shows them")
    bench.add_argument("--runs", type=_count, metavar="N", help="runs of each measurement (default: 3)")
    bench.add_argument(
        "--streams", type=_streams, metavar="N", help="streams decoded together (default: parallel of the settings)"
    )
    bench.add_argument("--reply-tokens", type=_count, metavar="N", help="most tokens of a timed reply (default: 384)")
    bench.add_argument(
        "--prefill", type=_tokens, metavar="N[,N…]", help="prompt lengths in tokens, e.g. 8K,32K (default: 8K to 256K)"
    )
    bench.add_argument(
        "--time-limit", type=_count, metavar="S", help="seconds after which nothing begins (default: 1800, quick 300)"
    )


def _count(raw: str, most: int = MOST) -> int:
    number = _number(raw)
    if not 1 <= number <= most:
        raise argparse.ArgumentTypeError(f"{raw[:DIGITS]}: wanted a whole number from 1 to {most}")
    return number


def _number(raw: str) -> int:
    """0 for what is none, or longer than any that is meant."""
    return int(raw) if raw.isdecimal() and len(raw) <= DIGITS else 0


def _streams(raw: str) -> int:
    return _count(raw, MOST_STREAMS)


def _tokens(raw: str) -> tuple[int, ...]:
    """Lengths of prompts: whole numbers, with K for 1024, separated by commas."""
    found = []
    for word in raw.split(","):
        tokens = _number(word[:-1]) * 1024 if word[-1:] in {"K", "k"} else _number(word)
        if not 128 <= tokens <= MOST:
            wanted = f"wanted prompt lengths from 128 to {MOST // 1024}K tokens, like 8K,32K"
            raise argparse.ArgumentTypeError(f"{(word or raw)[:DIGITS]}: {wanted}")
        found.append(tokens)
    return tuple(found)


def _command(commands: argparse._SubParsersAction[_Parser], name: str, help_: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=help_, description=help_[0].upper() + help_[1:] + ".", epilog=EXIT_CODES)
    parser.add_argument("--target", help="the target: lockfiles/<target>.toml")
    parser.add_argument("--state-dir", help="store, generations, logs and run files")
    parser.add_argument("--set", action="append", metavar="KEY=VALUE", help="any setting of docs/settings.md; may be repeated")
    return parser
