"""What a worker's ranks read besides the store's own entries: which files, from where, and where a container sees them."""

from __future__ import annotations

import hashlib
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from build.artefacts import hub_files, served
from build.replication.beside import beside
from build.store.hashing import sha256_bytes, tree, tree_hash
from build.store.record import Input, Record
from build.store.store import Store

SMALL, PACKED, VISION = "inference/config.json", "model-1.safetensors", "model-2.safetensors"
CONTENT = {SMALL: b"{}", PACKED: b"packed", VISION: b"seen"}
PLACE = f"models--a--b/snapshots/{'1' * 40}"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A head's store beside a cache with a snapshot of three files."""
    for name, content in CONTENT.items():
        path = tmp_path / "cache" / PLACE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    hub_files.set_outside(tmp_path, tmp_path / "cache")
    (tmp_path / "store").mkdir()
    return Store(tmp_path / "store")


def put(store: Store, name: str, builder: tuple[str, int], files: dict[str, str | bytes], **more: Any) -> Record:
    """An entry of files, or of links where a text is given."""
    made = store.root / "made"
    for path, content in files.items():
        (made / path).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            (made / path).write_bytes(content)
        else:
            (made / path).symlink_to(content)
    found, inputs = tree(made), {role: Input(one.entry, one.output) for role, one in more.pop("inputs", {}).items()}
    key = sha256_bytes(name.encode())[:32]
    return store.register(made, Record(key, name, *builder, more.get("params", {}), inputs, found, tree_hash(found)))


def hub(store: Store) -> Record:
    """The reference to the snapshot: weights by sha256, the small file by git's hash."""
    blob = hashlib.sha1(b"blob 2\0{}").hexdigest()  # git's own
    proofs = {SMALL: ["git_blob", blob]} | {name: ["sha256", sha256_bytes(CONTENT[name])] for name in (PACKED, VISION)}
    files = {name: [len(CONTENT[name]), *proof] for name, proof in proofs.items()}
    params = {"repo": "a/b", "revision": "1" * 40, "files": files}
    return put(store, "model-files", (hub_files.BUILDER, 1), {"files.json": b"{}"}, params=params)


def links(hub: Record, *names: str) -> dict[str, str | bytes]:
    return {name: hub_files.link(name, hub.params, name.count("/")) for name in names}


def served_folder(store: Store, made: dict[str, str | bytes], unpacked: list[str] | None, **inputs: Record) -> str:
    params = {} if unpacked is None else {"unpacked": unpacked}
    return put(store, "checkpoint", (served.BUILDER, 1), made, params=params, inputs=inputs).entry


def test_of_a_checkpoint_all_but_the_packed_shards_is_read(store: Store) -> None:
    origin = hub(store)
    entry = served_folder(store, links(origin, *CONTENT), [VISION], files=origin)
    (found,) = beside(store, [entry])
    assert found.sizes == ((SMALL, 2), (VISION, 4))
    assert found.inside == PurePosixPath("/outside/hub") / PLACE
    want = found.want()
    assert want.entry == found.entry
    assert [(f.path, f.kind, f.sha256) for f in want.record.files] == [
        ("inference", "folder", ""),
        (SMALL, "file", sha256_bytes(b"{}")),
        (VISION, "file", sha256_bytes(b"seen")),
    ]
    assert (want.source / SMALL).read_bytes() == b"{}"


def test_only_what_is_locked_by_a_git_hash_is_asked_for_its_own(store: Store) -> None:
    origin = hub(store)
    asked: list[Path] = []

    def kept(path: Path) -> str:
        asked.append(path)
        return "kept"

    (found,) = beside(store, [served_folder(store, links(origin, *CONTENT), [VISION], files=origin)])
    assert {f.path: f.sha256 for f in found.want(kept).record.files}[SMALL] == "kept"
    assert asked == [found.source / SMALL]


def test_of_a_folder_without_weight_files_everything_is_read(store: Store) -> None:
    origin = hub(store)
    (found,) = beside(store, [served_folder(store, links(origin, PACKED, VISION), None, files=origin)])
    assert [path for path, _ in found.sizes] == [PACKED, VISION]


def test_a_shard_that_was_rewritten_is_read_in_its_place(store: Store) -> None:
    origin = hub(store)
    new = put(store, "overlay-shards", ("overlay", 1), {VISION: b"other", PACKED: b"more"})
    files = links(origin, SMALL) | {name: f"../{new.entry}/{name}" for name in (PACKED, VISION)}
    small, shard = beside(store, [served_folder(store, files, [VISION], files=origin, replaced=new)])
    assert [path for path, _ in small.sizes] == [SMALL]
    assert (shard.sizes, shard.inside) == (((VISION, 5),), PurePosixPath("/store") / new.entry)
    assert shard.want().record.files[0].sha256 == sha256_bytes(b"other")


def test_other_files_are_another_entry(store: Store) -> None:
    origin = hub(store)
    model = served_folder(store, links(origin, *CONTENT), [VISION], files=origin)
    tables = put(store, "tables", (served.BUILDER, 1), links(origin, PACKED), inputs={"files": origin}).entry
    assert beside(store, [model])[0].entry != beside(store, [tables])[0].entry
    (both,) = beside(store, [model, tables])
    assert [path for path, _ in both.sizes] == [SMALL, PACKED, VISION]


def test_entries_of_the_stores_own_have_nothing_beside_them(store: Store) -> None:
    assert beside(store, [put(store, "kit", ("kit", 1), {"MANIFEST": b""}).entry]) == ()
