"""The head's store read by workers over NFS: the Docker volume that does it, the export that it needs, what is wrong with them.

Pure. ``docker volume create`` over an existing volume of the same name changes nothing and ends with 0, so an existing one is
compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from build.facts import Volume
from supervisor.doctor.facts import NodeFacts
from supervisor.doctor.findings import Finding, error, note, warning

# Read-only, version 4 (one port, no lock daemon), waiting for a head that restarts rather than failing reads, no access times.
OPTIONS = "ro,nfsvers=4,proto=tcp,hard,noatime"


@dataclass(frozen=True, slots=True)
class Export:
    """What the workers read: ``server`` is the head's address on the link ("" not known yet), ``path`` what it exports.

    ``volume`` is a Docker volume's name, or a path on the workers at which the export is mounted already.
    """

    server: str
    path: str
    volume: str
    engram: bool = False  # the bundle has Engram tables, which would be read over it
    engram_allowed: bool = False

    @property
    def mounted(self) -> bool:
        """Whether the workers have it mounted by themselves."""
        return self.volume.startswith("/")

    def options(self) -> Mapping[str, str]:
        """The local driver's options of the volume."""
        return {"type": "nfs", "device": f":{self.path}", "o": f"addr={self.server},{OPTIONS}"}

    def create(self) -> str:
        """The command that makes the volume."""
        given = " ".join(f"--opt {key}={value}" for key, value in self.options().items())
        return f"docker volume create --driver local {given} {self.volume}"

    def line(self, workers: Sequence[str]) -> str:
        """The line for /etc/exports. ``crossmnt``: the store may span mounts; only these workers, and none as root."""
        return f"{self.path} " + " ".join(f"{one}(ro,crossmnt,no_subtree_check,root_squash)" for one in workers)


def findings(export: Export, head: NodeFacts, workers: Sequence[tuple[NodeFacts, str]]) -> tuple[Finding, ...]:
    """What is wrong. ``workers``: each with its address on the link, "" where it is not known."""
    found: list[Finding] = []
    if export.engram and not export.engram_allowed:
        found.append(_engram(export))
    found += _exported(export, head, [address for _, address in workers if address])
    for node, _ in workers:
        found += _worker(export, node)
    return tuple(found)


def differs(volume: Volume, export: Export) -> str:
    """Why an existing volume is not the export; "" where it is. Other mount options than the address and the path may differ."""
    options = dict(volume.options)
    device, kind = options.get("device", ""), options.get("type", "")
    address = re.search(r"(?:^|,)addr=([^,]+)", options.get("o", ""))
    server = address[1] if address else device.rpartition(":")[0]
    path = device.rpartition(":")[2]
    if not kind.startswith("nfs"):
        return f"is of type {kind or 'none'}, not nfs"
    if server != export.server:
        return f"is of {server or 'no address'}, not {export.server}"
    if path.rstrip("/") != export.path.rstrip("/"):
        return f"is of {path}, not {export.path}"
    if "ro" not in options.get("o", "").split(","):
        return "is mounted for writing"
    return ""


def _worker(export: Export, node: NodeFacts) -> Iterator[Finding]:
    if export.mounted:
        return
    if node.system.mount_nfs is False:
        yield error(
            "nfs_common_missing",
            node.name,
            f"{node.label}: nfs-common is not installed",
            "the head's store cannot be mounted there",
            "install it",
            "sudo apt-get install nfs-common",
        )
    if node.volume is None:
        yield note(
            "nfs_volume_missing",
            node.name,
            f"{node.label}: there is no Docker volume {export.volume} yet",
            "a run makes it",
            "nothing to do",
            export.create(),
        )
    elif export.server and (why := differs(node.volume, export)):
        yield error(
            "nfs_volume_differs",
            node.name,
            f"{node.label}: the Docker volume {export.volume} {why}",
            "its ranks would read other files; creating it anew over the old one changes nothing",
            "remove it, or name another with nfs_volume",
            f"docker volume rm {export.volume}",
        )


def _exported(export: Export, head: NodeFacts, workers: Sequence[str]) -> Iterator[Finding]:
    """What /etc/exports says of the path. Another NFS server than the kernel's may serve it, so this is no error."""
    rows = [line.split("#")[0].split() for line in head.exports.splitlines()]
    mine = next((row for row in rows if row and _holds(row[0], export.path)), None)
    line = export.line(workers or ["WORKER"])
    command = f"echo '{line}' | sudo tee -a /etc/exports && sudo exportfs -ra"
    if mine is None:
        yield warning(
            "nfs_not_exported",
            head.name,
            f"{head.label}: /etc/exports does not name {export.path}",
            "workers cannot mount it, unless another server exports it",
            "install nfs-kernel-server and add this line",
            command,
        )
    elif not any("crossmnt" in word for word in mine[1:]):
        yield warning(
            "nfs_no_crossmnt",
            head.name,
            f"{head.label}: /etc/exports has `{' '.join(mine)}`, without crossmnt",
            "folders on other mounts below it look empty to workers",
            "put this line in its place",
            command,
        )


def _holds(exported: str, path: str) -> bool:
    return path == exported.rstrip("/") or path.startswith(exported.rstrip("/") + "/")


def _engram(export: Export) -> Finding:
    return error(
        "engram_on_network",
        "head",
        f"storage = nfs would have the Engram tables read from {export.path} over NFS",
        "every token waits for random 4 KiB reads over the network",
        "set storage = local, or allow it with engram_on_network = true",
    )
