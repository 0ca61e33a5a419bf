"""The head's store read through a mount. This kernel mounts no NFS: volumes are made as for NFS and compared in the daemon, and
what is read through one is read through a bind."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

from build.errors import Refused
from build.nodes.node import SshNode
from build.nodes.ssh_link import Destination
from build.replication import replicate
from build.store.store import Store
from supervisor.doctor.nfs import Export
from supervisor.fleet import shared
from tests.contract.test_nodes_replicate import add
from tests.testbed.bed import Testbed
from tests.testing.node_tool import node_tool
from tests.testing.on_head import doctor

pytestmark = [pytest.mark.testbed, pytest.mark.timeout(600)]
VOLUME = "doctor-nfs"


@dataclass(slots=True)
class Mounted:
    """A worker, an image with the node tool there, and a store that it reads through a mount."""

    node: SshNode
    socket: str
    image: str
    store: Store
    root: Path  # the store as this machine sees it

    def docker(self, *words: str, check: bool = True) -> str:
        return self.node.run(["docker", "--host", f"unix://{self.socket}", *words], 60, check=check).text

    def require(self, source: str) -> None:
        shared.require(self.node, self.socket, source, self.image, replicate.wants(self.store, list(self.store.entries())))


def image_tar() -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as tar:
        tar.add(node_tool(), shared.TOOL.lstrip("/"))
    return held.getvalue()


@pytest.fixture
def mounted(testbed: Testbed) -> Iterator[Mounted]:
    worker = testbed.worker
    node = SshNode(Destination(worker.name, worker.name, (*testbed.head.prefix, "ssh")), PurePosixPath("/nowhere"))
    socket = str(worker.plan.docker_socket)
    root = worker.plan.home / "export"
    made = Mounted(node, socket, "", Store(root), root)
    command = ["docker", "--host", f"unix://{socket}", "import", "-", "doctor/tool"]
    made.image = node.run(command, 60, stdin=image_tar()).text.strip()
    yield made
    made.docker("volume", "rm", "-f", VOLUME, check=False)
    made.docker("rmi", "-f", made.image, check=False)
    node.run(["sh", "-c", 'chmod -R u+w "$1"; rm -rf "$1"', "rm", str(root)], 60)
    node.close()


def test_every_needed_file_is_read_through_the_mount(mounted: Mounted) -> None:
    entry = add(mounted.store, 1, "model", {"a.bin": b"a" * 100_000, "sub/b.bin": b"b"}, links={"c": "a.bin"})
    mounted.docker("volume", "create", "--opt", "type=none", "--opt", "o=bind", "--opt", f"device={mounted.root}", VOLUME)
    for source in (VOLUME, str(mounted.root)):
        mounted.require(source)
    damaged = mounted.root / entry / "a.bin"
    damaged.chmod(0o644)
    damaged.write_bytes(b"a" * 99_999 + b"x")
    damaged.chmod(0o444)
    for source in (VOLUME, str(mounted.root)):
        with pytest.raises(Refused, match=r"a\.bin of .*-model has other content, as read through"):
            mounted.require(source)


def test_what_is_not_there_is_named(mounted: Mounted, tmp_path: Path) -> None:
    add(mounted.store, 1, "model", {"a.bin": b"a"})
    with pytest.raises(Refused, match="-model cannot be read through"):
        mounted.require(str(mounted.root.parent))
    with pytest.raises(Refused, match="cannot be read through"):
        mounted.require(str(tmp_path / "nowhere"))


def test_a_volume_is_made_as_asked_and_another_of_its_name_is_refused(mounted: Mounted, testbed: Testbed, tmp_path: Path) -> None:
    head = {"storage": "nfs", "nfs_volume": VOLUME, "nfs_path": "/srv/store"}
    export = Export("192.0.2.1", "/srv/store", VOLUME)

    def found() -> dict[str, str]:
        _, said = doctor(testbed, tmp_path, **head)
        return {one["reason"]: one["found"] for one in said["findings"]}

    first = found()
    assert "nfs_volume_missing" in first
    assert ("nfs_common_missing" in first) == (mounted.node.run(["sh", "-c", "ls /sbin/mount.nfs"], 10, check=False).status != 0)
    shared.make_volume(mounted.node, mounted.socket, export)
    assert not {"nfs_volume_missing", "nfs_volume_differs"} & found().keys()
    other = Export("192.0.2.9", "/srv/store", VOLUME)
    shared.make_volume(mounted.node, mounted.socket, other)  # ends with 0, and changes nothing
    assert not {"nfs_volume_missing", "nfs_volume_differs"} & found().keys()
    mounted.docker("volume", "rm", VOLUME)
    shared.make_volume(mounted.node, mounted.socket, other)
    assert "192.0.2.9, not 192.0.2.1" in found()["nfs_volume_differs"]
