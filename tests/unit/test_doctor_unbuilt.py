"""Before the first build: what a target's pins say of the disk that it needs, node by node and file system by file system."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from build.settings import Places
from build.units import GIB
from supervisor.doctor import unbuilt
from tests.testing.doctor_changes import CHANGES
from tests.testing.doctor_pair import Pair

ROW = "/dev/nvme0n1p2 ext4 3936818806784 {} {} 52% /\n"


def test_the_pins_of_dsv41_give_the_figures_of_its_guide(tmp_path: Path) -> None:
    found = unbuilt.read(Places(target="dsv41", hf_cache=tmp_path))
    assert found is not None
    assert (found.world, round(found.rank_bytes / GIB)) == (2, 98)
    head = found.missing("/store", 1, frozenset(), head=True)
    assert round(head[str(tmp_path)] / GIB) == 196 + 189
    assert round(head["/store"] / GIB) == 2 * 98  # both ranks' files are packed on the head
    worker = found.missing("/store", 1, frozenset(), head=False)
    assert list(worker) == ["/store"]
    assert 98 + 189 <= worker["/store"] / GIB < 98 + 189 + 6  # the small files and the last shard
    ablit = unbuilt.read(Places(target="dsv41", hf_cache=tmp_path, ablit=True))
    assert ablit is not None
    assert round((ablit.rewritten_bytes + ablit.rank_bytes * 2) / GIB) == 2 * 196


def test_nodes_that_pack_for_themselves_hold_their_own_file_and_all_that_it_is_made_of(tmp_path: Path) -> None:
    found = unbuilt.read(Places(target="dsv41", hf_cache=tmp_path, pack_rank_caches="node"))
    assert found is not None
    assert round(found.missing("/store", 1, frozenset(), head=True)["/store"] / GIB) == 98
    assert round(found.missing("/store", 1, frozenset(), head=False)["/store"] / GIB) == 98 + 196 + 189


def test_files_that_are_there_do_not_count_again(tmp_path: Path) -> None:
    found = unbuilt.read(Places(target="dsv41", hf_cache=tmp_path))
    assert found is not None
    largest = max(found.files, key=lambda path: found.files[path])
    before, after = (found.missing("/s", 1, frozenset(there), head=True)[str(tmp_path)] for there in ((), (largest,)))
    assert before - after == found.files[largest] > 90 * GIB
    assert all(path.startswith(f"{tmp_path}/models--") for path in found.files)


@pytest.mark.parametrize("target", ["demo", "dsv41-1017", "nowhere"])
def test_a_target_without_pins_of_the_hub_tells_nothing(target: str) -> None:
    assert unbuilt.read(Places(target=target)) is None


def test_what_is_missing_is_said_by_file_system_before_anything_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The head's cache is on a disk of its own with 300 GiB; the store's has 100, and the worker's all it needs."""
    pair = Pair(CHANGES["nothing built"], tmp_path)
    cache = tmp_path / "hub"
    pair.settings["hf_cache"] = str(cache)
    df = pair.folder / "head/df.txt"
    store = df.read_text().splitlines()[0]
    other = ROW.format(0, 300 * GIB).replace("nvme0n1p2", "nvme1n1").replace("% /", "% /data")
    df.write_text(f"{store}\n{ROW.format(0, 100 * GIB)}@ {cache}\n{other}")
    assert pair.doctor("--json") == 3
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [one["reason"] for one in found] == ["disk_too_small", "disk_too_small", "nothing_built"]
    for finding, words in zip(found, (("300.0 GiB are free", "385.3 GiB"), ("100.0 GiB are free", "196.1 GiB")), strict=False):
        assert all(word in finding["found"] for word in words)
    assert "385.3 GiB are to come to" in found[2]["means"]
