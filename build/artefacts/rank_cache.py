"""Rank caches: one rank's weight file, made by running the packer; and the checker's word on it, an artefact of its own.

The checker is no input of the weight file: a changed checker reads 98 GiB again, it does not pack them again.
"""

from __future__ import annotations

import json
import os
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from build.errors import BuildFailed
from build.graph.graph import Artefact
from build.store.hashing import Entry, walk
from build.store.outside import ON_NODE, is_on_node

if TYPE_CHECKING:
    from build.graph.jobs import Job

BUILDER, VERSION = "rank-cache", 1
CHECK_BUILDER, CHECK_VERSION = "rank-check", 1
WORLDS = (1, 2, 4)  # what the packer takes (engine contract)
PACKER, CHECKER = "tf-dsv41-rank-cache", "tf-dsv41-check"
REPORT = "checked.json"
PROGRESS = re.compile(rb"\d+ of \d+ MiB")
LOG_END_BYTES = 4096


def name(rank: int, world: int) -> str:
    """The weight file's artefact."""
    return f"rank{rank}of{world}"


def check_name(rank: int, world: int) -> str:
    """The artefact that says it is right."""
    return f"{name(rank, world)}-check"


def artefacts(rank: int, world: int, packer: str, checker: str) -> tuple[Artefact, Artefact]:
    """Rank ``rank`` of ``world`` from the checkpoint, and its check."""
    params = {"rank": rank, "world": world}
    packed = Artefact(name(rank, world), BUILDER, VERSION, params, {"packer": packer, "model": "checkpoint"})
    inputs = {"checker": checker, "model": "checkpoint", "cache": packed.name}
    return packed, Artefact(check_name(rank, world), CHECK_BUILDER, CHECK_VERSION, params, inputs)


def pack(job: Job) -> tuple[Entry, ...] | None:
    """Run the packer, here or on the node that serves the rank; ``BuildFailed`` where it says no, or speaks of another rank."""
    from build.hub import space

    need = sum(p.stat().st_size for p, _ in walk(job.inputs["model"]) if p.is_file()) // int(job.artefact.params["world"])
    there = job.tools.elsewhere(job.artefact)
    if there is None:
        space.require(job.artefact.name, [space.Need(job.out.parent, need)])
    job.tools.hub.show(lambda: progress(job.log))
    job.out.mkdir()
    if there is not None:
        return there.pack(job, need, partial(_right_rank, job))
    done = job.run(str(job.inputs["packer"] / PACKER), str(job.inputs["model"]), str(job.out), *ranks(job))
    _right_rank(job, done.stdout)
    return None


def _right_rank(job: Job, printed: str) -> None:
    told = _last_json(printed)
    if [str(told.get("rank")), str(told.get("world"))] != ranks(job):
        raise BuildFailed(f"{job.artefact.name}: the packer reports another rank: {printed.strip()[-200:]}")


def progress(log: Path) -> str:
    """The packer's last word on how far it is: ``rank R of W: X of Y MiB``, on stderr (engine contract); "" before the first."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_END_BYTES))
            found = PROGRESS.findall(file.read())
    except OSError:
        return ""
    return found[-1].decode() if found else ""


def check(job: Job) -> None:
    """Run the checker on a packed folder, where that is; ``BuildFailed`` where it does not say ok."""
    printed = _checked_there(job) if is_on_node(job.records["cache"].outside) else _checked_here(job)
    if not _last_json(printed).get("ok"):
        raise BuildFailed(f"{job.artefact.name}: the checker did not say ok: {printed.strip()[-200:]}")
    job.out.mkdir()
    (job.out / REPORT).write_text('{"ok": true}\n', encoding="ascii")


def _checked_here(job: Job) -> str:
    argv = [str(job.inputs["checker"] / CHECKER), str(job.inputs["model"]), str(job.inputs["cache"]), *ranks(job)]
    return job.run(*argv).stdout


def _checked_there(job: Job) -> str:
    there = job.tools.elsewhere(job.artefact)
    if there is None:
        where = job.records["cache"].outside.removeprefix(ON_NODE)
        raise BuildFailed(f'{job.artefact.name}: the rank cache lies on {where}: set pack_rank_caches = "node", or run `doit`')
    return there.check(job)


def ranks(job: Job) -> list[str]:
    """The rank and the world, as packer and checker take them."""
    return [str(job.artefact.params["rank"]), str(job.artefact.params["world"])]


def _last_json(stdout: str) -> dict[str, object]:
    """The JSON object that the output ends in: a line of its own, or several lines."""
    for start in (stdout.strip().splitlines()[-1:], [stdout]):
        try:
            told = json.loads("\n".join(start))
        except ValueError:
            continue
        if isinstance(told, dict):
            return told
    return {}
