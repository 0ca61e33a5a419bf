"""What a hub repository holds, by its listing and by what lies on disk: cases from the field, and the pure parts around them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from build.errors import BuildFailed
from build.hub import extents, files, layout, progress, space, survey
from build.hub.extents import Extents
from build.hub.files import HubFile, Proof, Snapshot
from build.hub.patience import Patience
from build.hub.shelf import Shelf, state
from build.hub.survey import Name
from build.store.hashing import sha256_file
from tests.testing.cases import case


def test_a_listing_is_checked_by_the_right_hash_for_each_file() -> None:
    one = case("hub-tree-lfs-and-plain")
    listed = files.from_tree(json.loads(one.text("input-tree.json")))
    shelf = Shelf(one.folder, sha256_file)
    found = {f.path: state(one.folder / "input-repo" / f.path, f, shelf) for f in listed}

    assert len(listed) == one.expect["files"]
    assert sum(f.size for f in listed) == one.expect["total_bytes"]
    assert sum(s.file.size for s in found.values() if s.result == "missing") == one.expect["missing_bytes"]
    for wanted in one.expect["file"]:
        it = found[wanted["path"]]
        assert (it.file.proof.kind, it.file.proof.hex, it.result) == (wanted["check"], wanted["wanted"], wanted["result"])
        if "found" in wanted:
            assert it.found == wanted["found"]


def test_links_of_a_cache_are_followed_to_where_they_end() -> None:
    one = case("hub-cache-links-outside")
    rows = [line.split("\t") for line in one.text("input-listing.tsv").splitlines()]
    names = [Name(kind, int(size), path, target) for kind, size, path, target in rows]
    found = survey.survey(one.given["mounted"], one.given["pinned_revision"], names)

    assert found.revision_found
    assert list(found.inside) == one.expect["resolves_inside"]
    assert [n for n, _ in found.outside] == one.expect["outside_the_folder"]
    assert [t for _, t in found.outside] == one.expect["outside_target"]
    assert list(found.incomplete) == one.expect["incomplete"]
    assert found.copied_bytes == one.expect["bytes_a_copy_without_following_links_ships"]
    assert not survey.survey(one.given["mounted"], "2" * 40, names).revision_found


def test_of_the_engram_only_what_is_needed_is_asked_for(tmp_path: Path) -> None:
    one = case("hub-engram-folder")
    rows = [line.split("\t") for line in one.text("input-listing.tsv").splitlines()]
    for size, name in rows:
        with (tmp_path / name).open("wb") as file:
            file.truncate(int(size))
    sizes = {name: int(size) for size, name in rows}
    wanted = [HubFile(n, sizes.get(n, 3311), Proof("sha256", "0" * 64)) for n in one.given["needed"]]
    shelf = Shelf(tmp_path, lambda _path: "0" * 64)
    found = [state(tmp_path / f.path, f, shelf) for f in wanted]
    index = set(json.loads(one.text("input-index.json"))["weight_map"].values())

    assert [s.file.path for s in found if s.result == "missing"] == one.expect["missing"]
    assert len(index - set(one.given["needed"])) == one.expect["not_needed_here"]
    big = [s.file.size for s in found if s.result == "ok" and s.file.path.endswith(".safetensors")]
    assert sum(big) == one.expect["bytes_present"]


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "file", "path": "../out", "size": 1, "oid": "0" * 40},
        {"type": "file", "path": "/etc/passwd", "size": 1, "oid": "0" * 40},
        {"type": "file", "path": "a", "size": 1, "oid": "xyz"},
        {"type": "file", "path": "a", "size": 1, "oid": "0" * 40, "lfs": {"oid": "0" * 40, "size": 1}},
    ],
)
def test_a_listing_that_proves_nothing_is_refused(entry: dict[str, object]) -> None:
    with pytest.raises(BuildFailed, match="is no file"):
        files.from_tree([entry])


def test_a_snapshot_links_to_its_blob_as_the_hubs_client_does() -> None:
    assert layout.link_target("config.json", "abc") == "../../blobs/abc"
    assert layout.link_target("extra/inner/NOTE.md", "abc") == "../../../../blobs/abc"


def test_written_bytes_survive_a_killed_process_and_synced_ones_a_reboot(tmp_path: Path) -> None:
    def opened(boot: str) -> Extents:
        return Extents(tmp_path / "map", 250, "f" * 64, 100, boot)

    one = opened("boot-1")
    assert one.fresh
    assert [(p.start, p.end) for p in one.pieces] == [(0, 100), (100, 200), (200, 250)]
    one.wrote(one.pieces[0], 100)
    one.synced(one.pieces[0], 100)
    one.wrote(one.pieces[1], 42)
    with pytest.raises(BuildFailed, match="held by another process"):
        opened("boot-1")
    one.close()

    again = opened("boot-1")
    assert [again.written(p) for p in again.pieces] == [100, 42, 0]
    again.close()
    rebooted = opened("boot-2")
    assert [rebooted.written(p) for p in rebooted.pieces] == [100, 0, 0]
    rebooted.close()
    other = Extents(tmp_path / "map", 250, "e" * 64, 100, "boot-2")
    assert other.fresh
    assert other.done_bytes() == 0
    other.remove()


@given(st.integers(0, 1 << 40), st.integers(1, 1 << 30))
def test_pieces_cover_a_file_once(size: int, piece: int) -> None:
    piece = max(piece, size // 1000 + 1)
    count = -(-size // piece)
    edges = [extents.Piece(n, n * piece, min(size, (n + 1) * piece)) for n in range(count)]
    assert sum(e.end - e.start for e in edges) == size


@given(st.integers(1, 20), st.floats(0, 1000), st.floats(0, 1))
def test_pauses_grow_and_stay_bounded(failures: int, asked_s: float, chance: float) -> None:
    patience = Patience(pause_s=1.0, longest_s=60.0)
    pause = patience.pause(failures, asked_s, chance)
    assert 0.5 <= pause <= 60.0
    assert pause <= patience.pause(failures + 1, asked_s, chance)
    assert pause >= min(asked_s, 60.0)


def test_disk_need_counts_what_is_missing_once_for_each_file_system() -> None:
    gib = 1 << 30
    a, b, c = Path("/a"), Path("/b"), Path("/c")
    disks = {a: space.Disk(1, 30 * gib), b: space.Disk(1, 30 * gib), c: space.Disk(2, 2 * gib)}
    fits = space.shortages([space.Need(a, 10 * gib), space.Need(b, 10 * gib), space.Need(c, 0)], disks)
    lacks = space.shortages([space.Need(a, 20 * gib), space.Need(b, 20 * gib), space.Need(c, 1 * gib)], disks)
    assert fits == ()
    assert lacks == ("/a, /b: 40.0 GiB are missing, 30.0 GiB are free: free 11.0 GiB more",)


def test_progress_tells_rate_and_time_left() -> None:
    now = [0.0]
    one = progress.Progress(100 << 30, 40 << 30, lambda: now[0])
    assert one.text() == "40.0 of 100.0 GiB, waiting"
    now[0] = 10.0
    one.add(5 << 30)
    assert one.text() == "45.0 of 100.0 GiB, 0.50 GiB/s, 2 min left"


@pytest.mark.parametrize(("seconds", "said"), [(3, "3 s"), (600, "10 min"), (7200, "2.0 h")])
def test_time_left_in_its_largest_unit(seconds: float, said: str) -> None:
    assert progress.left(seconds) == said


def test_a_snapshots_size_is_the_sum_of_its_files() -> None:
    proof = Proof("sha256", "0" * 64)
    assert Snapshot("a/b", "c" * 40, (HubFile("x", 3, proof), HubFile("y", 4, proof))).size_bytes == 7
