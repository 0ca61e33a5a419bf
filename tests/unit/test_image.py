"""Images are a function of what goes in: bytes, identity, and what cannot be in one."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from build.errors import BuildFailed, StoreDamaged, UsageError
from build.image import oci
from build.image.assemble import BaseImage, ImageConfig, assemble, read_archive
from build.image.layers import Hashed, Layer, Placed, entries, write_layer
from build.image.oci import Platform, parse_platform
from build.image.recipes import engine_image, node_image
from tests.testing.images import base_of

AMD64, ARM64 = Platform("linux", "amd64"), Platform("linux", "arm64")
NAMES = ("tensorfold-native", "tf-dsv41-check", "tf-dsv41-lanes", "tf-dsv41-rank-cache")


def _tree(folder: Path) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/run").write_bytes(b"#!/bin/sh\n")
    (folder / "bin/run").chmod(0o555)
    (folder / "b").write_text("plain")
    (folder / "a-long-" / Path("n" * 120)).parent.mkdir()
    (folder / "a-long-" / Path("n" * 120)).write_text("long name")
    (folder / "link").symlink_to("bin/run")
    return folder


def _layer_bytes(layer: Layer) -> bytes:
    out = io.BytesIO()
    write_layer(layer, out)
    return out.getvalue()


def _read(content: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        assert not tar.pax_headers
        members = tar.getmembers()
        assert not any(one.pax_headers for one in members)
    return {one.name: one for one in members}


def test_a_layer_depends_on_names_contents_and_execute_bits_alone(tmp_path: Path) -> None:
    one, other = _tree(tmp_path / "one"), _tree(tmp_path / "far/away/other")
    os.utime(other / "b", (12345, 67890))
    (other / "b").chmod(0o600)
    (other / "bin").chmod(0o700)
    first = _layer_bytes(Layer("x", (Placed(one, "/opt/x"),)))
    assert first == _layer_bytes(Layer("y", (Placed(other, "/opt/x"),)))
    (other / "b").chmod(0o700)
    assert first != _layer_bytes(Layer("x", (Placed(other, "/opt/x"),)))


def test_a_layer_holds_sorted_entries_with_fixed_owner_mode_and_time(tmp_path: Path) -> None:
    members = _read(_layer_bytes(Layer("x", (Placed(_tree(tmp_path / "t"), "/opt/x"),), files=(("/etc/passwd", "root:x\n"),))))
    assert list(members) == sorted(members, key=lambda name: name.split("/"))
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members.values()} == {(0, 0, "", "", 0)}
    modes = {name: oct(m.mode) for name, m in members.items() if "n" * 120 not in name}
    assert modes == {
        "etc": "0o755",
        "etc/passwd": "0o644",
        "opt": "0o755",
        "opt/x": "0o755",
        "opt/x/a-long-": "0o755",
        "opt/x/b": "0o644",
        "opt/x/bin": "0o755",
        "opt/x/bin/run": "0o755",
        "opt/x/link": "0o777",
    }
    assert members["opt/x/link"].linkname == "bin/run"
    assert f"opt/x/a-long-/{'n' * 120}" in members


@given(
    st.dictionaries(
        st.lists(st.sampled_from(["a", "b", "ab", "a.b", "-", "ü"]), min_size=1, max_size=3).map("/".join), st.text(max_size=9)
    )
)
def test_parents_come_before_children_and_order_does_not_depend_on_the_input(files: dict[str, str]) -> None:
    clean = {k: v for k, v in files.items() if not any(other.startswith(k + "/") for other in files)}
    layer = Layer("x", files=tuple((f"/{k}", v) for k, v in clean.items()))
    names = [entry.info.name for entry in entries(layer)]
    assert len(names) == len(set(names))
    for at, name in enumerate(names):
        assert "/" not in name or name.rpartition("/")[0] in names[:at]
    backwards = Layer("x", files=tuple(reversed(layer.files)))
    assert _layer_bytes(layer) == _layer_bytes(backwards)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda _: Layer("x", files=(("/a", "1"), ("/a", "2"))), "/a is placed twice"),
        (lambda t: Layer("x", (Placed(t / "gone", "/a"),)), "gone is to become /a"),
        (lambda _: Layer("x", files=(("/.wh.etc", ""),)), "delete files of the layers below"),
        (lambda _: Layer("x", files=(("/a/../b", ""),)), "absolute path without dots"),
        (lambda _: Layer("x", files=(("a", ""),)), "absolute path without dots"),
        (lambda t: (os.mkfifo(t / "pipe"), Layer("x", (Placed(t / "pipe", "/a"),)))[1], "neither a file, a folder nor a link"),
    ],
)
def test_what_cannot_be_in_a_layer_is_named(make: object, says: str, tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match=says):
        write_layer(make(tmp_path), Hashed())  # type: ignore[operator]


def test_a_file_that_changes_between_the_passes_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "moving"
    source.write_text("1")
    import build.image.assemble as module

    real = module._describe

    def describe(layer: Layer) -> oci.Descriptor:
        found = real(layer)
        source.write_text("2")
        return found

    monkeypatch.setattr(module, "_describe", describe)
    with pytest.raises(BuildFailed, match="changed while they were read"):
        assemble((Layer("x", (Placed(source, "/x"),)),), ImageConfig("localhost/t/x", AMD64), None, tmp_path / "out.tar")


def _binaries(folder: Path, mark: str = "") -> dict[str, Path]:
    folder.mkdir(parents=True)
    for name in NAMES:
        (folder / name).write_text(name + mark)
        (folder / name).chmod(0o555)
    return {name: folder / name for name in NAMES}


@pytest.mark.parametrize("platform", [AMD64, ARM64], ids=str)
def test_two_folders_give_the_same_archive(platform: Platform, tmp_path: Path) -> None:
    one = engine_image(_binaries(tmp_path / "a"), platform, tmp_path / "a.tar")
    other = engine_image(_binaries(tmp_path / "deep/er/b"), platform, tmp_path / "b.tar")
    assert one == other
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_platform_and_bytes_both_make_another_image(tmp_path: Path) -> None:
    first = engine_image(_binaries(tmp_path / "a"), AMD64, tmp_path / "a.tar")
    arm = engine_image(_binaries(tmp_path / "b"), ARM64, tmp_path / "b.tar")
    edited = engine_image(_binaries(tmp_path / "c", "!"), AMD64, tmp_path / "c.tar")
    assert len({first.config_digest, arm.config_digest, edited.config_digest}) == 3
    assert first.diff_ids == arm.diff_ids
    assert first.diff_ids[0] == edited.diff_ids[0]
    assert first.diff_ids[1] != edited.diff_ids[1]
    assert first.tag.endswith(first.config_digest[7:19])


def test_the_known_image_has_its_known_identity(tmp_path: Path) -> None:
    """The identity is written in locks: a change of the assembly that moves it must be meant."""
    found = engine_image(_binaries(tmp_path / "a"), AMD64, tmp_path / "a.tar")
    assert found.config_digest == "sha256:8588893af6281e55bd310e2543f8a688740875d5664791bade5e5e03bef58840"
    assert found.manifest_digest == "sha256:05258a741046c8f89f087238e3495b2ec2104511fbc9010530301789c8171f54"


def test_the_archive_is_a_layout_and_a_docker_archive_of_the_same_blobs(tmp_path: Path) -> None:
    identity = node_image(_binaries(tmp_path / "a")["tf-dsv41-check"], ARM64, tmp_path / "a.tar")
    with tarfile.open(tmp_path / "a.tar") as tar:
        content = {m.name: tar.extractfile(m).read() for m in tar}  # type: ignore[union-attr]
    assert json.loads(content["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    for name, data in content.items():
        if name.startswith("blobs/sha256/"):
            assert name == f"blobs/sha256/{hashlib.sha256(data).hexdigest()}"
    (entry,) = json.loads(content["index.json"])["manifests"]
    assert entry["platform"] == {"architecture": "arm64", "os": "linux"}
    assert entry["digest"] == identity.manifest_digest
    manifest = json.loads(content[oci.blob_path(entry["digest"])])
    (docker,) = json.loads(content["manifest.json"])
    assert docker["Config"] == oci.blob_path(manifest["config"]["digest"]) == oci.blob_path(identity.config_digest)
    assert docker["Layers"] == [oci.blob_path(one["digest"]) for one in manifest["layers"]]
    assert docker["RepoTags"] == [identity.tag]
    config = json.loads(content[docker["Config"]])
    assert config["created"] == "1970-01-01T00:00:00Z"
    assert config["config"] == {"Entrypoint": ["/twinfold-node"]}
    assert tuple(config["rootfs"]["diff_ids"]) == identity.diff_ids
    assert [oci.digest_of(content[layer]) for layer in docker["Layers"]] == list(identity.diff_ids)


def test_reading_an_archive_gives_back_its_identity(tmp_path: Path) -> None:
    identity = engine_image(_binaries(tmp_path / "a"), AMD64, tmp_path / "a.tar")
    assert read_archive(tmp_path / "a.tar").identity == identity


def test_a_base_gives_its_layers_history_and_environment(tmp_path: Path) -> None:
    config = ImageConfig(
        "localhost/t/base", AMD64, env=(("A", "1"), ("B", "1")), entrypoint=("/base",), cmd=("x",), labels=(("l", "1"),)
    )
    assemble((Layer("below", files=(("/a", "a"),)),), config, None, tmp_path / "base.tar")
    base = base_of(read_archive(tmp_path / "base.tar"), "base@sha256:1")
    ours = ImageConfig("localhost/t/up", AMD64, env=(("B", "2"), ("C", "3")), entrypoint=("/up",))
    identity = assemble((Layer("above", files=(("/b", "b"),)),), ours, base, tmp_path / "up.tar")
    archive = read_archive(tmp_path / "up.tar")
    assert archive.config["config"] == {
        "Env": ["A=1", "B=2", "C=3"],
        "Entrypoint": ["/up"],
        "Labels": {"l": "1", oci.BASE_NAME: "base@sha256:1"},
    }
    assert [one["created_by"] for one in archive.config["history"]] == ["twinfold: below", "twinfold: above"]
    assert identity.diff_ids[:1] == base.diff_ids
    assert [archive.carries(layer.digest) for layer in archive.layers] == [False, True]


def test_a_base_of_another_platform_or_with_other_layers_is_refused(tmp_path: Path) -> None:
    assemble((Layer("below", files=(("/a", "a"),)),), ImageConfig("localhost/t/base", AMD64), None, tmp_path / "base.tar")
    base = base_of(read_archive(tmp_path / "base.tar"), "base")
    with pytest.raises(BuildFailed, match="is for linux/amd64, the image for linux/arm64"):
        assemble((), ImageConfig("localhost/t/x", ARM64), base, tmp_path / "x.tar")
    with pytest.raises(BuildFailed, match="0 layers are pinned and its config names 1"):
        assemble((), ImageConfig("localhost/t/x", AMD64), BaseImage("base", base.config, ()), tmp_path / "y.tar")
    (tmp_path / "blobs/sha256").mkdir(parents=True)
    (tmp_path / "blobs" / base.layers[0].digest.replace(":", "/")).write_text("damaged")
    with pytest.raises(BuildFailed, match="fetch the base again"):
        assemble(
            (),
            ImageConfig("localhost/t/x", AMD64),
            base_of(read_archive(tmp_path / "base.tar"), "b", tmp_path / "blobs"),
            tmp_path / "z",
        )


@pytest.mark.parametrize("damage", ["truncated", "text", "flipped"])
def test_a_damaged_archive_is_named(damage: str, tmp_path: Path) -> None:
    identity = engine_image(_binaries(tmp_path / "a"), AMD64, tmp_path / "a.tar")
    content = bytearray((tmp_path / "a.tar").read_bytes())
    where = content.index(b'"created":"1970')  # inside the config blob
    assert identity.config_digest
    content[where + 12] ^= 1
    broken = {"truncated": content[:600], "text": b"no tar" * 200, "flipped": bytes(content)}[damage]
    (tmp_path / "b.tar").write_bytes(broken)
    with pytest.raises(StoreDamaged, match="doit repair"):
        read_archive(tmp_path / "b.tar")


def test_platforms_are_parsed_or_refused() -> None:
    assert parse_platform("linux/arm64") == ARM64
    assert str(parse_platform("linux/arm64/v8")) == "linux/arm64/v8"
    for wrong in ("arm64", "linux/", "a/b/c/d", ""):
        with pytest.raises(UsageError, match="no platform"):
            parse_platform(wrong)
