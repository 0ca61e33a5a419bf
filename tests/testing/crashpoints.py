"""One artefact of the demo made by a process that is killed at a named point, then made again by another.

``crashpoints.py STATE GIVEN POINT NAME…`` forks a process for each run, so that no interpreter has to start. What takes more
than moments to make (the compiler's output, the training) is copied from the finished store GIVEN, file by file, in place of
running its program; everything around it is what ``doit`` runs. Prints a JSON line for each name: how the killed run ended.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn
from unittest import mock

from build.artefacts import rank_cache, toolchain
from build.graph import builders, project
from build.graph.builders import PYTHON
from build.graph.jobs import Builder, Job
from build.graph.processes import Finished
from build.graph.project import Project
from build.settings import Places
from build.store.store import Store
from tests.testing.checkout import CHECKOUT

POINTS = ("before the first write", "in mid-write", "before the rename", "before the JSON")
BY_PROGRAMS = {PYTHON[0], rank_cache.BUILDER}  # builders whose output is written by a program that they run


def die() -> NoReturn:
    """End as by ``kill -9``."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def copied(given: Store) -> Builder:
    """A builder that gives what another store has."""

    def build(job: Job) -> None:
        shutil.copytree(given.path(job.entry), job.out, copy_function=shutil.copyfile)
        for program in (p for p in given.path(job.entry).rglob("*") if p.is_file() and p.stat().st_mode & 0o100):
            (job.out / program.relative_to(given.path(job.entry))).chmod(0o755)

    return build


def found(given: Store, original: Callable[[str], Builder], artefact_name: str) -> Callable[[str], Builder]:
    """Builders by name, with a copy in place of what is dear to make."""

    def find(name: str) -> Builder:
        return copied(given) if name == toolchain.ZIG_BUILDER or artefact_name == "trained" else original(name)

    return find


def killed_early(_job: Job) -> None:
    """A builder that is killed before it has written anything."""
    die()


def limit_files(size_bytes: int) -> None:
    """From now on the kernel ends this process in the write that passes the size, with what fits written.

    SIGXFSZ does to a process what SIGKILL does: nothing of it runs afterwards.
    """
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))


def killed_in_mid_write(build: Builder, largest: int) -> Builder:
    """Killed at half of the largest file; a program that is run first runs without that limit."""

    def limited(job: Job) -> None:
        if job.artefact.builder == rank_cache.CHECK_BUILDER:
            run = Job.run

            def then_limited(self: Job, *argv: str, cwd: Path | None = None) -> Finished:
                done = run(self, *argv, cwd=cwd)
                limit_files(largest // 2)
                return done

            Job.run = then_limited  # type: ignore[method-assign]
        else:
            limit_files(largest // 2)
        build(job)
        die()

    return limited


def killed_while_its_program_writes(build: Builder) -> Builder:
    """Killed as soon as the program's output has a byte; at the latest when the program has ended."""

    def watched(job: Job) -> None:
        def watch() -> None:
            while not any(p.is_file() and p.stat().st_size for p in job.out.rglob("*")):
                time.sleep(0.001)
            die()

        threading.Thread(target=watch, daemon=True).start()
        build(job)
        die()

    return watched


def killing(one: Project, given: Store, name: str, point: str) -> Callable[[str], Builder]:
    """Builders by name, killed at the point. A point after the builder's end is put into the store instead."""
    find = found(given, builders.builder, name)
    if point == "before the first write":
        return lambda _: killed_early
    if point == "in mid-write" and one.graph[name].builder in BY_PROGRAMS and name != "trained":
        return lambda builder: killed_while_its_program_writes(find(builder))
    if point == "in mid-write":
        largest = max((f.size for f in given.need(str(one.resolve(name).entry)).files), default=0)
        return lambda builder: killed_in_mid_write(find(builder), largest)
    if point == "before the rename":
        Store._put = lambda *_: die()  # type: ignore[method-assign]
    if point == "before the JSON":
        Store.write_record = lambda *_: die()  # type: ignore[method-assign]
    return find


def make(state: Path, given: Store, name: str, point: str = "") -> None:
    """What doit does for one artefact that is missing, with a kill at the point."""
    one = Project(CHECKOUT, Places(), state)
    one.report._stream = sys.stderr
    one.store.clean()
    with mock.patch.object(project, "builder", killing(one, given, name, point)):
        one.make(name)
    one.close()


def forked(work: Callable[[], None]) -> int:
    """Run in a process of its own; its wait status."""
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1]


def main(state: Path, given: Store, point: str, names: list[str]) -> None:
    for name in names:
        one = Project(CHECKOUT, Places(), state)
        entry = str(one.resolve(name).entry)
        one.store.discard(entry)
        one.close()  # removes what was discarded
        status = forked(lambda name=name: make(state, given, name, point))  # type: ignore[misc]
        left = sorted(p.name for p in (state / "store" / "tmp").iterdir())
        there = Store(state / "store")
        after = {"record": there.record_path(entry).exists(), "path": there.path(entry).exists(), "tmp": len(left)}
        again = forked(lambda name=name: make(state, given, name))  # type: ignore[misc]
        signal_number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        print(json.dumps({"name": name, "entry": entry, "signal": signal_number, "after": after, "again": again}))


if __name__ == "__main__":
    os.umask(0o022)
    main(Path(sys.argv[1]), Store(Path(sys.argv[2])), sys.argv[3], sys.argv[4:])
