"""Commands on the gang of a state folder: through its supervisor, or on what runs without one."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from build.errors import Refused, TwinfoldError
from build.settings import Sources
from supervisor import control, heap, service, voice
from supervisor.commands import left
from supervisor.commands.reaching import Reach
from supervisor.configuration import Configuration, configure, settings_of
from supervisor.ends import error_of


def run(args: Namespace, sources: Sources) -> int:
    """``supervisor run``."""
    if args.dry_run:
        from supervisor.doctor.dryrun import dry_run

        return dry_run(configure(sources), as_json=args.json)
    from supervisor.run import serve

    heap.share()
    logs_ = configure(sources).logs
    form = voice.form(logs_.log_format, sources.environ, terminal=sys.stderr.isatty())
    serve(sources, voice.TextVoice(sys.stdout, sys.stderr, verbose=args.verbose, form=form), once=args.once)
    return 0


def status(args: Namespace, sources: Sources) -> int:
    """``supervisor status``: of the supervisor, or of what runs without one."""
    from supervisor.bench import record
    from supervisor.status.text import as_text
    from supervisor.status.watch import watch

    reach = Reach(sources)
    one = reach.one
    if not one.state_dir.is_dir():
        lost = "nothing was built or run there, or it was removed, and a supervisor that has lost it cannot be asked"
        print(f"warning: there is no state folder {one.state_dir}: {lost}", file=sys.stderr)
    if args.watch:
        watch(lambda: _status(reach), sys.stdout)
    shown = _status(reach)
    measured = record.kept(one.state_dir, shown) if "url" in shown else None
    if args.json:
        print(json.dumps({**shown, **({"bench": record.summary(measured, shown["bundle"])} if measured else {})}, indent=1))
        return 0
    print("\n".join([as_text(shown), *([record.as_text(measured, shown["bundle"])] if measured else [])]))
    return 0


def _status(reach: Reach) -> Mapping[str, Any]:
    from supervisor.status.text import without_supervisor

    answers, one = reach.ask({"do": "status"}), reach.one
    if answers is not None:
        shown: Mapping[str, Any] = control.last(answers)["status"]
        return shown
    with left.nodes_of(one) as fleet:
        found = left.survey(one, fleet)
    left.tell(found)
    return without_supervisor(found.leftovers, service.alive(one.run_dir))


def stop(args: Namespace, sources: Sources) -> int:
    """``supervisor stop``: through the supervisor, or of ranks that have none."""
    reach = Reach(sources)
    answers, one = reach.ask({"do": "stop", "force": args.force}), reach.one
    if answers is not None:
        end = _told(answers)
        _wait_for_the_end(one)
        code = _leave(end)
        print("stopped")
        return code
    return left.stop(one, force=args.force)


def handover(_args: Namespace, sources: Sources) -> int:
    """``supervisor handover``: the supervisor leaves, its gang serves on for the next one."""
    reach = Reach(sources)
    answers, one = reach.ask({"do": "handover"}), reach.one
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

    reach = Reach(sources)
    answers = reach.ask({"do": "logs", "follow": args.follow, "rank": args.rank})
    if answers is None:
        return left.logs(reach.one, args)
    end: Mapping[str, Any] = {}
    for end in answers:
        if "line" in end and (args.all or not is_poll(end["line"])):
            print(f"rank {end['rank']} | {end['line']}", flush=args.follow)
    return _leave(end)


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
