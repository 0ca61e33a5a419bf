"""Images in real stores: Docker's graph driver and containerd. Only what is missing travels, and the right image arrives."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from build.errors import Refused
from build.image.assemble import Archive, BaseImage, ImageConfig, assemble, read_archive
from build.image.daemon import DockerDaemon
from build.image.docker_api import DockerApi
from build.image.layers import Layer
from build.image.load import Daemon, load, prove
from build.image.oci import Platform
from build.image.recipes import node_image
from tests.testing import dockerd as daemons
from tests.testing.dockerd import HERE, Containerd
from tests.testing.images import base_of, chain_ids
from tests.testing.node_tool import node_tool

BIG = "b" * 3_000_000
STORES = ("graph driver", "containerd")


@pytest.fixture(scope="module")
def containerd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containerd]:
    with daemons.containerd(tmp_path_factory.mktemp("c")) as running:
        yield running


@pytest.fixture
def daemon(request: pytest.FixtureRequest) -> Daemon:
    name = {"graph driver": "docker", "containerd": "containerd"}[request.param]
    found: Daemon = request.getfixturevalue(name)
    return found


def _base(tmp_path: Path, mark: str) -> Archive:
    """An image of one large layer that no other test has."""
    assemble(
        (Layer("large", files=(("/large", mark + BIG),)),), ImageConfig(f"localhost/t/{mark}", HERE), None, tmp_path / "base.tar"
    )
    return read_archive(tmp_path / "base.tar")


def _upper(tmp_path: Path, name: str, text: str, base: BaseImage) -> Archive:
    """A small layer on a base."""
    config = ImageConfig(f"localhost/t/{name}", HERE, env=(("WHICH", text),), entrypoint=("/none",))
    assemble((Layer("small", files=(("/small", text),)),), config, base, tmp_path / f"{name}.tar")
    return read_archive(tmp_path / f"{name}.tar")


def _blobs(archive: Archive, folder: Path) -> Path:
    """The layers of an archive as a folder of blobs."""
    for layer in archive.layers:
        target = folder / layer.digest.replace(":", "/")
        target.parent.mkdir(parents=True, exist_ok=True)
        stored = archive.members["blobs/" + layer.digest.replace(":", "/")]
        with archive.path.open("rb") as stream:
            stream.seek(stored.offset_bytes)
            target.write_bytes(stream.read(stored.size_bytes))
    return folder


@pytest.mark.parametrize("daemon", STORES, indirect=True)
def test_a_full_load_brings_the_image_and_a_second_sends_nothing(daemon: Daemon, tmp_path: Path) -> None:
    archive = _base(tmp_path, "first")
    first = load(archive, daemon)
    assert first.how == "full"
    assert first.sent_bytes > len(BIG)
    expected = archive.identity.manifest_digest if daemon.keeps_blobs() else archive.identity.config_digest
    assert first.image_id == expected
    assert load(archive, daemon) == type(first)(expected, "present", 0, 0)


@pytest.mark.parametrize("daemon", STORES, indirect=True)
def test_a_thin_load_moves_only_the_missing_layer(daemon: Daemon, tmp_path: Path) -> None:
    base = _base(tmp_path, "thin")
    load(base, daemon)
    archive = _upper(tmp_path, "thin-upper", "one", base_of(base, "thin-base", _blobs(base, tmp_path / "blobs")))
    loaded = load(archive, daemon)
    assert (loaded.how, loaded.sent_layers, loaded.refusal) == ("thin", 1, "")
    assert loaded.sent_bytes < 20_000
    assert archive.path.stat().st_size > len(BIG)
    assert prove(archive, daemon) == loaded.image_id


@pytest.mark.parametrize("daemon", STORES, indirect=True)
def test_an_archive_without_the_base_loads_where_the_base_is(daemon: Daemon, tmp_path: Path) -> None:
    base = _base(tmp_path, "bare")
    archive = _upper(tmp_path, "bare-upper", "one", base_of(base, "bare-base@sha256:0"))
    with pytest.raises(Refused, match="docker pull bare-base@sha256:0"):
        load(archive, daemon)
    load(base, daemon)
    assert load(archive, daemon).how == "thin"


class _Forgetful:
    """A real daemon that claims to have the layers of an image that it never saw."""

    def __init__(self, real: Daemon, claimed: tuple[str, ...]) -> None:
        self._real, self._claimed, self.where = real, claimed, real.where
        self.platform, self.keeps_blobs, self.load, self.inspect = real.platform, real.keeps_blobs, real.load, real.inspect

    def stacks(self) -> list[tuple[str, ...]]:
        return [self._claimed]


@pytest.mark.parametrize("daemon", STORES, indirect=True)
def test_a_refused_thin_archive_falls_back_to_the_full_one(daemon: Daemon, tmp_path: Path) -> None:
    base = _base(tmp_path, "refused")
    archive = _upper(tmp_path, "refused-upper", "one", base_of(base, "refused-base", _blobs(base, tmp_path / "blobs")))
    notes: list[str] = []
    loaded = load(archive, _Forgetful(daemon, base.identity.diff_ids), notes.append)
    assert (loaded.how, loaded.sent_layers) == ("full", 2)
    assert loaded.sent_bytes > len(BIG)
    assert loaded.refusal
    assert len(notes) == 1
    assert loaded.refusal in notes[0]
    assert prove(archive, daemon) == loaded.image_id


@pytest.mark.parametrize("daemon", STORES, indirect=True)
def test_a_refused_archive_that_lacks_the_base_says_what_to_pull(daemon: Daemon, tmp_path: Path) -> None:
    base = _base(tmp_path, "lacking")
    archive = _upper(tmp_path, "lacking-upper", "one", base_of(base, "lacking-base@sha256:0"))
    with pytest.raises(Refused, match="docker pull lacking-base@sha256:0"):
        load(archive, _Forgetful(daemon, base.identity.diff_ids))
    with pytest.raises(Refused, match="not whole"):
        prove(archive, daemon)


def test_containerd_unpacks_what_a_thin_layout_brought(containerd: Containerd, tmp_path: Path) -> None:
    base = _base(tmp_path, "unpacked")
    load(base, containerd)
    archive = _upper(tmp_path, "unpacked-upper", "one", base_of(base, "unpacked-base", _blobs(base, tmp_path / "blobs")))
    load(archive, containerd)
    assert set(chain_ids(archive.identity.diff_ids)) <= containerd.snapshots()


def test_another_image_under_our_tag_is_refused_by_name(docker: DockerDaemon, api: DockerApi, tmp_path: Path) -> None:
    archive = _base(tmp_path, "tagged")
    other = _upper(tmp_path, "other", "two", base_of(archive, "tagged-base", _blobs(archive, tmp_path / "blobs")))
    load(archive, docker)
    load(other, docker)
    repository, tag = archive.identity.tag.split(":")
    assert api.post(f"/images/{other.identity.tag}/tag", {"repo": repository, "tag": tag}).status == 201
    with pytest.raises(Refused, match=r"another one \(differs in Config.*RootFS\.Layers\)"):
        prove(archive, docker)
    assert load(archive, docker).how == "thin"
    assert prove(archive, docker) == archive.identity.config_digest


def test_an_image_of_another_platform_is_refused(docker: DockerDaemon, tmp_path: Path) -> None:
    other = Platform("linux", "arm64" if HERE.architecture == "amd64" else "amd64")
    assemble((Layer("x", files=(("/x", "x"),)),), ImageConfig("localhost/t/foreign", other), None, tmp_path / "a.tar")
    with pytest.raises(Refused, match=f"is for {other}"):
        load(read_archive(tmp_path / "a.tar"), docker)


def test_the_node_tools_image_is_the_tool(docker: DockerDaemon, api: DockerApi, tmp_path: Path) -> None:
    node_image(node_tool(), HERE, tmp_path / "node.tar")
    image_id = load(read_archive(tmp_path / "node.tar"), docker).image_id
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").write_bytes(b"content")
    mount = {"Type": "bind", "Source": str(tmp_path / "data"), "Target": "/data", "ReadOnly": True}
    host = {"NetworkMode": "none", "Mounts": [mount]}
    made = api.post("/containers/create", {}, {"Image": image_id, "Cmd": ["hash", "/data/file"], "HostConfig": host}).document[
        "Id"
    ]
    try:
        assert api.post(f"/containers/{made}/start").status == 204
        assert api.post(f"/containers/{made}/wait").document["StatusCode"] == 0
        said = api.get(f"/containers/{made}/logs", {"stdout": "1"}).text
    finally:
        api.delete(f"/containers/{made}", {"force": "1"})
    assert hashlib.sha256(b"content").hexdigest() in said
