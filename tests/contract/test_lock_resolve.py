"""``doit lock`` against local servers: git over a file address, Debian's docker-registry on loopback, the test hub."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from build.errors import BuildFailed
from build.graph.dsv41 import EngineWish, HubWish, ImageWish, KitWish, PatchWish, Wanted, missing_pins
from build.hub.client import LibraryHub
from build.image import registry
from build.image.oci import parse_platform
from build.locks import lockfile, resolve
from build.locks.pins import Lock, ToolchainPin
from tests.testing import registry as registries
from tests.testing.hub import TOKEN, Repo, TestHub
from tests.testing.small_engine import git

COMMIT = "1" * 40


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A repository with a branch, an annotated tag and a patch series."""
    folder = tmp_path / "source"
    (folder / "patches").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True)
    (folder / "a.txt").write_text("one\n")
    (folder / "patches" / "0002-two.patch").write_text("second\n")
    (folder / "patches" / "0001-one.patch").write_text("first\n")
    (folder / "patches" / "README").write_text("no patch\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    git(folder, "tag", "-am", "v1", "v1")
    return folder


@pytest.fixture
def images(tmp_path: Path) -> Iterator[str]:
    """A registry with one small image for linux/arm64; its reference."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("etc"), None)
    with registries.registry(tmp_path / "registry") as host:
        registries.push(f"{host}/base/image", "26.07", [layer.getvalue()], "arm64")
        yield f"{host}/base/image:26.07"


def wanted(source: Path, image: str) -> Wanted:
    return Wanted(
        "name", 2, (), 1024, 400, "0.17.0", "q", "a",
        model=HubWish("example-org/tiny", "main"),
        engram=HubWish("example-org/tiny", "main", ("config.json",)),
        engine=EngineWish(repo=f"file://{source}", ref="v1"),
        kit=KitWish(),
        patches=PatchWish(f"file://{source}", "main", "patches"),
        base_image=ImageWish(image, "linux/arm64"),
    )  # fmt: skip


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[TestHub]:
    files: dict[str, Any] = {"config.json": b"{}", "model.safetensors": b"weights", "extra/a.txt": b"a"}
    with TestHub({"example-org/tiny": Repo(COMMIT, files)}) as made:
        yield made


def test_every_kind_of_ref_is_pinned_and_the_file_keeps_its_comments(
    source: Path, images: str, hub: TestHub, tmp_path: Path
) -> None:
    path = tmp_path / "t.lock.toml"
    path.write_text(
        "# mine\nversion = 1\n\n# the compiler\n[[toolchain]]\n"
        'name = "zig"\nplatform = "linux/amd64"\nversion = "0.17.0"\nsha256 = "abc"\n'
    )
    wish, before = wanted(source, images), lockfile.read(path)
    assert len(missing_pins(wish, before, "linux/amd64")) == 6
    client = LibraryHub(hub.endpoint, TOKEN)
    found = resolve.resolve(wish, before, frozenset(), client.snapshot)
    assert found.errors == ()
    lock = found.lock
    assert missing_pins(wish, lock, "linux/amd64") == ()

    head = git(source, "rev-parse", "HEAD")
    assert {g.name: g.commit for g in lock.gits} == {"engine": head, "patches": head}
    assert [(p.file, p.sha256) for p in lock.series("patches")] == [
        ("0001-one.patch", hashlib.sha256(b"first\n").hexdigest()),
        ("0002-two.patch", hashlib.sha256(b"second\n").hexdigest()),
    ]
    assert {h.name: h.revision for h in lock.hubs} == {"model": COMMIT, "engram": COMMIT}
    assert [(f.path, f.size, bool(f.sha256), bool(f.git_blob)) for f in lock.files_of("model")] == [
        ("config.json", 2, False, True), ("extra/a.txt", 1, False, True), ("model.safetensors", 7, True, False),
    ]  # fmt: skip
    assert [f.path for f in lock.files_of("engram")] == ["config.json"]
    (image,) = lock.images
    assert image.digest == image.manifest
    assert len(image.blobs) == len(image.diff_ids) == 1
    assert image.blobs == image.diff_ids  # its layer is not compressed

    def save(target: Path, content: bytes) -> None:
        target.write_bytes(content)

    assert lockfile.write(path, lock, save)
    assert lockfile.read(path) == replace(lock, outputs=())
    text = path.read_text()
    assert text.startswith("# mine\nversion = 1\n\n# the compiler\n[[toolchain]]\n")
    assert not lockfile.write(path, lock, save)
    assert resolve.resolve(wish, lock, frozenset(), client.snapshot).lines == ()


def test_a_digest_that_is_pinned_is_completed_and_never_moved(source: Path, images: str, hub: TestHub) -> None:
    wish = wanted(source, images)
    only = frozenset({"base_image"})
    first = resolve.resolve(wish, Lock(), only, LibraryHub(hub.endpoint, TOKEN).snapshot).lock.images[0]
    move_tag(images)
    bare = replace(first, manifest="", config="", blobs=(), diff_ids=())
    again = resolve.resolve(wish, Lock(images=(bare,)), only, LibraryHub(hub.endpoint, TOKEN).snapshot)
    assert again.lock.images == (first,)


def move_tag(reference: str) -> None:
    """Let the tag name another manifest of the same layers."""
    name, _, tag = reference.rpartition(":")
    old = registry.Registry(registry.parse(reference)).find(parse_platform("linux/arm64"))
    registries.put(name, tag, json.loads(old.manifest) | {"annotations": {"moved": "yes"}})


def test_only_what_is_asked_for_is_pinned_anew(source: Path, hub: TestHub) -> None:
    wish = replace(wanted(source, "x.example/y:1"), base_image=None)
    client = LibraryHub(hub.endpoint, TOKEN)
    lock = resolve.resolve(wish, Lock(), frozenset(), client.snapshot).lock
    (source / "a.txt").write_text("two\n")
    git(source, "commit", "-qam", "two")
    git(source, "tag", "-fam", "v1", "v1")
    hub.repos["example-org/tiny"].commit = "2" * 40

    assert resolve.resolve(wish, lock, frozenset(), client.snapshot).lock == lock
    moved = resolve.resolve(wish, lock, frozenset({"engine"}), client.snapshot).lock
    engine = moved.git("engine")
    assert engine is not None
    assert engine.commit == git(source, "rev-parse", "HEAD")
    assert (moved.hubs, moved.patches) == (lock.hubs, lock.patches)


def test_what_cannot_be_resolved_does_not_lose_what_could(source: Path, hub: TestHub) -> None:
    wish = replace(
        wanted(source, "x.example/y:1"), base_image=None, engine=EngineWish(repo=f"file://{source}", ref="no-such-branch")
    )
    found = resolve.resolve(wish, Lock(), frozenset(), LibraryHub(hub.endpoint, TOKEN).snapshot)
    assert [str(e) for e in found.errors] == [f"file://{source} has no branch or tag no-such-branch"]
    assert [h.name for h in found.lock.hubs] == ["model", "engram"]


@pytest.mark.parametrize("reference", ["image:1", "library/image"])
def test_an_image_without_its_registrys_host_is_refused(reference: str) -> None:
    with pytest.raises(BuildFailed, match="does not name its registry"):
        registry.parse(reference)


def test_missing_pins_are_listed_each() -> None:
    wish = replace(wanted(Path("/src"), "x.example/y:1"), overlay=HubWish("a/overlay", "main"))
    zig = ToolchainPin("zig", "linux/amd64", "0.17.0", "abc")
    lacks = missing_pins(wish, Lock(toolchains=(zig,)), "linux/amd64")
    assert [line.partition(":")[0] for line in lacks] == [
        "hub model", "hub engram", "hub overlay", "git engine", "git patches", "image base_image", "patch patches",
    ]  # fmt: skip
