"""A small target for tests of the build: the real store, builders and commands over a graph that takes moments to make.

As a program it runs one verb over a state folder, so that a tracer can kill it anywhere: ``toy.py CHECKOUT STATE VERB``.
"""

from __future__ import annotations

import atexit
import functools
import io
import os
import shutil
import sys
import tempfile
from pathlib import Path

from build.artefacts import sources
from build.graph import builders
from build.graph.graph import Artefact
from build.graph.project import Project
from build.graph.report import Report
from build.locks import pins
from build.settings import Places
from build.store import durable, gc, generations, repair, roots, verify
from build.store.store import Store

CODE = """
import os, pathlib, time

def shout(text, out):
    words = (text / "words.txt").read_text()
    (out / "inner").mkdir()
    (out / "inner" / "big.bin").write_bytes(words.encode() * 20000)
    (out / "inner" / "words.txt").write_text(words.upper())
    program = out / "run.sh"
    program.write_text("#!/bin/sh\\\\necho " + words)
    program.chmod(0o755)

def count(part, out):
    (out / "count.txt").write_text(str(sum(f.stat().st_size for f in part.rglob("*") if f.is_file())))

def first(part, out):
    (out / "first.txt").write_text((part / "words.txt").read_text()[:1])

def slow(out, marker):
    pathlib.Path(marker).write_text(str(os.getpid()))
    time.sleep(600)

def fail(out):
    raise SystemExit("error: the toy is broken")
""".replace("\\\\", "\\")


NO_LOCK = pins.Lock()


class Toy(Project):
    """``code`` and ``words`` -> ``shouted`` -> ``part`` -> ``initial`` -> ``bundle``.

    ``extra`` adds that many small artefacts; ``marker`` one that writes its pid there and takes ten minutes;
    ``fails`` a broken one.
    """

    def __init__(
        self, checkout: Path, state: Path, *, extra: int = 0, lock: pins.Lock = NO_LOCK, marker: str = "", fails: bool = False
    ) -> None:
        super().__init__(checkout, Places(target="toy"), state, Report(io.StringIO()))
        self._extra, self._lock, self._marker, self._fails = extra, lock, marker, fails

    def refresh(self) -> None:
        lock = self._lock
        super().refresh()
        self._lock = lock

    def _artefacts(self) -> tuple[Artefact, ...]:
        def source(name: str, files: list[str]) -> Artefact:
            return sources.artefact(name, self.checkout, name, files, self.fingerprints.sha256)

        def python(name: str, call: str, inputs: dict[str, str], *more: object) -> Artefact:
            args: list[object] = [*(f"in:{role}" for role in inputs), "out:", *more]
            return Artefact(name, *builders.PYTHON, {"call": f"toy_code:{call}", "args": args}, {"code": "code", **inputs})

        return (
            source("code", ["toy_code.py"]),
            source("words", ["words.txt"]),
            python("shouted", "shout", {"text": "words"}),
            Artefact("part", *builders.PICK, {"inside": "inner"}, {"from": "shouted"}),
            python("initial", "first", {"text": "part"}),
            python("bundle", "count", {"text": "initial"}),
            *([python("slow", "slow", {}, self._marker)] if self._marker else []),
            *([python("broken", "fail", {})] if self._fails else []),
            *(
                Artefact(f"extra{n}", *builders.PICK, {"inside": "inner", "n": n}, {"from": "shouted"})
                for n in range(self._extra)
            ),
        )


def checkout(folder: Path, words: str = "abc") -> Path:
    """Write the toy's sources."""
    (folder / "code").mkdir(parents=True, exist_ok=True)
    (folder / "words").mkdir(exist_ok=True)
    (folder / "code" / "toy_code.py").write_text(CODE)
    (folder / "words" / "words.txt").write_text(words)
    return folder


@functools.cache
def _template(words: tuple[str, ...]) -> Path:
    """A state folder with one generation a text, made once a run of the tests."""
    folder = Path(tempfile.mkdtemp(prefix="twinfold-toy-"))
    atexit.register(durable.remove_tree, folder)
    for text in words:
        project = Toy(checkout(folder / "src", text), folder / "state")
        make_all(project)
        project.close()
    return folder / "state"


def dodo(folder: Path, src: Path, state: Path, **more: object) -> Path:
    """A dodo file for the toy, for ``doit -f``."""
    file = folder / "toy_dodo.py"
    file.write_text(
        f"""
import sys
from pathlib import Path
from build.commands.database import NAME
from build.commands.edge import Quiet
from build.graph.report import Report
from build.graph.schedule import GENERATION, Schedule
from tests.testing.toy import Toy

PROJECT = Toy(Path({str(src)!r}), Path({str(state)!r}), **{more!r})
PROJECT.report = Report(sys.stdout)
SCHEDULE = Schedule(PROJECT)
DOIT_CONFIG = {{
    "backend": NAME,
    "dep_file": str(PROJECT.state / "doit.json"),
    "default_tasks": [GENERATION],
    "reporter": Quiet,
    "verbosity": 2,
}}

def task_artefacts():
    yield from SCHEDULE.tasks()
"""
    )
    return file


def built(tmp_path: Path, *words: str) -> Toy:
    """A toy with one generation a text, the last one current; ``tmp_path/src`` has the last text."""
    shutil.copytree(_template(words), tmp_path / "state", symlinks=True)
    return Toy(checkout(tmp_path / "src", words[-1]), tmp_path / "state")


def make_all(project: Project) -> list[str]:
    """What doit does, without doit; the names that were made."""
    made = [name for name in project.graph if not project.ready(name) and project.make(name)]
    if not project.bundle_is_newest():
        project.make_generation()
    return made


def problems(project: Project) -> tuple[verify.Problem, ...]:
    """What is wrong with everything that the generations need."""
    wanted = {g.bundle_entry for g in generations.every(project.state, "toy")}
    return verify.verify(project.store, wanted)


def mend(project: Project) -> repair.Outcome:
    """What ``doit repair`` does, of a toy."""
    from build.commands import store

    return repair.repair(project, store.problems(project), store.needed(project))


def problems_of(state: Path, bundle_entry: str) -> tuple[verify.Problem, ...]:
    """What is wrong with what one bundle needs."""
    reached = {bundle_entry}
    found = verify.verify(Store(state / "store"), reached)
    needed = roots.reached(Store(state / "store"), [roots.Root(bundle_entry, "it")], strict=True)
    return tuple(p for p in found if p.entry in needed)


def _main(where: str, state: str, verb: str) -> None:
    project = Toy(Path(where), Path(state))
    try:
        project.store.clean()
        if verb == "make":
            make_all(project)
        elif verb == "register":
            for name in ("code", "words"):
                if not project.ready(name):
                    project.make(name)
        elif verb == "gc":
            gc.carry_out(project.store, project.state, 1, ())
        elif verb == "repair":
            mend(project)
        elif verb == "rollback":
            generations.select(project.state, "toy", 1)
    finally:
        project.close()


if __name__ == "__main__":
    os.umask(0o022)
    _main(*sys.argv[1:])
