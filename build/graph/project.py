"""A project: the checkout, its settings and one target, turned into a graph and its artefacts.

dodo.py and the commands of ``build.commands`` make one with :func:`open_project`; nothing here knows of doit.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from build.artefacts import rank_cache, toolchain
from build.artefacts.rank_cache import WORLDS
from build.errors import BuildFailed, OutputDiffers, UsageError
from build.graph import graph, targets
from build.graph.builders import HUB, builder
from build.graph.elsewhere import Packers
from build.graph.graph import Artefact, Resolved
from build.graph.processes import Children
from build.graph.report import Report
from build.locks import lockfile
from build.locks.pins import Lock
from build.nodes.workers import Workers
from build.settings import Places, Sources, load
from build.store import durable, generations
from build.store.fingerprints import FINGERPRINTS, Fingerprints
from build.store.hashing import Entry, tree
from build.store.outside import OUTSIDE, is_on_node
from build.store.record import Made, Record, artefact_of, record_of
from build.store.store import Store

if TYPE_CHECKING:  # what makes artefacts is loaded when there is one to make
    from build.graph.jobs import HubAccess, Toolbox
    from build.hub.shelf import Shelf
    from build.nodes.hosts import Host
    from build.replication.packing import FarPacker

CONFIG = "config.toml"


def open_project(
    checkout: Path, environ: Mapping[str, str], flags: Mapping[str, object], known: Callable[[], frozenset[str]]
) -> Project:
    """The project of a checkout. ``flags``: doit's variables (``target=demo``); ``known``: names of settings that others own."""
    unknown = sorted(set(flags) - {"target", "world", "state_dir", "ablit"})
    if unknown:
        raise UsageError(f"unknown variable {unknown[0]}=…: doit takes target, world, state_dir and ablit")
    loaded = load((Places, Workers), Sources(checkout / CONFIG, environ, flags), known)
    places: Places = loaded[Places].value
    return Project(checkout, places, places.state(environ), workers=loaded[Workers].value)


class Project:
    """One target in one state folder. Safe to use from doit's worker threads."""

    def __init__(
        self,
        checkout: Path,
        places: Places,
        state: Path,
        report: Report | None = None,
        workers: Workers = Workers(),  # noqa: B008 # frozen
    ) -> None:
        self.checkout, self.places, self.state, self.workers = checkout, places, state, workers
        self.target = places.target
        self.report = report or Report(sys.stdout)
        self.host = toolchain.host()
        self.fingerprints = Fingerprints(state / FINGERPRINTS)
        self.store = Store(state / "store", self.fingerprints.sha256)
        self.children = Children()
        self.built: list[str] = []
        self.packers = Packers(places, workers, self._packer)
        self._guard = threading.RLock()
        self._graph: dict[str, Artefact] | None = None
        self._lock: Lock | None = None
        self._resolved: dict[str, Resolved] = {}

    @property
    def lock_path(self) -> Path:
        """The target's lock file."""
        return targets.lock_path(self.checkout, self.target)

    @property
    def lock(self) -> Lock:
        """The target's pins and outputs."""
        if self._lock is None:
            self._lock = lockfile.read(self.lock_path)
        return self._lock

    @property
    def graph(self) -> Mapping[str, Artefact]:
        """Every artefact by name, inputs first."""
        with self._guard:
            if self._graph is None:
                self._graph = {a.name: a for a in graph.ordered(self._artefacts())}
            return self._graph

    def refresh(self) -> None:
        """Look at the sources again: another build may have run, or an editor."""
        with self._guard:
            self._graph, self._lock, self._resolved = None, None, {}

    def resolve(self, name: str) -> Resolved:
        """What is known now of one artefact."""
        with self._guard:
            known = self._resolved.get(name)
            if known is not None and known.output is not None:
                return known
            artefact = self.graph[name]
            for needed in artefact.inputs.values():
                self.resolve(needed)
            found = graph.resolve_one(artefact, self._resolved, self.store.output)
            self._resolved[name] = found
            return found

    def ready(self, name: str) -> bool:
        """True where the artefact is in the store for what it would be made from now."""
        entry = self.resolve(name).entry
        return entry is not None and self.store.find(entry) is not None and self._there(self.graph[name])

    def _there(self, artefact: Artefact) -> bool:
        """True unless the bytes of a reference artefact are not where this node's cache is, or not what they were."""
        if artefact.builder == rank_cache.BUILDER:
            return self._packed_where_asked(artefact)
        if artefact.builder != HUB[0]:
            return True
        from build.artefacts import hub_files  # only targets with hub files pay for it

        shelf = self.shelf
        return hub_files.leads_to(self.state, shelf.folder) and not hub_files.problem(artefact.params, shelf)

    def make(self, name: str) -> Record:
        """Make one artefact whose inputs are there, enforce its lock, register it."""
        found = self.resolve(name)
        if found.key is None:
            raise BuildFailed(f"{name} cannot be made yet: an input of it is missing")
        if found.entry in self.store.unreadable:
            self.report.line(f"note: {self.store.unreadable[str(found.entry)].removesuffix(': run `doit repair`')}: made again")
        if note := self.packers.note(found.artefact):
            self.report.line(note)
        started_s = time.monotonic()
        with self.report.running(name), durable.told(name):
            record = self.produce(found, found.key, started_s)
        with self._guard:
            self._resolved[name] = replace(found, output=record.output)
        self.built.append(name)
        self.report.built(name, time.monotonic() - started_s, record.entry)
        return record

    def produce(self, found: Resolved, key: str, started_s: float) -> Record:
        """Build into scratch and register. Nothing is registered where the output is not what the lock or a pin says."""
        made, new = self.build(found.artefact, key, started_s)
        try:
            self._enforce(found.artefact, new)
            self.publish(new)
            return self.store.register(made, new)
        finally:
            self.drop(made, new)

    def publish(self, new: Record) -> None:
        """Let a rank cache that was packed on a node count there; one that was packed elsewhere takes such a record's place."""
        there = self.packers.packer(artefact_of(new)) if is_on_node(new.outside) else None
        if there is not None:
            there.publish(new)
        old = self.store.find(new.entry)
        if old is not None and is_on_node(old.outside) and old.outside != new.outside:
            with self.store.exclusive():
                self.store.discard(new.entry)

    def drop(self, made: Path, new: Record) -> None:
        """Remove what a builder made and what was not registered of it, here and where it was packed."""
        durable.remove_tree(made.parent)
        there = self.packers.packer(artefact_of(new))
        if there is not None:
            there.drop(new.entry)

    def needs(self, artefact: Artefact) -> list[str]:
        """What must be made before an artefact: its inputs, and what works on the node that it is packed on."""
        tool = [targets.node_tool_name(self.host)] if self.packers.host(artefact) else []
        return sorted({*artefact.inputs.values(), *tool})

    def _packer(self, host: Host) -> FarPacker:
        from build.replication.packing import FarPacker
        from build.replication.replicas import Replica

        replica = Replica(host, self.workers.ssh_config, self.store, self.report.line)
        tool = self.store.path(str(self.resolve(targets.node_tool_name(self.host)).entry)) / targets.NODE_TOOL
        return FarPacker(replica, self.store, tool, self.host, self.report.line)

    def _packed_where_asked(self, artefact: Artefact) -> bool:
        """True where a rank cache is on this host, or on the node that the settings name for it."""
        known = self.store.need(str(self.resolve(artefact.name).entry))
        return not is_on_node(known.outside) or known.outside == self.outside(artefact)

    def _enforce(self, artefact: Artefact, new: Record) -> None:
        wanted = artefact.known_output or self.lock.expected(new.name, new.key)
        if wanted is not None and wanted != new.output:
            raise OutputDiffers(
                f"{new.name}: the lock has {wanted[:12]} for key {new.key[:12]}, this build gave {new.output[:12]}; nothing was "
                f"registered: if this one is right, remove that [[output]], run `doit`, then `doit lock --record`"
            )

    def build(self, artefact: Artefact, key: str, started_s: float) -> tuple[Path, Record]:
        """Make an artefact of its inputs as resolved; the tree in scratch, and the record it would have."""
        inputs = {role: self.resolve(n) for role, n in artefact.inputs.items()}
        records = {role: self.store.need(str(i.entry)) for role, i in inputs.items()}
        out, files = self.run_builder(artefact, graph.entry_name(key, artefact.name), records)
        made = Made(artefact, key, time.monotonic() - started_s, self.host, self.outside(artefact))
        return out, record_of(made, inputs, files)

    def run_builder(
        self, artefact: Artefact, entry: str, records: Mapping[str, Record], *, cached: bool = True
    ) -> tuple[Path, tuple[Entry, ...]]:
        """Run an artefact's builder on stored inputs, by role: the tree in scratch, which the caller removes, and what it holds.

        ``cached``: compilers may use the state folder's cache, else an empty one.
        """
        from build.graph.jobs import Job

        out = self.store.scratch.new(entry)
        work = out.with_name("work")
        work.mkdir()
        paths = {role: self.store.path(r.entry) for role, r in records.items()}
        tools = self.tools(None if cached else work / "cache")
        try:
            elsewhere = builder(artefact.builder)(Job(artefact, entry, paths, records, out, work, tools, fresh=not cached))
            durable.remove_tree(work)
            return out, tree(out) if elsewhere is None else elsewhere
        except BaseException:
            durable.remove_tree(out.parent)
            raise

    def outside(self, artefact: Artefact) -> str:
        """Where the bytes of a reference artefact lie; "" for one that has its own."""
        if artefact.builder == HUB[0]:
            return str(OUTSIDE)
        if artefact.builder == rank_cache.BUILDER:
            return self.packers.outside(artefact)
        return str(toolchain.installed_root()) if artefact.builder == toolchain.BUILDER else ""

    @property
    def shelf(self) -> Shelf:
        """This node's cache of the hub, read with fingerprints."""
        from build.hub.shelf import Shelf  # only targets with hub files pay for it

        known = self.fingerprints
        return Shelf(self.places.hub_cache, known.sha256, known.git_blob, known.at_hand)

    def tools(self, cache: Path | None = None) -> Toolbox:
        """What builders may use; ``cache`` in place of the state folder's own."""
        from build.graph.jobs import DOCKER_SOCKET, Toolbox

        wheels = toolchain.installed_root()
        return Toolbox(
            self.checkout,
            wheels,
            cache or self.state / "cache",
            self.state / "logs" / "build",
            self.children,
            self.fingerprints.sha256,
            self.state,
            self._hub(),
            self.places.kit_files,
            str(self.places.build_socket or DOCKER_SOCKET),
            self.packers.packer,
        )

    def _hub(self) -> HubAccess:
        from build.graph.jobs import HubAccess

        access = HubAccess(self.shelf, say=self.report.line, show=self.report.extra, xet=self.places.hub_transport == "xet")
        if not self.places.hf_hub_offline:
            return access
        from build.hub import offline

        return replace(access, connect=offline.connect)

    def not_locked(self) -> tuple[str, ...]:
        """Artefacts that were made and whose key the lock does not have."""
        made = [n for n, a in self.graph.items() if a.known_output is None and self.ready(n)]
        return tuple(n for n in made if self.lock.expected(n, str(self.resolve(n).key)) is None)

    def bundle_is_newest(self) -> bool:
        """True where no new generation is due."""
        entry = self.resolve("bundle").entry
        return entry is not None and generations.is_newest(self.state, self.target, entry)

    def make_generation(self) -> generations.Generation:
        """Number the bundle and make it current."""
        with durable.told("generation"):
            return generations.make(self.state, self.target, self.store.need(str(self.resolve("bundle").entry)).entry)

    def standing(self) -> tuple[generations.Generation, generations.Generation]:
        """The current one, and the newest."""
        return generations.current(self.state, self.target), generations.every(self.state, self.target)[-1]

    def close(self) -> None:
        """Keep what was learnt, remove scratch, end the progress line."""
        self.report.close()
        self.fingerprints.save()
        self.store.close()
        self.packers.close()

    def _artefacts(self) -> tuple[Artefact, ...]:
        site = targets.Site(self.checkout, self.host, self.fingerprints.sha256, self.places.variant)
        if targets.is_checkpoint(self.checkout, self.target):
            from build.graph import dsv41

            wish = dsv41.read_wanted(self.checkout, self.target)
            return dsv41.artefacts(wish, self.lock, self._world(wish.world), self.target, site)
        wanted = targets.read_wanted(self.checkout, self.target)
        if self.places.ablit:
            raise UsageError(f"ablit = true: target {self.target} has no abliterated variant")
        return targets.demo(wanted, self.lock, self._world(wanted.world), self.target, site)

    def _world(self, wanted: int) -> int:
        """How many ranks."""
        world = self.places.world or wanted
        if world not in WORLDS:
            raise UsageError(f"world = {world}: the packer takes {', '.join(map(str, WORLDS))}")
        return world
