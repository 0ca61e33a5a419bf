"""The store's commands over the workers that the settings name.

Every worker is done; those that could not be reached are an error at the end, after all that could be done is done.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from build.bundle import Bundle, from_json
from build.errors import Refused, UsageError
from build.graph.project import Project
from build.graph.report import short
from build.image.assemble import read_archive
from build.image.daemon import DockerDaemon
from build.image.far_docker import FarDocker
from build.image.load import load
from build.nodes.ssh_errors import NodeError
from build.replication.replicas import Replica, replicas
from build.replication.replicate import told, told_report
from build.store import generations, roots
from build.store.repair import pack_again


def fill(project: Project) -> None:
    """Bring the current bundle's files and image to every worker."""
    if not project.workers.worker.split():
        raise UsageError("`worker` names no host to bring anything to: set it in config.toml")
    bundle = generations.chosen(project.state, project.target, project.places.variant).bundle

    def one(replica: Replica, bundle: Bundle) -> None:
        platform = replica.place().platform
        report = replica.fill(bundle, platform)
        project.report.line(told_report(report))
        image = bundle.image.get(platform)
        if image is not None:
            daemon = FarDocker(replica.node)
            try:
                done = load(read_archive(image.archive.under(project.store.root)), DockerDaemon(daemon), project.report.line)
            finally:
                daemon.close()
            project.report.line(f"{replica.host.name}: image {image.tag} {'is there' if done.how == 'present' else 'loaded'}")

    _each(project, bundle, one)


def verify(project: Project) -> int:
    """Read every byte on every worker; how many paths are damaged."""
    damaged, bundle = 0, _bundle(project)

    def one(replica: Replica, bundle: Bundle) -> None:
        nonlocal damaged
        with project.report.running(replica.host.name, "reading"):
            found = replica.verify(bundle, replica.place().platform)
        for finding in found:
            project.report.line(f"damaged {replica.host.name}: {finding.entry}: {told(finding)}")
        damaged += len(found)
        project.report.line(f"{replica.host.name}: {len(found) or 'nothing'} damaged")

    _each(project, bundle, one)
    return damaged


def repair(project: Project) -> None:
    """Read every byte on every worker, and send again what is damaged."""
    bundle = _bundle(project)

    def one(replica: Replica, bundle: Bundle) -> None:
        report = replica.repair(bundle, replica.place().platform, partial(pack_again, project))
        project.report.line(told_report(report) if report.mended or report.copied else f"{replica.host.name}: nothing to mend")

    _each(project, bundle, one)


def collect(project: Project, keep: int, *, dry_run: bool) -> None:
    """Remove from every worker what none of its ranks needs of a kept generation or a running launch."""
    bundle = _bundle(project)
    if bundle is None:
        return
    stay, _ = roots.kept(project.state, keep)
    launches = roots.launches(project.state, roots.boot_id())
    running = [project.store.path(root.entry) / generations.BUNDLE_FILE for root in launches]
    kept = [*(generation.bundle for generation in stay), *(_read(path) for path in running if path.exists())]
    would = "would go" if dry_run else "gone"

    def one(replica: Replica, bundle: Bundle) -> None:
        gone = replica.collect(bundle, replica.place().platform, kept, dry_run=dry_run)
        for entry in gone:
            project.report.line(f"{would}  {replica.host.name}: {short(entry)}")
        project.report.line(f"{replica.host.name}: {len(gone)} paths {would}")

    _each(project, bundle, one)


def _bundle(project: Project) -> Bundle | None:
    """The one that a launch takes, whose node tool is used; None where nothing was built, or no worker is named."""
    if not project.workers.worker.split():
        return None
    taken = generations.chosen_or_none(project.state, project.target, project.places.variant)
    return taken.bundle if taken else None


def _read(file: Path) -> Bundle:
    return from_json(file.read_text(encoding="utf-8"), str(file))


def _each(project: Project, bundle: Bundle | None, work: Callable[[Replica, Bundle], None]) -> None:
    if bundle is None:
        return
    lost: list[NodeError] = []
    for replica in replicas(project.workers, bundle.world_size, project.store, project.report.line):
        try:
            work(replica, bundle)
        except NodeError as error:
            lost.append(error)
        finally:
            replica.close()
    for earlier in lost[:-1]:
        project.report.line(f"error: {earlier}")
    if lost:
        raise Refused(str(lost[-1]))
