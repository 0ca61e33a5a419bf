"""All nodes of one gang: the runner over them, what each is, and how they are made ready."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from build.errors import Refused
from build.nodes.hosts import HEAD, hosts
from build.store import generations
from supervisor.configuration import Configuration
from supervisor.fleet.site import GuardPost, Site, head_site, local_site
from supervisor.runners.fleet import FleetRunner, Found
from supervisor.runners.protocol import Runner

if TYPE_CHECKING:
    from build.nodes.node import Node
    from supervisor.doctor.links import Links
    from supervisor.fleet.worker import Worker
    from supervisor.gang.launch import Blueprint

LOG_PARTS = 3  # a process's output is kept in at most so many files
LOOK_S = 0.2  # so soon a cancelled launch lets go of what it waits for
Say = Callable[[str], None]


class Fleet:
    """The head and its workers; fulfils :class:`supervisor.fleet.site.Nodes`."""

    def __init__(
        self, head: Site, runner: Runner, workers: Sequence[Worker] = (), posts: Mapping[str, GuardPost] | None = None
    ) -> None:
        self._head, self._workers = head, {worker.host.name: worker for worker in workers}
        self.guard_posts: Mapping[str, GuardPost] = posts or {}
        self._over = FleetRunner({HEAD: runner, **{one.host.name: one.runner for one in workers}}) if workers else None
        self.runner: Runner = self._over or runner

    def site(self, node: str) -> Site:
        """What a node says of itself."""
        return self._head if node == HEAD else self._workers[node].site()

    def examine(self, one: Configuration, cancelled: threading.Event, say: Callable[[str, str], None]) -> Links:
        """What the doctor finds. One host that needs no GPU is not asked."""
        from supervisor.doctor import preflight

        return preflight.check(one, self._nodes(), cancelled, say)

    def prove(self, one: Configuration, links: Links, say: Callable[[str, str], None]) -> Links:
        """Full-size packets over the links, where the examination could not send any."""
        from supervisor.doctor import preflight

        return preflight.prove(one, self._nodes(), links, say)

    def available(self, one: Configuration) -> Mapping[str, int]:
        """What each worker has available now. ``Refused`` where it cannot be read: then nothing can be promised."""
        from supervisor.fleet import memory

        read, troubles = memory.available(self._nodes().values(), PurePosixPath(one.links.worker_proc_root))
        if troubles:
            name, why = next(iter(troubles.items()))
            raise Refused(f"the memory of {name} cannot be read: {why}")
        return read

    def _nodes(self) -> dict[str, Node]:
        return {name: worker.node for name, worker in self._workers.items()}

    def prepare(self, one: Blueprint, cancelled: threading.Event) -> None:
        """Every worker at once; the first trouble in their order is raised when all are done.

        A launch that is no longer wanted waits for none of them: what was copied stays, and the next copy goes on from there.
        """
        asked = [_Preparing(worker, one) for worker in self._workers.values()]
        for answer in asked:
            answer.wait(cancelled)
        for answer in asked:
            if answer.trouble and not cancelled.is_set():
                raise answer.trouble

    def survey(self) -> Found:
        """Ranks on every node that answers, and why the others do not."""
        return self._over.survey() if self._over else Found(self.runner.leftovers(), {})

    def close(self) -> None:
        """Let connections go; ranks stay as they are."""
        if self._over:
            self._over.close()
        for worker in self._workers.values():
            worker.close()


class _Preparing:
    """One worker being made ready, in a thread that keeps no process from ending (nor do those that it starts)."""

    def __init__(self, worker: Worker, one: Blueprint) -> None:
        self._worker, self._one = worker, one
        self._done = threading.Event()
        self.trouble: Exception | None = None
        threading.Thread(target=self._run, name=f"prepare-{worker.host.name}", daemon=True).start()

    def wait(self, cancelled: threading.Event) -> None:
        """Until it is done, or nobody wants it any more."""
        while not self._done.wait(LOOK_S) and not cancelled.is_set():
            continue

    def _run(self) -> None:
        try:
            self._worker.prepare(self._one.bundle)
        except Exception as error:  # raised where it is waited for
            self.trouble = error
        finally:
            self._done.set()


def fleet_for(one: Configuration, say: Say) -> Fleet:
    """The fleet that the settings ask for. An unreachable daemon of this node is an error that says what to do."""
    if one.serve.runner != "docker":
        from supervisor.runners.process import ProcessRunner

        runner = ProcessRunner(one.run_dir, HEAD, log_cap_bytes=(one.logs.rank_log_max_mib << 20) // LOG_PARTS)
        return Fleet(head_site(HEAD, one.state_dir / "store"), runner)
    site, docker, post = _head(one, say)
    workers = _workers(one, say)
    return Fleet(site, docker, workers, {HEAD: post, **{worker.host.name: worker.guard_post for worker in workers}})


def _head(one: Configuration, say: Say) -> tuple[Site, Runner, GuardPost]:
    from build.image.daemon import DockerDaemon
    from build.image.docker_api import DEFAULT_SOCKET, connect
    from supervisor.guard.places import HeadPlace
    from supervisor.runners.docker import DockerRunner, StoreImages

    api = connect(str(one.serve.docker_socket or DEFAULT_SOCKET), HEAD)
    site = local_site(one.state_dir)
    assert site.cache is not None
    site.cache.mkdir(parents=True, exist_ok=True)
    images = StoreImages(DockerDaemon(api), site.store, say)
    return site, DockerRunner(api, images, HEAD), GuardPost(lambda: site, api, images, HeadPlace(one.run_dir))


def _workers(one: Configuration, say: Say) -> list[Worker]:
    if not one.workers.worker.split():
        return []
    from supervisor.fleet.worker import Worker

    generation = generations.chosen_or_none(one.state_dir, one.places.target, one.places.variant)
    # without a generation nothing can be launched, and what is left on the workers is found all the same
    world = generation.bundle.world_size if generation else len(one.workers.worker.split()) + 1
    found = hosts(one.workers, world)
    store = one.state_dir / "store"
    shared = one.storage.nfs_volume if one.storage.storage == "nfs" else ""
    return [
        Worker(host, one.workers.ssh_config, one.workers.prepare, store, say, shared=shared)
        for host in found
        if host.name != HEAD
    ]
