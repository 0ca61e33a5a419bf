"""Every builder by name, and the two that are general: a Python function of a source artefact, and a part of another artefact."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from build.errors import BuildFailed
from build.store import hashing

if TYPE_CHECKING:
    from build.graph.jobs import Builder, Job

PYTHON = ("python", 1)
PICK = ("pick", 1)
HUB = ("hub", 1)  # a reference artefact: its bytes lie in the hub's cache

# Runs a function of the stored sources, never of the checkout, with nothing else importable than the standard library.
BOOT = (
    "import importlib,json,pathlib,sys;sys.path.insert(0,sys.argv[1]);module,name=sys.argv[2].split(':');"
    "args=[pathlib.Path(v) if k else v for k,v in json.loads(sys.argv[3])];getattr(importlib.import_module(module),name)(*args)"
)


def run_python(job: Job) -> None:
    """``params``: ``call`` is ``module:function`` of the input ``code``; in ``args``, ``in:ROLE`` and ``out:PATH`` are paths."""
    job.out.mkdir()
    args = [_argument(job, value) for value in job.artefact.params["args"]]
    call = str(job.artefact.params["call"])
    job.run(sys.executable, "-ISBc", BOOT, str(job.inputs["code"]), call, json.dumps(args))


def pick(job: Job) -> None:
    """A copy of the part ``inside`` of the input ``from``, so that what needs only that part is keyed by it alone."""
    part = job.inputs["from"] / str(job.artefact.params["inside"])
    job.out.mkdir()
    for source, rel in hashing.walk(part):
        target = job.out / rel
        if source.is_dir() and not source.is_symlink():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target, follow_symlinks=False)
            if not source.is_symlink():
                shutil.copymode(source, target)


def _argument(job: Job, value: object) -> tuple[bool, object]:
    """Whether an argument is a path, and its value."""
    kind, colon, rest = value.partition(":") if isinstance(value, str) else ("", "", "")
    if colon and kind == "in":
        return True, str(job.inputs[rest])
    if colon and kind == "out":
        return True, str(job.out / rest)
    return False, value


def all_builders() -> Mapping[str, Builder]:
    """Name -> builder."""
    from build.artefacts import (
        bundles,
        engine_source,
        git_source,
        hub_files,
        kits,
        overlay,
        rank_cache,
        served,
        sources,
        toolchain,
    )  # fmt: skip
    from build.artefacts import images as image_artefacts

    return {
        sources.BUILDER: sources.copy,
        toolchain.BUILDER: toolchain.describe,
        toolchain.ZIG_BUILDER: toolchain.compile_program,
        PYTHON[0]: run_python,
        PICK[0]: pick,
        hub_files.BUILDER: hub_files.fetch,
        served.BUILDER: served.lay_out,
        overlay.BUILDER: overlay.rewrite,
        git_source.BUILDER: git_source.fetch,
        kits.BUILDER: kits.assemble,
        engine_source.BUILDER: engine_source.compile_engine,
        engine_source.PART_BUILDER: engine_source.take_program,
        engine_source.BASE_BUILDER: engine_source.describe_base,
        engine_source.IMAGE_BUILDER: engine_source.build_image,
        rank_cache.BUILDER: rank_cache.pack,
        rank_cache.CHECK_BUILDER: rank_cache.check,
        image_artefacts.BUILDER: image_artefacts.build,
        image_artefacts.NODE_BUILDER: image_artefacts.build_node,
        bundles.BUILDER: bundles.write,
    }


def builder(name: str) -> Builder:
    """The builder of that name; ``BuildFailed`` for a name of another version of twinfold."""
    try:
        return all_builders()[name]
    except KeyError:
        raise BuildFailed(f"no builder is called {name}: the artefact was made by another version of twinfold") from None
