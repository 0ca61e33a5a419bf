"""Packing one rank's weight file: the room is counted first, the packer's own words are the progress, its report is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from build.artefacts import rank_cache
from build.errors import BuildFailed
from build.graph.graph import Artefact
from build.graph.jobs import HubAccess, Job, Toolbox
from build.graph.processes import Children
from build.hub import space
from build.hub.shelf import Shelf
from build.store.hashing import Entry, sha256_file

PACKER = """#!/bin/sh
echo "rank $3 of $4: 512 of 1024 MiB" >&2
echo packed > "$2/rank$3of$4.bin"
echo '{{"rank": {rank}, "world": 2}}'
"""
MODEL_BYTES = 4096


def job(folder: Path, *, says_rank: int = 0) -> tuple[Job, list[Callable[[], str]]]:
    """A job for rank 0 of 2 over a small checkpoint, and where its progress is asked for."""
    model, packer = folder / "model", folder / "packer"
    for made in (model, packer, folder / "work"):
        made.mkdir()
    (folder / "blob").write_bytes(bytes(MODEL_BYTES))
    (model / "shard").symlink_to(folder / "blob")
    program = packer / rank_cache.PACKER
    program.write_text(PACKER.format(rank=says_rank))
    program.chmod(0o755)
    shown: list[Callable[[], str]] = []
    hub = HubAccess(Shelf(folder / "cache", sha256_file), show=shown.append)
    tools = Toolbox(folder, folder, folder, folder / "logs", Children(), sha256_file, folder, hub)
    (artefact, _) = rank_cache.artefacts(0, 2, "packer", "checker")
    return Job(artefact, "entry", {"model": model, "packer": packer}, {}, folder / "out", folder / "work", tools), shown


def test_the_packers_last_word_is_the_progress(tmp_path: Path) -> None:
    one, shown = job(tmp_path)
    rank_cache.pack(one)
    assert [text() for text in shown] == ["512 of 1024 MiB"]
    assert [p.name for p in one.out.iterdir()] == ["rank0of2.bin"]


def test_the_room_is_counted_before_the_packer_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = job(tmp_path)
    needs: list[int] = []

    def full(_what: str, asked: list[space.Need]) -> None:
        needs.extend(need.bytes for need in asked)
        raise BuildFailed("no room")

    monkeypatch.setattr(space, "require", full)
    with pytest.raises(BuildFailed, match="no room"):
        rank_cache.pack(one)
    assert needs == [MODEL_BYTES // 2]  # of what the links lead to
    assert not one.out.exists()
    assert not (tmp_path / "logs").exists()


def test_a_packer_that_speaks_of_another_rank_is_refused(tmp_path: Path) -> None:
    one, _ = job(tmp_path, says_rank=1)
    with pytest.raises(BuildFailed, match="reports another rank"):
        rank_cache.pack(one)


def test_the_key_holds_packer_checkpoint_rank_and_world() -> None:
    packed, check = rank_cache.artefacts(1, 4, "packer-here", "checker-here")
    assert packed == Artefact(
        "rank1of4", rank_cache.BUILDER, rank_cache.VERSION, {"rank": 1, "world": 4},
        {"packer": "packer-here", "model": "checkpoint"},
    )  # fmt: skip
    assert "checker" in check.inputs
    assert "checker" not in packed.inputs


class There:
    """A node that packs: what it was asked for."""

    def __init__(self, printed: str) -> None:
        self.printed, self.needs = printed, 0

    def pack(self, job: Job, need_bytes: int, read: Callable[[str], None]) -> tuple[Entry, ...]:
        assert job.out.is_dir()
        self.needs = need_bytes
        read(self.printed)
        return (Entry("rank0of2.bin", "file", 1, "a" * 64),)

    def check(self, job: Job) -> str:
        return self.printed if job.artefact.name else ""


def test_a_cache_packed_on_its_node_is_what_that_says_and_an_empty_folder_here(tmp_path: Path) -> None:
    one, _ = job(tmp_path)
    there = There('{"rank": 0, "world": 2}')
    away = replace(one, tools=replace(one.tools, elsewhere=lambda _artefact: there))
    made = rank_cache.pack(away)
    assert made is not None
    assert [entry.path for entry in made] == ["rank0of2.bin"]
    assert there.needs == MODEL_BYTES // 2
    assert list(one.out.iterdir()) == []


def test_a_node_that_packs_another_rank_is_refused_too(tmp_path: Path) -> None:
    one, _ = job(tmp_path)
    away = replace(one, tools=replace(one.tools, elsewhere=lambda _artefact: There('{"rank": 1, "world": 2}')))
    with pytest.raises(BuildFailed, match="reports another rank"):
        rank_cache.pack(away)
