"""One worker: its connection, its daemon, its store. It has no checkout, and nothing of ours but the store and images."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from build.bundle import Bundle, ImageRef
from build.errors import Refused
from build.image.daemon import DockerDaemon
from build.image.far_docker import FarDocker
from build.image.load import load, prove
from build.nodes.hosts import Host
from build.replication.replicas import Replica
from build.replication.replicate import told_report, wants
from build.store.fingerprints import FINGERPRINTS, Fingerprints
from build.store.store import Store
from supervisor.fleet import shared
from supervisor.fleet.site import GuardPost, Site
from supervisor.guard.places import FarPlace
from supervisor.runners.docker import DockerRunner, image_archive

CACHE = "cache"  # in the node's store: the only folder there that ranks may write to
MAKE_CACHE = 'mkdir -p -- "$1"'
ASK_S = 15.0

Say = Callable[[str], None]


class Worker:
    """A worker of one fleet. ``prepare`` is the setting of that name.

    ``shared``: the Docker volume, or the path there, through which it reads the head's store; "" where it has its own copy.
    """

    def __init__(
        self, host: Host, ssh_config: Path | None, prepare: str, head_store: Path, say: Say, *, shared: str = ""
    ) -> None:
        self._shared = shared
        self.host, self._prepare, self._head_store, self._say = host, prepare, head_store, say
        self._known = Fingerprints(head_store.parent / FINGERPRINTS)
        self._replica = Replica(host, ssh_config, Store(head_store, self._known.sha256), say)
        self.node = self._replica.node
        self._docker = FarDocker(self.node)
        self.runner = DockerRunner(self._docker, self._image_id, host.name)
        self._site: Site | None = None
        self._lock = threading.Lock()

    def site(self) -> Site:
        """What the worker says of itself, asked once."""
        with self._lock:
            if self._site is None:
                place = self._replica.place()
                own = Site(self.host.name, place.store, place.platform, place.user, place.store / CACHE)
                self._site = shared.site(own, self._shared)
            return self._site

    def prepare(self, bundle: Bundle) -> None:
        """Check all that its ranks need there, bring what it lacks, mend what is damaged.

        Under ``prepare = 0`` nothing is brought. Raises what says why its ranks could not be started.
        """
        site = self.site()
        if self._shared:
            self._see(bundle, site)
        elif self._prepare == "0":
            self._replica.require(bundle, site.platform)
        else:
            self._say(told_report(self._replica.fill(bundle, site.platform, thorough=self._prepare == "1")))
        self._known.save()
        if self._shared or self._prepare != "0":
            self.node.run(["sh", "-c", MAKE_CACHE, "cache", str(site.cache)], ASK_S)
        self._image_id(self._image(bundle, site))

    @property
    def guard_post(self) -> GuardPost:
        """For its ranks' guards."""
        return GuardPost(self.site, self._docker, self._image_id, FarPlace(self.node))

    def close(self) -> None:
        """Let the connection go."""
        self.runner.close()
        self._docker.close()
        self._replica.close()

    def _see(self, bundle: Bundle, site: Site) -> None:
        """Read everything through the mount, which the node tool does in a container."""
        tool = self._image_id(self._replica.tool(bundle, site.platform).image)
        wanted = wants(Store(self._head_store), self._replica.needed(bundle))
        shared.require(self.node, self.host.docker_socket, self._shared, tool, wanted)

    def _image(self, bundle: Bundle, site: Site) -> ImageRef:
        if site.platform not in bundle.image:
            raise Refused(f"{self.host.name} is {site.platform}, and the bundle has no image for it: run `doit`")
        return bundle.image[site.platform]

    def _image_id(self, image: ImageRef) -> str:
        """The worker's own id of a bundle's image, which is brought there unless nothing may be."""
        archive = image_archive(image, self._head_store)
        daemon = DockerDaemon(self._docker)
        if self._prepare == "0":
            return prove(archive, daemon)
        done = load(archive, daemon, self._say)
        if done.how != "present":
            self._say(f"{self.host.name}: image {image.tag} loaded ({done.how}, {done.sent_bytes / 2**20:.1f} MiB sent)")
        return done.image_id
