"""The head's store as a worker reads it over NFS: through a Docker volume, or a path at which the export is mounted already.

Nothing is copied then, so every file that the worker's ranks need is seen and hashed through the same mount before they start, by
the node tool in a container of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from build.errors import Refused
from build.nodes.node import Node
from build.nodes.ssh_errors import shown
from build.store.outside import IN_CONTAINER
from supervisor.doctor.nfs import Export
from supervisor.fleet.site import Site

if TYPE_CHECKING:
    from build.replication.replicate import Want

TOOL = "/twinfold-node"
QUICK_S = 60.0
FLOOR_BYTES_PER_S = 20 << 20  # slower than any network that a rank's weights could be loaded over


def mount(source: str) -> str:
    """``docker run --mount`` of a volume's name or of a path. A volume that is empty must not be filled from the image."""
    if source.startswith("/"):
        return f"type=bind,source={source},target={IN_CONTAINER},readonly"
    return f"type=volume,source={source},target={IN_CONTAINER},readonly,volume-nocopy"


def site(own: Site, source: str) -> Site:
    """A worker's site where it reads the head's store through ``source``; its cache stays its own. "" changes nothing."""
    if source.startswith("/"):
        return replace(own, store=Path(source))
    return replace(own, volume=source)


def make_volume(node: Node, docker_socket: str, export: Export) -> None:
    """Make the volume. That there is none of its name must be known: over an existing one nothing would change."""
    options = [word for key, value in export.options().items() for word in ("--opt", f"{key}={value}")]
    node.run([*_docker(docker_socket), "volume", "create", "--driver", "local", *options, export.volume], QUICK_S)


def require(node: Node, docker_socket: str, source: str, image_id: str, wanted: Iterable[Want]) -> None:
    """Read all that is wanted through the mount. ``Refused`` with the first file that is missing or has other bytes."""
    from build.replication import replica
    from build.replication.replica import Held
    from build.store import durable

    for want in wanted:
        record = want.record
        argv = [*_docker(docker_socket), "run", "--rm", "--network", "none", "--mount", mount(source), "--entrypoint", TOOL]
        argv += [image_id, "hash", "--tree", f"{IN_CONTAINER}/{record.entry}"]
        done = node.run(argv, QUICK_S + record.size_bytes / FLOOR_BYTES_PER_S, check=False)
        try:
            names = tuple(replica.seen(line) for line in done.text.splitlines())
        except ValueError:
            names = ()
        if not names:
            words = done.stderr.decode(errors="replace").strip().splitlines()
            said = words[-1] if words else f"`{shown(argv)}` ended with {done.status}"
            raise Refused(f"{node.name}: {record.entry} cannot be read through {source}: {said}")
        wrong = next(replica.differences(record.files, Held(record.entry, durable.FOLDER_MODE, "", names=names)), None)
        if wrong:
            raise Refused(
                f"{node.name}: {wrong.path} of {record.entry} {wrong.what}, as read through {source}: is it the export?"
            )


def _docker(socket: str) -> list[str]:
    return ["docker", "--host", f"unix://{socket}"]
