"""What each command does: parsed arguments and the settings' sources in, the exit code out."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from build.errors import GaveUp, Refused, TwinfoldError, UsageError
from build.nodes.hosts import HEAD
from build.settings import Sources
from build.store import durable
from supervisor import control, service, voice
from supervisor.configuration import Configuration, configure, settings_of
from supervisor.ends import error_of

if TYPE_CHECKING:
    from supervisor.fleet.fleet import Fleet
    from supervisor.runners.fleet import Found

FOLLOW_S = 0.1


def run(args: Namespace, sources: Sources) -> int:
    """``supervisor run``."""
    if args.dry_run:
        from supervisor.doctor.dryrun import dry_run

        return dry_run(configure(sources), as_json=args.json)
    from supervisor.run import serve

    logs_ = configure(sources).logs
    form = voice.form(logs_.log_format, sources.environ, terminal=sys.stderr.isatty())
    serve(sources, voice.TextVoice(sys.stdout, sys.stderr, verbose=args.verbose, form=form), once=args.once)
    return 0


def doctor(args: Namespace, sources: Sources) -> int:
    """``supervisor doctor``: 3 where something forbids a launch, 1 on warnings where they count."""
    from supervisor.doctor.command import doctor as examine

    return examine(configure(sources), args)


def plan(args: Namespace, sources: Sources) -> int:
    """``supervisor plan``: what memory a launch needs on each node, and what the answer rests on; 3 where it does not fit."""
    from supervisor.gang import gate
    from supervisor.gang.launch import blueprint
    from supervisor.memory import report
    from supervisor.memory.needs import reserve_differs

    one = configure(sources)
    planned = blueprint(one)
    read, unread = _workers_memory(one)
    available = {HEAD: gate.available_bytes(one.memory), **read, **dict.fromkeys(unread, 0)}
    rests_on = ("context", "parallel", "min_avail_gib", "launch_gate_gib", "context_bytes_per_token", "target", "state_dir")
    shown = tuple((name, str(_value(one, name)), one.origins[name].where) for name in rests_on)
    notes = tuple(filter(None, [reserve_differs(one)]))
    window, memory = planned.bundle.window_tokens, one.memory
    asked = report.Asked(one.serve.context, window, memory.floor_bytes, memory.min_avail_gib, shown, notes)
    nodes = {node: available[node] for node in dict.fromkeys(planned.nodes)}
    found = report.report(asked, lambda at: planned.plans_at(nodes, at), unread, planned.needs.measured_at)
    print(json.dumps(found, indent=1) if args.json else report.as_text(found))
    if found["refused"]:
        raise Refused(found["refused"])
    return 0


def _workers_memory(one: Configuration) -> tuple[Mapping[str, int], Mapping[str, str]]:
    """What each worker has available, by name; and why it was not read of the others."""
    from supervisor.doctor.inquiry import inquire
    from supervisor.fleet import memory

    nodes = inquire(one).open()
    try:
        workers = [node for name, node in nodes.items() if name != HEAD]
        return memory.available(workers, PurePosixPath(one.links.worker_proc_root))
    finally:
        for node in nodes.values():
            node.close()


def _value(one: Configuration, name: str) -> object:
    return next(getattr(group, name) for group in (one.serve, one.memory, one.places) if hasattr(group, name))


def init(args: Namespace, sources: Sources) -> int:
    """``supervisor init``: asks only where a person sits at a terminal."""
    from supervisor.doctor.init import init as begin

    return begin(args, sources, input if sys.stdin.isatty() else None)


def status(args: Namespace, sources: Sources) -> int:
    """``supervisor status``: of the supervisor, or of what runs without one."""
    from supervisor.bench import record
    from supervisor.status.text import as_text
    from supervisor.status.watch import watch

    one = configure(sources)
    if args.watch:
        watch(lambda: _status(one), sys.stdout)
    shown = _status(one)
    measured = record.kept(one.state_dir, shown) if "url" in shown else None
    if args.json:
        print(json.dumps({**shown, **({"bench": record.summary(measured, shown["bundle"])} if measured else {})}, indent=1))
        return 0
    print("\n".join([as_text(shown), *([record.as_text(measured, shown["bundle"])] if measured else [])]))
    return 0


def _status(one: Configuration) -> Mapping[str, Any]:
    from supervisor.status.text import without_supervisor

    answers = control.ask(one.run_dir, {"do": "status"})
    if answers is not None:
        shown: Mapping[str, Any] = control.last(answers)["status"]
        return shown
    with _fleet(one) as fleet:
        found = _survey(one, fleet)
    _tell(found)
    return without_supervisor(found.leftovers, service.alive(one.run_dir))


def stop(args: Namespace, sources: Sources) -> int:
    """``supervisor stop``: through the supervisor, or of ranks that have none."""
    one = configure(sources)
    answers = control.ask(one.run_dir, {"do": "stop", "force": args.force})
    if answers is not None:
        end = _told(answers)
        _wait_for_the_end(one)
        return _leave(end)
    return _stop_leftovers(one, force=args.force)


def handover(_args: Namespace, sources: Sources) -> int:
    """``supervisor handover``: the supervisor leaves, its gang serves on for the next one."""
    one = configure(sources)
    answers = control.ask(one.run_dir, {"do": "handover"})
    if answers is None:
        raise Refused(f"no supervisor serves from {one.state_dir}: `supervisor run` takes over what runs")
    end = _told(answers)
    _wait_for_the_end(one)
    if not end.get("exit") and "ranks" in end:
        limit = f"; without it they end after {end['orphan_s']} s" if end["orphan_s"] else ""
        print(f"{end['ranks']} ranks serve on: `supervisor run` takes them over{limit}")
    return _leave(end)


def restart(_args: Namespace, sources: Sources) -> int:
    """``supervisor restart``: with this caller's settings over the running ones, shown as a plan."""
    one = configure(sources)
    request = {"do": "restart", "environ": settings_of(sources.environ), "flags": dict(sources.flags)}
    answers = control.ask(one.run_dir, request)
    if answers is None:
        raise Refused(f"no supervisor serves from {one.state_dir}: `supervisor run` starts one")
    return _leave(_told(answers))


def logs(args: Namespace, sources: Sources) -> int:
    """``supervisor logs``: of the running gang; without a supervisor, of the ranks that are left."""
    from supervisor.gang.logs import is_poll

    one = configure(sources)
    answers = control.ask(one.run_dir, {"do": "logs", "follow": args.follow, "rank": args.rank})
    if answers is None:
        return _logs_of_leftovers(one, args)
    end: Mapping[str, Any] = {}
    for end in answers:
        if "line" in end and (args.all or not is_poll(end["line"])):
            print(f"rank {end['rank']} | {end['line']}", flush=args.follow)
    return _leave(end)


def import_recipe(args: Namespace, sources: Sources) -> int:
    """``supervisor import-recipe``: each value with what became of it, then the file."""
    from build.facts.memory import read_meminfo
    from build.settings import Places, names
    from supervisor.configuration import without_file
    from supervisor.recipe import importer
    from supervisor.recipe.values import Machine, rank_needs
    from supervisor.settings import GROUPS

    here = configure(without_file(sources))
    memory = read_meminfo(here.memory.proc_root)
    machine = Machine(
        memory.total_bytes, memory.available_bytes, rank_needs(memory.total_bytes), here.serve.api_key_file is not None
    )
    found = importer.import_recipe(args.folder, sources.environ, machine, names(Places, *GROUPS))
    for line in found.report():
        print(line)
    importer.refuse_failed(found)
    if args.dry_run:
        print(found.config(), end="")
        return 0
    assert sources.file is not None
    importer.write_config(sources.file, found.config(), replace=args.force)
    print(f"written: {sources.file}")
    return 0


def export(args: Namespace, sources: Sources) -> int:
    """``supervisor export``: printed, or written to a folder."""
    from supervisor.export import writing

    if args.form == "systemd":
        made = {"twinfold.service": writing.systemd_unit(sources, Path(__file__).resolve().parent.parent)}
    elif args.form == "compose":
        made = writing.compose_files(sources)
    else:
        made = {"twinfold.yaml": writing.lws_manifest(sources)}
    if args.output:
        _write(Path(args.output), made)
    else:
        print("---\n".join(made.values()), end="")
    return 0


def _write(folder: Path, made: Mapping[str, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in made.items():
            durable.replace_file(folder / name, content.encode(), 0o644)
            print(folder / name)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written to: {error.strerror or error}: name another folder with --output") from None


@contextlib.contextmanager
def _fleet(one: Configuration) -> Iterator[Fleet]:
    """The nodes, for as long as a command needs them."""
    from supervisor.fleet.fleet import fleet_for

    found = fleet_for(one, lambda line: print(line, file=sys.stderr))
    try:
        yield found
    finally:
        found.close()


def _survey(one: Configuration, fleet: Fleet) -> Found:
    """What this state folder's gang has left on every node that answers; gangs beside it are told of."""
    from supervisor.gang import identity, leftovers

    found, owner = fleet.survey(), identity.read(one.state_dir)
    for line in leftovers.beside(found.leftovers, owner):
        print(f"warning: {line}", file=sys.stderr)
    return replace(found, leftovers=leftovers.ours(found.leftovers, owner))


def _tell(found: Found) -> None:
    """Say which nodes could not be asked."""
    for error in found.troubles.values():
        print(f"warning: {error}", file=sys.stderr)


def _stop_leftovers(one: Configuration, *, force: bool) -> int:
    from supervisor.gang import leftovers
    from supervisor.gang.gang import keeping
    from supervisor.gang.launch import blueprint
    from supervisor.guard.choice import forget_guards, hosts_for, told_by

    with service.only_one(one.run_dir), _fleet(one) as fleet:
        found = _survey(one, fleet)
        guards = hosts_for(one, fleet, lambda: blueprint(one))
        if found.leftovers:
            timeout_s = 0.0 if force else float(one.serve.stop_timeout)
            leftovers.stop(fleet.runner, found.leftovers, keeping(one), timeout_s, print, told=told_by(guards))
        forget_guards(guards)
        if found.troubles:
            _tell(found)
            unreached = " and ".join(sorted(found.troubles))
            raise GaveUp(f"{unreached} cannot be reached, so a rank may run there still: `supervisor stop` again when it can be")
        service.release_other_roots(one.state_dir, "")
    print("stopped" if found.leftovers else "nothing runs")
    return 0


def _logs_of_leftovers(one: Configuration, args: Namespace) -> int:
    from supervisor.gang.logs import is_poll, lines

    with _fleet(one) as fleet:
        found = _survey(one, fleet)
        _tell(found)
        handles = [left.handle for left in found.leftovers if args.rank in (None, left.handle.rank)]
        if not handles:
            raise Refused(f"nothing runs; logs of ended launches are in {one.logs.folder(one.state_dir)}")

        def wait() -> bool:
            time.sleep(FOLLOW_S)
            return any(fleet.runner.poll(handle) is None for handle in handles)

        follow = args.follow and any(fleet.runner.poll(handle) is None for handle in handles)
        for rank, line in lines(fleet.runner, lambda: handles, follow=follow, wait=wait):
            if args.all or not is_poll(line):
                print(f"rank {rank} | {line}", flush=args.follow)
    return 0


def _told(answers: control.Answers) -> Mapping[str, Any]:
    """Show what the supervisor says on the way; its last answer."""
    answer: Mapping[str, Any] = {}
    for answer in answers:
        if "plan" in answer:
            print("\n".join(answer["plan"]) or "no setting changes")
        elif "phase" in answer:
            print(f"launch {answer['launch']}: {answer['phase']}", flush=True)
    return answer


def _leave(end: Mapping[str, Any]) -> int:
    """The exit code of a last answer; its error in the same form as this process's own."""
    if "exit" not in end:
        raise TwinfoldError("the supervisor ended before it answered")
    code = int(end["exit"])
    if code:
        raise error_of(code, str(end.get("error", "")))
    if end.get("url"):
        print(f"serving at {end['url']}")
    return code


def _wait_for_the_end(one: Configuration) -> None:
    """A stopped supervisor gives its lock up last; the next `run` must find it free."""
    deadline = time.monotonic() + 5.0
    while service.alive(one.run_dir) is not None and time.monotonic() < deadline:
        time.sleep(0.02)
