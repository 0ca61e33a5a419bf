"""Which image an inspected one is, which layers need no sending, and what each unusable daemon is called."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from build.errors import Refused, StoreDamaged
from build.facts import layers
from build.image.assemble import Archive, ImageConfig, assemble, read_archive
from build.image.daemon import DockerDaemon, is_whole, load_refusal
from build.image.docker_api import Answer, DaemonUnreachable, connect
from build.image.identity import ImageIdentity, as_inspected, differences
from build.image.layers import Layer
from build.image.load import known_layers, load, stream
from build.image.oci import Descriptor, Platform, blob_path
from tests.testing.folders import let_others_in

CASE = Path(__file__).parent.parent / "cases/docker-image-ids-two-stores"
AMD64 = Platform("linux", "amd64")


def _input(name: str) -> Any:
    (image,) = json.loads((CASE / f"input-{name}.json").read_text())
    return image


@pytest.mark.parametrize(
    ("worker", "differs_in"),
    [("worker", ()), ("worker-old-layer", ("RootFS.Layers",)), ("worker-other-env", ("Config.Env",))],
)
def test_one_image_in_two_stores_is_the_same_and_a_really_different_one_is_not(worker: str, differs_in: tuple[str, ...]) -> None:
    head, other = _input("head"), _input(worker)
    assert differences(head, other) == differs_in
    assert differences(other, head) == differs_in


def test_an_empty_list_is_no_image() -> None:
    assert layers((CASE / "input-missing-stdout.txt").read_text()) == frozenset()


def test_images_without_layers_or_of_another_architecture_are_never_the_same() -> None:
    head = _input("head")
    assert "RootFS.Layers" in differences({**head, "RootFS": {}}, {**head, "RootFS": {}})
    assert differences(head, {**head, "Architecture": "amd64"}) == ("Architecture",)


@given(
    st.dictionaries(st.sampled_from(["Env", "Cmd", "User", "Labels", "Volumes"]), st.sampled_from([None, "", [], {}, ["a"], "x"]))
)
def test_unset_values_are_equal_however_they_are_written(config: dict[str, Any]) -> None:
    found = {**_input("head"), "Config": config}
    trimmed = {key: value for key, value in config.items() if value}
    assert differences(found, {**found, "Config": trimmed}) == ()


def _archive(diff_ids: list[str], carried: bool = True) -> Archive:
    layers = tuple(Descriptor("layer", f"blob-{one}", 1) for one in diff_ids)
    members: dict[str, Any] = dict.fromkeys((blob_path(one.digest) for one in layers), None) if carried else {}
    identity = ImageIdentity(AMD64, "sha256:c", tuple(diff_ids), "sha256:m", "t:1")
    return Archive(Path("none"), identity, {}, layers, members)


@given(
    st.lists(st.sampled_from("abcd"), max_size=5, unique=True),
    st.lists(st.lists(st.sampled_from("abcde"), max_size=5), max_size=4),
)
def test_a_graph_driver_is_spared_a_common_beginning_and_a_containerd_store_each_blob(
    ours: list[str], stacks: list[list[str]]
) -> None:
    archive, theirs = _archive(ours), [tuple(one) for one in stacks]
    chain = known_layers(archive, theirs, keeps_blobs=False)
    assert chain == {f"blob-{one}" for one in ours[: len(chain)]}
    assert any(list(one[: len(chain)]) == ours[: len(chain)] for one in [*theirs, ()])
    assert not any(list(one[: len(chain) + 1]) == ours[: len(chain) + 1] for one in theirs if len(ours) > len(chain))
    blobs = known_layers(archive, theirs, keeps_blobs=True)
    assert blobs == {f"blob-{one}" for one in ours if any(one in stack for stack in theirs)}
    assert chain <= blobs


def test_a_layer_that_comes_again_further_up_is_sent() -> None:
    assert known_layers(_archive(["a", "b", "a"]), [("a", "b")], keeps_blobs=False) == {"blob-b"}


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    config = ImageConfig("localhost/t/x", AMD64, env=(("A", "1"),))
    assemble((Layer("one", files=(("/1", "1"),)), Layer("two", files=(("/2", "2" * 5000),))), config, None, tmp_path / "a.tar")
    return read_archive(tmp_path / "a.tar")


def test_the_whole_stream_is_the_file_and_a_thin_one_is_a_tar_without_the_omitted_blobs(archive: Archive, tmp_path: Path) -> None:
    assert b"".join(stream(archive)) == archive.path.read_bytes()
    thin = tmp_path / "thin.tar"
    thin.write_bytes(b"".join(stream(archive, frozenset({archive.layers[1].digest}))))
    with tarfile.open(thin) as tar:
        assert set(archive.members) - set(tar.getnames()) == {blob_path(archive.layers[1].digest)}


def test_an_archive_that_ends_early_stops_the_load(archive: Archive) -> None:
    os.truncate(archive.path, archive.members[blob_path(archive.layers[1].digest)].offset_bytes + 100)
    with pytest.raises(StoreDamaged, match="ends early"):
        list(stream(archive))


@pytest.mark.parametrize(
    ("status", "body", "refusal"),
    [
        (200, '{"stream":"Loaded image: t:1\\n"}\r\n', ""),
        (200, "", ""),
        (200, '{"status":"Loading layer"}\r\n{"errorDetail":{"message":"no space"},"error":"no space"}\r\n', "no space"),
        # A containerd store imports first, and reports a failed unpacking in passing.
        (
            200,
            '{"stream":"Loaded image: t:1\\n"}\n{"stream":"Error unpacking image t:1: content digest x: not found\\n"}\n',
            "unpacking",
        ),
        (500, '{"message":"open blobs/sha256/1: no such file or directory"}', "no such file or directory"),
        (404, "not even JSON", "not even JSON"),
    ],
)
def test_a_refused_load_is_told_from_a_good_one(status: int, body: str, refusal: str) -> None:
    found = load_refusal(Answer(status, body))
    assert bool(found) == bool(refusal)
    assert refusal in found
    assert "\n" not in found


def test_an_image_with_missing_blobs_is_not_whole() -> None:
    def said(available: bool) -> dict[str, Any]:
        return {"Manifests": [{"ID": "sha256:m", "Available": available}, {"ID": "sha256:other", "Available": False}]}

    assert is_whole({}, "sha256:m")
    assert is_whole(said(True), "sha256:m")
    assert not is_whole(said(False), "sha256:m")


def test_a_message_is_one_line() -> None:
    assert Answer(500, '{"message":"a\\n  b"}').message == "a b"
    assert Answer(500, "[]").message == "[]"


class _Server(ThreadingUnixStreamServer):
    """A Docker API on a unix socket that answers what a test says."""

    daemon_threads = True
    answers: ClassVar[dict[str, tuple[int, Any]]] = {}


class _Handler(BaseHTTPRequestHandler):
    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self) -> None:
        assert isinstance(self.server, _Server)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        asked.append(self.path)
        status, document = self.server.answers.get(self.path.split("?")[0], (404, {"message": "page not found"}))
        body = document.encode() if isinstance(document, str) else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = _answer  # noqa: N815 the name is http.server's

    def do_POST(self) -> None:
        while size := int(self.rfile.readline(), 16):  # the archive comes in chunks
            self.rfile.read(size + 2)
        self.rfile.readline()
        self._answer()


asked: list[str] = []


@contextlib.contextmanager
def _api(path: Path, answers: dict[str, tuple[int, Any]]) -> Iterator[str]:
    asked.clear()
    with _Server(str(path), _Handler) as server:
        server.answers = answers  # type: ignore[misc]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield str(path)
        finally:
            server.shutdown()
            thread.join()


def test_a_missing_socket_says_that_docker_is_not_running(tmp_path: Path) -> None:
    with pytest.raises(
        DaemonUnreachable, match=r"not running on spark-b: there is no socket .*: install Docker, or `sudo systemctl"
    ):
        connect(str(tmp_path / "none.sock"), "spark-b")


def test_a_dead_socket_says_that_nothing_listens(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "d.sock"))
    with pytest.raises(DaemonUnreachable, match="nothing listens on"):
        connect(str(tmp_path / "d.sock"), "spark-b")


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed to be refused by the socket's mode")
def test_a_user_outside_the_group_is_told_how_to_join(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "d.sock"))
        listening.listen()
        (tmp_path / "d.sock").chmod(0o600)
        let_others_in(tmp_path)
        os.seteuid(65534)  # gives up root's right to pass every mode
        try:
            with pytest.raises(Refused) as refused:
                connect(str(tmp_path / "d.sock"), "spark-b")
        finally:
            os.seteuid(0)
    assert str(refused.value).startswith("Docker on spark-b refuses this user")
    assert "`sudo usermod -aG docker $USER`, then log in again" in str(refused.value)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((200, {"ApiVersion": "1.39", "Version": "18.09.9"}), r"Docker 18\.09\.9 on spark-b speaks API 1\.39, 1\.40 or newer"),
        ((200, {}), "speaks API none"),
        ((500, {"message": "no"}), "speaks API none"),
    ],
)
def test_an_old_daemon_is_told_to_upgrade(answer: tuple[int, Any], says: str, tmp_path: Path) -> None:
    with _api(tmp_path / "d.sock", {"/version": answer}) as path, pytest.raises(Refused, match=says):
        connect(path, "spark-b")


def _new_daemon(archive: Archive, **changed: Any) -> dict[str, tuple[int, Any]]:
    image = {"Id": archive.identity.manifest_digest, **as_inspected(archive.config), **changed}
    return {
        "/version": (200, {"ApiVersion": "1.48", "Version": "28.0.0"}),
        "/v1.48/info": (
            200,
            {"Architecture": "x86_64", "OSType": "linux", "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]},
        ),
        "/v1.48/images/json": (200, []),
        "/v1.48/images/load": (200, '{"stream":"Loaded image"}\n'),
        f"/v1.48/images/{archive.identity.tag}/json": (200, image),
    }


def test_a_daemon_that_knows_platforms_is_told_the_platform(archive: Archive, tmp_path: Path) -> None:
    incomplete = {"Manifests": [{"ID": archive.identity.manifest_digest, "Available": False}]}
    with _api(tmp_path / "d.sock", _new_daemon(archive, **incomplete)) as path:
        client = connect(path, "spark-b")
        daemon = DockerDaemon(client)
        assert daemon.keeps_blobs()
        assert daemon.platform() == AMD64
        with pytest.raises(Refused, match="is not whole on spark-b"):
            load(archive, daemon)
        client.close()
    (sent,) = [one for one in asked if "/images/load" in one]
    assert "platform=%7B%22architecture%22%3A+%22amd64%22%2C+%22os%22%3A+%22linux%22%7D" in sent


def test_an_image_that_is_there_is_not_sent_again(archive: Archive, tmp_path: Path) -> None:
    with _api(tmp_path / "d.sock", _new_daemon(archive)) as path:
        client = connect(path, "spark-b")
        assert load(archive, DockerDaemon(client)).how == "present"
        client.close()
    assert not [one for one in asked if "/images/load" in one]


def test_an_image_of_another_platform_is_not_sent(archive: Archive, tmp_path: Path) -> None:
    arm = replace(archive, identity=replace(archive.identity, platform=Platform("linux", "arm64")))
    with _api(tmp_path / "d.sock", _new_daemon(archive)) as path:
        client = connect(path, "spark-b")
        with pytest.raises(Refused, match="is for linux/arm64, spark-b is linux/amd64"):
            load(arm, DockerDaemon(client))
        client.close()
