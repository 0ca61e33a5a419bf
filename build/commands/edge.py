"""Where errors leave doit: one line and the documented exit code; a signal ends a build cleanly."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

from doit.cmd_base import Command
from doit.cmdparse import CmdParseError
from doit.exceptions import InvalidCommand, InvalidDodoFile, InvalidTask
from doit.reporter import ZeroReporter

from build.errors import BuildFailed, TwinfoldError, UsageError
from build.graph.project import Project
from build.graph.runlock import RunLock
from build.store.durable import reason

INTERRUPTED = 128 + signal.SIGINT


class Quiet(ZeroReporter):  # type: ignore[misc] # doit is untyped
    """Says nothing of its own: tasks say one line each through the project's report."""

    desc = "twinfold's own lines"


def variables(argv: Sequence[str]) -> dict[str, object]:
    """doit's ``name=value`` arguments, told as doit tells them. doit itself passes over names that nobody asks for."""
    pairs = (word.partition("=") for word in argv if "=" in word and not word.startswith("-"))
    return {name: value for name, _, value in pairs}


def guarded(command: Callable[[], object]) -> int:
    """Run a command; any error becomes ``error: <line>`` on stderr and its exit code."""
    if not gc.isenabled():  # as doit's start was hastened: what is loaded stays, and is never looked through again
        gc.freeze()
        gc.enable()
    try:
        with _signals():
            code = command()
            return code if isinstance(code, int) else 0
    except TwinfoldError as error:
        return tell(error)
    except (CmdParseError, InvalidCommand, InvalidDodoFile, InvalidTask) as error:
        return tell(UsageError(plain(str(error))))
    except OSError as error:
        return reader_gone() if isinstance(error, BrokenPipeError) else tell(BuildFailed(reason(error)))
    except KeyboardInterrupt:
        return interrupted()


def plain(parse_error: str) -> str:
    """doit's complaint about arguments without the dump of its own objects."""
    option = re.search(r"Error parsing \w+: (?P<what>.*?) \(parsing options:", parse_error, re.DOTALL)
    value = re.search(r"Error parsing parameter '(?P<name>\w+)' <class '(?P<type>\w+)'>", parse_error)
    if value:
        kind = {"int": "a whole number", "bool": "yes or no"}.get(value["type"], "another value")
        return f"{value['name'].replace('_', '-')}: wanted {kind}"
    if option:
        return f"{option['what']}: `doit help` lists the commands, `doit help COMMAND` the options of one"
    return " ".join(parse_error.split())


def tell(error: TwinfoldError) -> int:
    """Print an error's line; its exit code."""
    sys.stderr.write(f"error: {error}\n")
    sys.stderr.flush()
    return error.exit_code


def reader_gone() -> int:
    """Whoever read our lines has enough of them (``doit list | head``): that is no failure."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes it once more
    return 0


def interrupted() -> int:
    """Say so; the exit code that a shell expects."""
    sys.stderr.write("interrupted: what was finished is kept, nothing half-made is\n")
    sys.stderr.flush()
    return INTERRUPTED


@contextmanager
def _signals() -> Iterator[None]:
    """SIGTERM ends a build as SIGINT does."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def option(name: str, default: object, meaning: str) -> dict[str, Any]:
    """One entry of doit's option tables."""
    key = name.replace("-", "_")
    return {"name": key, "short": "", "long": name, "type": type(default), "default": default, "help": meaning}


NO_WAIT = (option("no-wait", False, "refuse where another doit works, instead of waiting"),)


@dataclass(frozen=True, slots=True)
class Asked:
    """What stood behind the command's name."""

    options: Any
    names: list[str]


class ProjectCommand(Command):  # type: ignore[misc] # doit is untyped
    """A command over the project of dodo.py, under the build lock."""

    cmd_options: tuple[dict[str, Any], ...] = NO_WAIT

    takes_names = False

    def parse_execute(self, in_args: list[str]) -> int:
        """doit's entry to a command."""
        if wants_help(in_args):
            return show_help(self)
        return guarded(lambda: super(ProjectCommand, self).parse_execute(in_args))

    def execute(self, params: Any, args: list[str]) -> int:
        """Load dodo.py's project, take the lock, work."""
        if args and not self.takes_names:
            raise UsageError(f"`doit {self.name}` takes no names, and {args[0]} stands there: `doit help {self.name}`")
        project = dodo_project(params.get("dodoFile") or "dodo.py")
        lock = RunLock(project.state)
        try:
            lock.take(project.report.line, wait=not params["no_wait"])
            project.store.clean()
            return self.work(project, Asked(params, args))
        finally:
            project.close()
            lock.release()

    def work(self, project: Project, asked: Asked, /) -> int:
        """What the command does; its exit code."""
        raise NotImplementedError


def dodo_project(file: str) -> Project:
    """The project that a dodo file makes."""
    from doit.loader import get_module

    project: Project = get_module(file).PROJECT
    return project


class Guarded:
    """Mixin for doit commands: errors leave by :func:`guarded`."""

    def parse_execute(self, in_args: list[str]) -> int:
        """doit's entry to a command."""
        if wants_help(in_args):
            return show_help(self)
        return guarded(lambda: super(Guarded, self).parse_execute(in_args))  # type: ignore[misc]


def wants_help(in_args: list[str]) -> bool:
    """Whether help is asked for as every other program is asked for it; doit itself has ``doit help COMMAND`` only."""
    return any(word in {"-h", "--help"} for word in in_args)


def show_help(command: Any) -> int:
    """What ``doit help COMMAND`` shows."""
    print(command.help())
    return 0


def leave_now(code: int) -> None:
    """End without waiting: for doit's worker threads, which may sit on a queue for ever after an interrupt, or for the
    interpreter to take itself apart, which is a tenth of a build that has nothing to do."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # its reader has gone
            stream.flush()
    os._exit(code)
