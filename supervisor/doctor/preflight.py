"""What a run asks of the nodes before each launch: the doctor's findings, carried out, and each node's own settings.

One host that serves alone without a GPU is not asked at all: nothing that could be found there is not found by the launch itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from build.errors import Refused
from build.nodes.node import Node
from supervisor.configuration import Configuration
from supervisor.doctor.examine import Examination, live
from supervisor.doctor.findings import Action, Finding, Level, refusing, warned
from supervisor.doctor.inquiry import INDEXES, Inquiry, inquire
from supervisor.doctor.links import Indexes, Links
from supervisor.doctor.probe import probe

Say = Callable[[str, str], None]
LEVELS = {Level.ERROR: "error", Level.WARNING: "warning", Level.NOTE: "info"}


def check(one: Configuration, opened: Mapping[str, Node], say: Say, *, strict: bool = False) -> Links:
    """Examine, say what is found, refuse what forbids a launch; the links that it will use. ``opened``: the workers' nodes."""
    inquiry = inquire(one)
    if not wanted(inquiry):
        return Links()
    found, _ = live(inquiry, inquiry.with_head(opened), probe)
    judged(found, say, strict=strict)
    remember(one.run_dir / INDEXES, found.links.indexes())
    return found.links


def wanted(inquiry: Inquiry) -> bool:
    """Whether there is anything to examine before a launch."""
    return len(inquiry.hosts) > 1 or inquiry.needs.gpu or inquiry.needs.infiniband


def judged(found: Examination, say: Say, *, strict: bool) -> None:
    """Say every finding; ``Refused`` with the first that forbids a launch, and how many more do."""
    refused = refusing(found.findings)
    for one in found.findings:
        if one not in refused and one.action is not Action.WAIT:  # the memory gate waits, and says so itself
            say(one.line, LEVELS[one.level])
    if refused:
        raise Refused(_line(refused))
    if strict and warned(found.findings):
        raise Refused(_line(tuple(one for one in found.findings if one.level is Level.WARNING)) + " (--strict)")


def remember(file: Path, indexes: Indexes) -> None:
    """Keep the GID indexes of this launch, for the next to compare with."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    new.write_text(json.dumps(indexes, sort_keys=True) + "\n", encoding="utf-8")
    new.replace(file)


def _line(findings: tuple[Finding, ...]) -> str:
    more = f" (and {len(findings) - 1} more: `supervisor doctor` shows all)" if len(findings) > 1 else ""
    return findings[0].line + more
