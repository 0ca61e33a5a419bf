"""Xet as an option: the hub's own client and hf_xet against a hub and a small storage, and what is said where they cannot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from build.hub.cache import Told, complete
from build.hub.client import LibraryHub
from build.hub.files import Snapshot, from_tree
from build.hub.shelf import Shelf
from build.store.hashing import sha256_file
from tests.testing.hub import TOKEN, Repo, TestHub

REPO, COMMIT = "example-org/tiny", "1" * 40
SHARD = "model-00001-of-00001.safetensors"
# In a process of its own: the library reads its environment when it is imported, and hf_xet keeps threads.
FILL = """
import json, sys
from pathlib import Path
from build.errors import TwinfoldError
from build.hub import xet
from build.hub.cache import Told, complete
from build.hub.client import LibraryHub
from build.hub.files import Snapshot, from_tree
from build.hub.shelf import Shelf
from build.store.hashing import sha256_file
endpoint, cache, repo, commit, tree, token = sys.argv[1:]
shelf, told = Shelf(Path(cache), sha256_file), Told(print)
snapshot = Snapshot(repo, commit, from_tree(json.loads(tree)))
try:
    xet.fill(shelf, snapshot, lambda: LibraryHub(endpoint, token), told)
    complete(shelf, snapshot, lambda: LibraryHub(endpoint, token), told)
except TwinfoldError as error:
    sys.exit(f"error: {error}")
"""


@pytest.fixture
def hub() -> Iterator[TestHub]:
    files = {"config.json": b"{}", SHARD: os.urandom(300_001)}
    with TestHub({REPO: Repo(COMMIT, dict(files), xet=True)}) as made:
        yield made


def fill(hub: TestHub, cache: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    argv = [sys.executable, "-c", FILL, hub.endpoint, str(cache), REPO, COMMIT, json.dumps(hub.repos[REPO].tree()), TOKEN]
    env = kept | {"HF_XET_CACHE": str(cache.parent / "xet"), "HF_ENDPOINT": hub.endpoint, **environ}
    return subprocess.run(argv, env=env, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120, check=False)


def whole(hub: TestHub, cache: Path) -> bool:
    """The cache is what the ranged download would have made, and asks no hub again."""
    shelf = Shelf(cache, sha256_file)
    snapshot = Snapshot(REPO, COMMIT, from_tree(hub.repos[REPO].tree()))
    complete(shelf, snapshot, _no_network, Told(print))
    return all(shelf.path(snapshot, f).resolve() == shelf.blob(snapshot, f).resolve() for f in snapshot.files)


def _no_network() -> LibraryHub:
    raise AssertionError("asked the hub")


def test_files_come_by_xet_where_the_hub_offers_it(hub: TestHub, tmp_path: Path) -> None:
    done = fill(hub, tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    assert any(a.path.startswith("/xorb/") for a in hub.log)
    assert not hub.asked(SHARD)  # by ranges
    assert whole(hub, tmp_path / "cache")


def test_a_hub_without_xet_is_asked_by_the_library_over_http(hub: TestHub, tmp_path: Path) -> None:
    hub.repos[REPO].xet = False
    done = fill(hub, tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    assert [a.range for a in hub.asked(SHARD)] == [None]
    assert whole(hub, tmp_path / "cache")


def test_what_xet_brought_is_proven_by_the_lock_and_fetched_anew(hub: TestHub, tmp_path: Path) -> None:
    hub.faults.wrong_at, hub.faults.wrong_bytes = 1000, 1
    done = fill(hub, tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    assert "is not what the lock says" in done.stdout
    assert hub.asked(SHARD)
    assert whole(hub, tmp_path / "cache")


def test_a_storage_that_refuses_is_one_line_and_nothing_is_registered(hub: TestHub, tmp_path: Path) -> None:
    del hub.repos[REPO].files["config.json"]
    hub.faults.expired = 10**6
    done = fill(hub, tmp_path / "cache")
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()[-1:]
    assert line.startswith(f"error: {REPO}: {SHARD} did not come by Xet (")
    assert line.endswith('run `doit` again, or set hub_transport = "http"')
    assert not [p for p in (tmp_path / "cache").rglob("*") if SHARD in p.name]


def test_without_hf_xet_one_line_says_so(hub: TestHub, tmp_path: Path) -> None:
    done = fill(hub, tmp_path / "cache", HF_HUB_DISABLE_XET="1")
    assert done.returncode == 1
    assert done.stderr.strip() == (
        "error: hub_transport = xet: the package hf_xet cannot be used here (not installed, or HF_HUB_DISABLE_XET is set): "
        'install it, or set hub_transport = "http"'
    )
