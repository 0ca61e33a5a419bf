"""What a container has to see of the hub's cache, so that the links of a served folder hold in it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from build.artefacts import hub_files
from build.bundle import StoreRef
from supervisor.gang.outside import outside_mounts

PARAMS = {"repo": "a/b", "revision": "1" * 40, "files": {}}


def test_the_whole_cache_is_mounted_and_what_lies_beyond_it_at_its_own_place(tmp_path: Path) -> None:
    cache, far, store = tmp_path / "cache", tmp_path / "far", tmp_path / "state" / "store"
    snapshot = cache / "models--a--b" / "snapshots" / ("1" * 40)
    blobs = cache / "models--a--b" / "blobs"
    for folder in (snapshot, blobs, far, store / "k-model"):
        folder.mkdir(parents=True)
    (blobs / "near").write_text("near")
    (far / "big").write_text("big")
    (snapshot / "near.txt").symlink_to("../../blobs/near")
    (snapshot / "far.txt").symlink_to(far / "big")
    hub_files.set_outside(tmp_path / "state", cache)
    for name in ("near.txt", "far.txt"):
        (store / "k-model" / name).symlink_to(hub_files.link(name, PARAMS, 0))

    assert (store / "k-model" / "near.txt").read_text() == "near"
    assert (store / "k-model" / "far.txt").read_text() == "big"
    assert outside_mounts(store, [StoreRef("k-model")], store, shared=False) == ((cache, "/outside/hub"), (far, str(far)))
    there = Path("/srv/twinfold/store")
    assert outside_mounts(store, [StoreRef("k-model")], there, shared=True) == (
        (Path("/srv/twinfold/outside/hub"), "/outside/hub"),
    )
    # as a container sees it: the store at /store, the cache at /outside/hub
    inside = (store / "k-model" / "near.txt").readlink()
    assert Path("/store/k-model", inside).parts.count("..") == 2
    assert str(inside).startswith("../../outside/hub/models--a--b/snapshots/")


def test_a_folder_of_the_stores_own_needs_no_mount_beside_it(tmp_path: Path) -> None:
    (tmp_path / "store" / "k-model").mkdir(parents=True)
    (tmp_path / "store" / "k-model" / "a").write_text("a")
    store = tmp_path / "store"
    assert outside_mounts(store, [StoreRef("k-model"), StoreRef("k-model", "a")], store, shared=False) == ()


def test_the_way_out_follows_the_setting(tmp_path: Path) -> None:
    hub_files.set_outside(tmp_path, tmp_path / "one")
    assert hub_files.leads_to(tmp_path, tmp_path / "one")
    hub_files.set_outside(tmp_path, tmp_path / "two")
    assert not hub_files.leads_to(tmp_path, tmp_path / "one")
    assert hub_files.leads_to(tmp_path, tmp_path / "two")


def test_two_fetches_at_once_lead_to_the_same_cache(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(hub_files.set_outside, tmp_path / "state", tmp_path / "cache") for _ in range(64)]:
            done.result()
    assert hub_files.leads_to(tmp_path / "state", tmp_path / "cache")
    assert [path.name for path in (tmp_path / "state" / "outside").iterdir()] == ["hub"]
