"""What a run asks of the nodes before each launch: the doctor's findings, carried out, and each node's own settings.

One host that serves alone without a GPU is not asked at all: nothing that could be found there is not found by the launch itself.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from build.errors import Refused
from build.nodes.hosts import HEAD
from build.nodes.node import Node
from build.store import durable
from supervisor.configuration import Configuration
from supervisor.doctor.collect import collect
from supervisor.doctor.examine import Examination, live
from supervisor.doctor.findings import Action, Finding, Level, refusing, warned
from supervisor.doctor.gids import Indexes
from supervisor.doctor.inquiry import INDEXES, Inquiry, inquire
from supervisor.doctor.links import Links, probe_findings
from supervisor.doctor.probe import probe
from supervisor.fleet import shared

Say = Callable[[str, str], None]
LOOK_AGAIN_S = 1.0
LEVELS = {Level.ERROR: "error", Level.WARNING: "warning", Level.NOTE: "info"}


def check(one: Configuration, opened: Mapping[str, Node], cancelled: threading.Event, say: Say) -> Links:
    """Examine, say what is found, refuse what forbids a launch; the links that it will use. ``opened``: the workers' nodes."""
    inquiry = inquire(one)
    if not wanted(inquiry):
        return Links()
    found, _ = live(inquiry, inquiry.with_head(opened), probe)
    _carried_out(found.findings, say, strict=one.links.strict)
    _make_volumes(inquiry, opened, found)
    _wait(inquiry, opened, found, cancelled, say)
    remember(one.run_dir / INDEXES, found.links.indexes())
    return found.links


def prove(one: Configuration, opened: Mapping[str, Node], links: Links, say: Say) -> Links:
    """Full-size packets over rails that were not proven yet: workers have the node tool only once it was brought there."""
    if links.proven or not links.rails:
        return links
    inquiry = inquire(one)
    nodes = inquiry.with_head(opened)
    raws = collect({host.name: (nodes[host.name], inquiry.query(host)) for host in inquiry.hosts})
    facts = {name: raw.facts(name) for name, raw in raws.items()}
    found = probe_findings(links, probe(nodes, facts, links), inquiry.wish)
    _carried_out(found.findings[len(links.findings) :], say, strict=one.links.strict)
    return found


def _make_volumes(inquiry: Inquiry, opened: Mapping[str, Node], found: Examination) -> None:
    """Where the workers read the head's store over NFS: a volume on each that has none yet."""
    missing = {one.node for one in found.findings if one.reason == "nfs_volume_missing"}
    for host in inquiry.hosts:
        if host.name in missing:
            shared.make_volume(opened[host.name], host.docker_socket, inquiry.export(found.links.master))


def _wait(inquiry: Inquiry, opened: Mapping[str, Node], found: Examination, cancelled: threading.Event, say: Say) -> None:
    """Look at workers that lack memory again until they have it. ``Refused`` after ``gate_wait_s``. The head has its own gate."""
    end = time.monotonic() + inquiry.configuration.memory.gate_wait_s
    told = False
    while short := [one for one in found.findings if one.action is Action.WAIT and one.node != HEAD]:
        if not told:
            say(short[0].line, "info")
            told = True
        if cancelled.is_set():
            return
        if time.monotonic() >= end:
            raise Refused(_line(tuple(short)))
        cancelled.wait(min(LOOK_AGAIN_S, max(0.0, end - time.monotonic())))
        found, _ = live(inquiry, inquiry.with_head(opened), lambda *_: ())


def wanted(inquiry: Inquiry) -> bool:
    """Whether there is anything to examine before a launch."""
    return len(inquiry.hosts) > 1 or inquiry.needs.gpu or inquiry.needs.infiniband


def _carried_out(findings: tuple[Finding, ...], say: Say, *, strict: bool) -> None:
    """Say every finding; ``Refused`` with the first that forbids a launch, and how many more do."""
    refused = refusing(findings)
    for one in findings:
        if one not in refused and one.action is not Action.WAIT:  # the memory gate waits, and says so itself
            say(one.line, LEVELS[one.level])
    if refused:
        raise Refused(_line(refused))
    if strict and warned(findings):
        raise Refused(_line(tuple(one for one in findings if one.level is Level.WARNING)) + " (--strict)")


def remember(file: Path, indexes: Indexes) -> None:
    """Keep the GID indexes of this launch, for the next to compare with."""
    file.parent.mkdir(parents=True, exist_ok=True)
    durable.replace_file(file, (json.dumps(indexes, sort_keys=True) + "\n").encode(), 0o644)


def _line(findings: tuple[Finding, ...]) -> str:
    more = f" (and {len(findings) - 1} more: `supervisor doctor` shows all)" if len(findings) > 1 else ""
    return findings[0].line + more
