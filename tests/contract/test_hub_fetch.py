"""Fetching into the hub's cache, against a hub that misbehaves: the real huggingface_hub client, real sockets, real files."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from build.errors import BuildFailed, OutputDiffers, TwinfoldError
from build.hub import layout, transfer
from build.hub.cache import Told, complete
from build.hub.client import LibraryHub
from build.hub.files import Snapshot, from_tree
from build.hub.patience import Patience
from build.hub.shelf import Shelf
from build.store.hashing import sha256_file
from build.units import MIB
from tests.testing.hub import TOKEN, Repo, Sparse, TestHub
from tests.testing.hub import sha256 as content_sha256

REPO, COMMIT = "example-org/tiny", "1" * 40
BIG = "model-00001-of-00002.safetensors"
QUICK = Patience(connections=4, stall_s=1.0, tries=6, pause_s=0.02, longest_s=0.1, piece_bytes=MIB)


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def repo() -> Repo:
    content: dict[str, bytes | Sparse] = {
        "config.json": b'{"a": 1}',
        "extra/NOTE.md": b"see README\n",
        BIG: noise(5 * MIB + 321),
        "model-00002-of-00002.safetensors": noise(70_000, 2),
    }
    return Repo(COMMIT, content)


@pytest.fixture
def hub() -> Iterator[TestHub]:
    with TestHub({REPO: repo()}) as made:
        yield made


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("HF_", "HUGGING_FACE")):
            monkeypatch.delenv(name)


def snapshot(hub: TestHub, name: str = REPO) -> Snapshot:
    return Snapshot(name, COMMIT, from_tree(hub.repos[name].tree()))


def get(hub: TestHub, cache: Path, patience: Patience = QUICK, token: str = TOKEN) -> list[str]:
    said: list[str] = []
    complete(Shelf(cache, sha256_file), snapshot(hub), lambda: LibraryHub(hub.endpoint, token), Told(said.append), patience)
    return said


def names(cache: Path) -> dict[str, bytes]:
    root = layout.snapshot_folder(cache, REPO, COMMIT)
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def whole(hub: TestHub, cache: Path) -> bool:
    left = [p.name for p in layout.repo_folder(cache, REPO).rglob("*") if ".twinfold" in p.name]
    return names(cache) == hub.repos[REPO].files and not left


def no_network() -> LibraryHub:
    raise AssertionError("asked the hub")


def test_a_snapshot_is_fetched_into_the_hubs_own_layout(hub: TestHub, tmp_path: Path) -> None:
    from huggingface_hub import try_to_load_from_cache

    get(hub, tmp_path)
    assert whole(hub, tmp_path)
    found = try_to_load_from_cache(REPO, BIG, cache_dir=tmp_path, revision=COMMIT)
    assert isinstance(found, str)
    assert Path(found).is_symlink()
    assert Path(found).resolve().name == hashlib.sha256(repo().files[BIG]).hexdigest()  # type: ignore[arg-type]


def test_the_hubs_own_client_and_ours_make_the_same_cache(hub: TestHub, tmp_path: Path) -> None:
    script = (
        "import sys; from huggingface_hub import snapshot_download; "
        f"snapshot_download({REPO!r}, revision={COMMIT!r}, cache_dir=sys.argv[1])"
    )
    env = {**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "theirs")], env=env, check=True, timeout=120)
    get(hub, tmp_path / "ours")

    def links(cache: Path) -> dict[str, str]:
        root = layout.repo_folder(cache, REPO)
        return {p.relative_to(root).as_posix(): str(p.readlink()) for p in root.rglob("*") if p.is_symlink()}

    assert links(tmp_path / "ours") == links(tmp_path / "theirs")
    # and theirs is adopted as it is, without a question to any server
    shelf = Shelf(tmp_path / "theirs", sha256_file)
    before = hub.sent_bytes()
    complete(shelf, snapshot(hub), no_network, Told(print), QUICK)
    assert hub.sent_bytes() == before


def test_a_complete_cache_with_links_out_of_it_is_adopted_without_a_byte(hub: TestHub, tmp_path: Path) -> None:
    cache, other = tmp_path / "cache", tmp_path / "other-disk"
    get(hub, cache)
    other.mkdir()
    blob = (layout.snapshot_folder(cache, REPO, COMMIT) / BIG).resolve()
    blob.rename(other / "far")
    blob.symlink_to(other / "far")
    shared = cache / "blobs"
    shared.mkdir()
    second = layout.snapshot_folder(cache, REPO, COMMIT) / "model-00002-of-00002.safetensors"
    second.resolve().rename(shared / "near")
    second.unlink()
    second.symlink_to("../../../blobs/near")
    before = {p: p.lstat().st_ctime_ns for p in tmp_path.rglob("*")}

    shelf = Shelf(cache, sha256_file)
    complete(shelf, snapshot(hub), no_network, Told(print), QUICK)
    assert {p: p.lstat().st_ctime_ns for p in tmp_path.rglob("*")} == before


def test_a_blob_that_was_written_through_is_fetched_again_and_nothing_else(hub: TestHub, tmp_path: Path) -> None:
    get(hub, tmp_path)
    blob = (layout.snapshot_folder(tmp_path, REPO, COMMIT) / BIG).resolve()
    content = bytearray(blob.read_bytes())
    content[17] ^= 1
    blob.write_bytes(content)
    hub.log.clear()
    said = get(hub, tmp_path)
    assert whole(hub, tmp_path)
    assert "is not what the lock says" in said[0]
    assert {a.path.rpartition("/")[2] for a in hub.log if a.method == "GET"} == {BIG}


def test_the_token_is_not_sent_to_another_host(hub: TestHub, tmp_path: Path) -> None:
    hub.repos[REPO].gated = hub.repos[REPO].accepted = True
    get(hub, tmp_path)
    data = hub.data.removeprefix("http://")
    assert {a.token for a in hub.log if a.host == data} == {False}
    assert {a.token for a in hub.log if a.host != data} == {True}


@pytest.mark.parametrize("fault", ["drops", "stalls", "errors", "expired"])
def test_a_hub_that_fails_for_a_while_is_borne_with(hub: TestHub, tmp_path: Path, fault: str) -> None:
    setattr(hub.faults, fault, {"errors": 12}.get(fault, 2))
    get(hub, tmp_path)
    assert whole(hub, tmp_path)


def test_no_byte_that_arrived_is_fetched_twice_after_dropped_connections(hub: TestHub, tmp_path: Path) -> None:
    hub.faults.drops, hub.faults.drop_after = 5, 300_000
    get(hub, tmp_path)
    ranges = sorted(a.range for a in hub.asked(BIG) if a.range)
    fetched = [(start, start + a.sent) for a in hub.asked(BIG) if a.range for start in [a.range[0]]]
    assert whole(hub, tmp_path)
    assert sum(end - start for start, end in fetched) == len(hub.repos[REPO].files[BIG])  # type: ignore[arg-type]
    assert len(ranges) > 6


def test_a_hub_that_fails_for_good_is_given_up_and_what_arrived_is_kept(hub: TestHub, tmp_path: Path) -> None:
    hub.faults.errors = 10_000
    with pytest.raises(BuildFailed, match=r"answered 500; .* bytes are kept: run `doit` again"):
        get(hub, tmp_path)
    assert names(tmp_path) == {}
    hub.faults.errors = 0
    get(hub, tmp_path)
    assert whole(hub, tmp_path)


def test_one_wrong_byte_is_found_and_fetched_again(hub: TestHub, tmp_path: Path) -> None:
    hub.faults.wrong_bytes, hub.faults.wrong_at = 1, 3 * MIB + 5
    get(hub, tmp_path)
    assert whole(hub, tmp_path)


def test_a_byte_that_stays_wrong_leaves_nothing_behind(hub: TestHub, tmp_path: Path) -> None:
    hub.faults.wrong_bytes, hub.faults.wrong_at = 1000, 3 * MIB + 5
    with pytest.raises(OutputDiffers, match="nothing of it was kept") as caught:
        get(hub, tmp_path)
    assert caught.value.exit_code == 9
    assert BIG not in names(tmp_path)
    assert not [p for p in tmp_path.rglob("*") if ".twinfold" in p.name]


def test_a_file_of_another_size_is_refused(hub: TestHub, tmp_path: Path) -> None:
    hub.faults.short = True
    with pytest.raises(BuildFailed, match=r"has \d+ bytes of it, the lock \d+"):
        get(hub, tmp_path)
    assert names(tmp_path) == {}


@pytest.mark.parametrize(
    ("token", "accepted", "says"),
    [
        ("", False, ["401", "hf auth login", "example-org/tiny", "accept its terms"]),
        ("hf_bad", False, ["401", "does not take this token", "hf auth login"]),
        (TOKEN, False, ["403", "accept them", "example-org/tiny"]),
    ],
)
def test_a_gated_repository_says_what_to_do(
    hub: TestHub, tmp_path: Path, token: str, accepted: bool, says: list[str]
) -> None:  # fmt: skip
    hub.repos[REPO].gated, hub.repos[REPO].accepted = True, accepted
    with pytest.raises(BuildFailed) as caught:
        get(hub, tmp_path, token=token)
    assert all(word in str(caught.value) for word in says)
    assert "\n" not in str(caught.value)
    assert token not in str(caught.value) or not token


def test_a_listing_proves_no_access(hub: TestHub) -> None:
    hub.repos[REPO].gated = True
    client = LibraryHub(hub.endpoint, "")
    assert client.snapshot(REPO, "main") == snapshot(hub)
    with pytest.raises(BuildFailed, match="401"):
        client.locate(REPO, COMMIT, "config.json")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda hub: hub.repos[REPO].files.pop(BIG), f"has no {BIG}"),
        (lambda hub: setattr(hub.repos[REPO], "commit", "2" * 40), "404"),
        (lambda hub: hub.repos.pop(REPO), "no such repository"),
    ],
)
def test_what_the_hub_does_not_have_is_named(
    hub: TestHub, tmp_path: Path, spoil: Callable[[TestHub], object], says: str
) -> None:  # fmt: skip
    wanted = snapshot(hub)
    spoil(hub)
    with pytest.raises(TwinfoldError, match=says) as caught:
        complete(
            Shelf(tmp_path, sha256_file), wanted, lambda: LibraryHub(hub.endpoint, TOKEN), Told(print), QUICK
        )  # fmt: skip
    assert caught.value.exit_code == 8


def test_a_disk_that_is_too_small_is_told_before_a_byte_is_fetched(
    hub: TestHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from build.hub import space

    monkeypatch.setattr(space, "disk", lambda _folder: space.Disk(1, 1 << 20))
    with pytest.raises(BuildFailed, match=r"GiB are missing, 0.0 GiB are free"):
        get(hub, tmp_path)
    assert hub.sent_bytes() == 0


KILLED = """
import sys
from pathlib import Path
from build.hub.cache import Told, complete
from build.hub.shelf import Shelf
from build.hub.client import LibraryHub
from build.hub.files import HubFile, Proof, Snapshot
from build.hub.patience import Patience
from build.store.hashing import sha256_file
endpoint, cache, repo, commit, path, size, sha, piece = sys.argv[1:]
snapshot = Snapshot(repo, commit, (HubFile(path, int(size), Proof("sha256", sha)),))
patience = Patience(4, piece_bytes=int(piece))
complete(Shelf(Path(cache), sha256_file), snapshot, lambda: LibraryHub(endpoint, ""), Told(print), patience)
print([l.split()[1] for l in open("/proc/self/status") if l.startswith("VmHWM")][0])
"""


def fetcher(hub: TestHub, cache: Path, size: int, sha: str, piece: int) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", KILLED, hub.endpoint, str(cache), REPO, COMMIT, BIG, str(size), sha, str(piece)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])


def test_a_fetch_killed_in_mid_file_goes_on_where_it_was(hub: TestHub, tmp_path: Path) -> None:
    content = noise(12 * MIB, 5)
    hub.repos[REPO].files[BIG] = content
    sha = hashlib.sha256(content).hexdigest()
    blob = layout.repo_folder(tmp_path, REPO) / "blobs" / sha
    file = from_tree([row for row in hub.repos[REPO].tree() if row["path"] == BIG])[0]
    hub.faults.slow_s = 0.01
    child = fetcher(hub, tmp_path, len(content), sha, MIB)
    part = blob.with_name(blob.name + transfer.MAP)
    end = time.monotonic() + 60
    while not (part.exists() and _peek(part, len(content)) > 3 * MIB):
        assert time.monotonic() < end
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    kept = transfer.done_bytes(blob, file)
    assert 3 * MIB < kept < len(content)
    assert not blob.exists()

    hub.faults.slow_s = 0
    time.sleep(0.1)
    hub.log.clear()
    again = fetcher(hub, tmp_path, len(content), sha, MIB)
    out, _ = again.communicate(timeout=60)
    assert again.returncode == 0, out
    assert blob.read_bytes() == content
    assert hub.sent_bytes(BIG) == len(content) - kept


def _peek(part: Path, size: int) -> int:
    from build.hub.extents import HEADER, ROW

    raw = part.read_bytes()
    rows = (len(raw) - HEADER.size) // ROW.size
    return sum(ROW.unpack_from(raw, HEADER.size + n * ROW.size)[0] for n in range(rows)) if rows > 0 else 0


def test_a_sparse_file_larger_than_memory_allows_is_fetched_in_little(hub: TestHub, tmp_path: Path) -> None:
    marks = {0: b"head", 700 * MIB + 5: b"middle", 1024 * MIB - 4: b"tail"}
    content = Sparse(1024 * MIB, marks)
    hub.repos[REPO].files[BIG] = content
    sha = content_sha256(content)
    child = fetcher(hub, tmp_path, content.size, sha, 64 * MIB)
    out, _ = child.communicate(timeout=200)
    assert child.returncode == 0, out
    blob = layout.repo_folder(tmp_path, REPO) / "blobs" / sha
    assert blob.stat().st_size == content.size
    assert blob.stat().st_blocks * 512 < 8 * MIB
    assert int(out.split()[-1]) * 1024 < 200 * MIB
