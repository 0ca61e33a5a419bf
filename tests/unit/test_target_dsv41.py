"""The real targets' files: every pin of the public facts, and what is said where there is none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from build.errors import PinsMissing, UsageError
from build.graph import dsv41
from build.graph.project import Project
from build.locks import lockfile
from build.settings import Places
from tests.testing.checkout import CHECKOUT
from tests.testing.demo import doit

LOCK = CHECKOUT / "lockfiles" / "dsv41.lock.toml"


def project(tmp_path: Path, target: str, **more: object) -> Project:
    return Project(CHECKOUT, Places(target=target, **more), tmp_path / "state")  # type: ignore[arg-type]


def test_the_lock_holds_each_file_with_the_one_hash_that_proves_it() -> None:
    lock = lockfile.read(LOCK)
    counts = {h.name: len(lock.files_of(h.name)) for h in lock.hubs}
    assert counts == {"model": 48, "engram": 4, "overlay": 1}
    assert sum("-of-00039.safetensors" in f.path for f in lock.files_of("model")) == 39
    assert all(bool(f.sha256) != bool(f.git_blob) for f in lock.files)
    assert sum(f.size for f in lock.files_of("engram")) > 203_000_000_000
    assert all(re.fullmatch(r"[0-9a-f]{40}", h.revision) for h in lock.hubs)
    assert all(re.fullmatch(r"[0-9a-f]{40}", g.commit) for g in lock.gits)


def test_every_pin_says_where_it_was_read() -> None:
    blocks = LOCK.read_text().split("\n\n")
    for table in ("git", "image", "hub"):
        assert all(b.startswith("#") for b in blocks if f"[[{table}]]\n" in b)


@pytest.mark.parametrize("variant", [False, True])
def test_the_graph_of_the_public_target_is_known_without_a_network(tmp_path: Path, variant: bool) -> None:
    graph = project(tmp_path, "dsv41", ablit=variant).graph
    assert {"engine-source", "engine", "base-image", "model-files", "engram-files", "kit-source", "kit", "bundle"} <= set(graph)
    assert ("overlay-shards" in graph) == variant
    assert graph["bundle"].params["variant"] == ("ablit" if variant else "base")
    assert graph["bundle"].params["needs"] == {"gpu": True, "infiniband": True, "memlock": True}


def test_a_wish_without_a_lock_lists_each_missing_pin_and_the_command(tmp_path: Path) -> None:
    with pytest.raises(PinsMissing) as caught:
        project(tmp_path, "dsv41-1017").graph  # noqa: B018
    said = str(caught.value)
    for name in ("hub model", "hub engram", "hub overlay", "git engine", "git kit", "git patches", "image base_image", "patch"):
        assert name in said
    assert "doit lock target=dsv41-1017" in said
    done = doit("target=dsv41-1017", state=tmp_path / "state")
    assert done.returncode == 7
    assert "Traceback" not in done.stderr
    assert "doit lock target=dsv41-1017" in done.stderr


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("world = 2", "world = 2\nworlds = 3", "worlds is not a key"),
        ("world = 2", 'world = "2"', "world = '2': wanted int"),
        ('ref = "main"', "branch = 1", "is not a key of it"),
        ('served_name = "DeepSeek-V4.1-Flash"', "", "served_name"),
    ],
)
def test_a_target_that_is_wrong_is_named(tmp_path: Path, old: str, new: str, says: str) -> None:
    (tmp_path / "lockfiles").mkdir()
    text = (CHECKOUT / "lockfiles" / "dsv41.toml").read_text()
    (tmp_path / "lockfiles" / "t.toml").write_text(text.replace(old, new, 1))
    with pytest.raises(UsageError, match=says):
        dsv41.read_wanted(tmp_path, "t")
