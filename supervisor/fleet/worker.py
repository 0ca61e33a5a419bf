"""One worker: its connection, its daemon, its store. It has no checkout, and nothing of ours but the store and images."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from build.bundle import Bundle, ImageRef
from build.errors import Refused
from build.image.daemon import DockerDaemon
from build.image.far_docker import FarDocker
from build.image.load import load, prove
from build.nodes.node import SshNode
from build.nodes.ssh_link import Destination
from build.replication import replicate
from build.replication.bulk import Sender
from build.replication.far_store import FarStore
from build.replication.replica import needed
from build.store.store import Store
from supervisor.fleet.hosts import Host
from supervisor.fleet.site import Site, platform_of
from supervisor.runners.docker import DockerRunner, image_archive

ASK_S = 15.0
CACHE = "cache"  # in the node's store: the only folder there that ranks may write to
# The store's place with no link in it, who we are there, and what the machine is.
ASK = 'readlink -m -- "$1" && id -u && id -g && uname -m'
MAKE_CACHE = 'mkdir -p -- "$1"'

Say = Callable[[str], None]


class Worker:
    """A worker of one fleet. ``prepare`` is the setting of that name."""

    def __init__(self, host: Host, ssh_config: Path | None, prepare: str, head_store: Path, say: Say) -> None:
        self.host, self._prepare, self._head_store, self._say = host, prepare, head_store, say
        destination = Destination(host.name, host.target, config=ssh_config)
        self.node = SshNode(destination, PurePosixPath(host.store), docker_socket=host.docker_socket)
        self._docker = FarDocker(self.node)
        self.runner = DockerRunner(self._docker, self._image_id, host.name)
        self._site: Site | None = None
        self._lock = threading.Lock()

    def site(self) -> Site:
        """What the worker says of itself, asked once."""
        with self._lock:
            if self._site is None:
                said = self.node.run(["sh", "-c", ASK, "site", self.host.store], ASK_S).text.split("\n")
                store, uid, gid, machine = said[0], said[1], said[2], said[3]
                self._site = Site(self.host.name, Path(store), platform_of(machine), f"{uid}:{gid}", Path(store) / CACHE)
            return self._site

    def prepare(self, bundle: Bundle) -> None:
        """Check all that its ranks need there, bring what it lacks, mend what is damaged.

        Under ``prepare = 0`` nothing is brought. Raises what says why its ranks could not be started.
        """
        site = self.site()
        far = FarStore(self.node, self._tool(bundle, site), send_tool=self._prepare != "0")
        entries = {entry for rank in self.host.ranks for entry in needed(bundle, rank)}
        wanted = replicate.wants(Store(self._head_store), entries)
        if self._prepare == "0":
            replicate.require(self.host.name, replicate.check(far, wanted))
        else:
            self._bring(far, wanted)
            self.node.run(["sh", "-c", MAKE_CACHE, "cache", str(site.cache)], ASK_S)
        self._image_id(self._image(bundle, site))

    def close(self) -> None:
        """Let the connection go."""
        self.runner.close()
        self._docker.close()
        self.node.close()

    def _bring(self, far: FarStore, wanted: tuple[replicate.Want, ...]) -> None:
        sender = Sender(self.node.destination, far.root, Store(self._head_store).path)
        report = replicate.Replication(far, sender, self._say).run(wanted, thorough=self._prepare == "1")
        if report.copied or report.mended:
            what = ", ".join(
                f"{len(names)} {word}" for names, word in ((report.copied, "copied"), (report.mended, "mended")) if names
            )
            self._say(f"{self.host.name}: {what}, {report.sent_bytes / 2**20:.1f} MiB sent in {report.took_s:.1f} s")

    def _tool(self, bundle: Bundle, site: Site) -> Path:
        if site.platform not in bundle.node_tool:
            raise Refused(f"{self.host.name} is {site.platform}, and the bundle has no node tool for it: run `doit`")
        return bundle.node_tool[site.platform].program.under(self._head_store)

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
