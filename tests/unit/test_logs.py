"""Saved logs: whole or absent, bounded, the newest kept."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from supervisor.gang.logs import Ended, Keeping, is_poll, lines, network_failure, save
from supervisor.runners.protocol import LogChunk, RankExit, RankHandle

START = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


class Shelf:
    """A runner of which only logs are asked: text by rank."""

    def __init__(self, **logs: bytes) -> None:
        self.logs = {int(name[4:]): text for name, text in logs.items()}

    def whole_log(self, handle: RankHandle) -> Iterator[bytes]:
        text = self.logs[handle.rank]
        yield from (text[at : at + 10] for at in range(0, len(text), 10))

    def read_log(self, handle: RankHandle, cursor: str = "") -> LogChunk:
        at = int(cursor or 0)
        data = self.logs[handle.rank][at : at + 10]
        return LogChunk(data, str(at + len(data)))


def handles(launch: str = "l1") -> tuple[RankHandle, ...]:
    return tuple(RankHandle(launch, rank, "head", str(rank), "hash") for rank in range(2))


def ended(launch: str, after_s: int = 0) -> Ended:
    exits = {0: RankExit(launch, 0, 1), 1: RankExit(launch, 1, 137, 9)}
    return Ended(launch, "rank exit", "rank 0: exit 1", START + timedelta(seconds=after_s), exits)


def test_both_logs_and_the_end_are_saved(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    save(Shelf(rank0=b"zero\n", rank1=b"one\n"), handles(), ended("l1"), Keeping(folder, 3, 1 << 20))  # type: ignore[arg-type]
    assert sorted(path.name for path in folder.iterdir()) == [
        "20261130T120000Z-l1-end.json",
        "20261130T120000Z-l1-rank0.log.gz",
        "20261130T120000Z-l1-rank1.log.gz",
    ]
    assert gzip.decompress((folder / "20261130T120000Z-l1-rank1.log.gz").read_bytes()) == b"one\n"
    end = json.loads((folder / "20261130T120000Z-l1-end.json").read_text())
    assert (end["reason"], end["ranks"][1]) == ("rank exit", {"rank": 1, "code": 137, "signal": 9, "out_of_memory": "unknown"})


def test_the_newest_launches_are_kept_and_strange_files_stay(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for number in range(5):
        save(Shelf(rank0=b"", rank1=b""), handles(), ended(f"l{number}", number), Keeping(tmp_path, 2, 1 << 20))  # type: ignore[arg-type]
    assert {path.name[17:19] for path in tmp_path.iterdir() if path.name != "notes.txt"} == {"l3", "l4"}
    assert (tmp_path / "notes.txt").exists()


def test_a_log_that_cannot_be_read_leaves_nothing_half_written(tmp_path: Path) -> None:
    class Broken(Shelf):
        def whole_log(self, handle: RankHandle) -> Iterator[bytes]:  # noqa: ARG002 - the protocol's
            yield b"some"
            raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        save(Broken(), handles(), ended("l1"), Keeping(tmp_path, 2, 1 << 20))  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_log_is_cut_at_its_bound_and_says_so(tmp_path: Path) -> None:
    save(Shelf(rank0=b"x" * 100, rank1=b""), handles(), ended("l1"), Keeping(tmp_path, 2, 25))  # type: ignore[arg-type]
    text = gzip.decompress((tmp_path / "20261130T120000Z-l1-rank0.log.gz").read_bytes())
    assert text.startswith(b"x" * 25 + b"\n[cut: more than")


def test_lines_of_all_ranks_come_interleaved_and_whole() -> None:
    shelf = Shelf(rank0=b"a long first line\nb\n", rank1=b"1\n2\nno end")
    found = list(lines(shelf, handles, follow=False, wait=lambda: False))  # type: ignore[arg-type]
    assert [line for rank, line in found if rank == 0] == ["a long first line", "b"]
    assert [line for rank, line in found if rank == 1] == ["1", "2", "no end"]


class Late(Shelf):
    """As containers are read: the first look at a follower finds nothing yet."""

    def read_log(self, handle: RankHandle, cursor: str = "") -> LogChunk:
        return super().read_log(handle, cursor) if cursor else LogChunk(b"", "0")


def test_what_is_written_comes_also_where_a_follower_has_nothing_at_first() -> None:
    shelf = Late(rank0=b"a\nb\n", rank1=b"1")
    found = list(lines(shelf, handles, follow=False, wait=lambda: False))  # type: ignore[arg-type]
    assert sorted(found) == [(0, "a"), (0, "b"), (1, "1")]


@pytest.mark.parametrize(
    ("line", "poll"),
    [
        ('127.0.0.1 "GET /health HTTP/1.1" 200 -', True),
        ('127.0.0.1 "GET /metrics HTTP/1.1" 200 -', True),
        ('127.0.0.1 "GET /health HTTP/1.1" 503 -', False),
        ('127.0.0.1 "GET /v1/models HTTP/1.1" 200 -', False),
        ('127.0.0.1 "POST /v1/chat/completions HTTP/1.1" 200 -', False),
    ],
)
def test_only_good_looks_at_the_engines_health_are_polls(line: str, poll: bool) -> None:
    assert is_poll(line) is poll


def test_following_goes_on_until_told_to_end() -> None:
    shelf, waits = Shelf(rank0=b"a\n", rank1=b""), iter([True, False])

    def wait() -> bool:
        shelf.logs[0] += b"later\n"
        return next(waits)

    assert [line for _, line in lines(shelf, handles, follow=True, wait=wait)] == ["a", "later"]  # type: ignore[arg-type]


def test_what_nccl_said_of_the_network_is_found_in_saved_logs(tmp_path: Path) -> None:
    case = Path(__file__).parents[1] / "cases" / "engine-nccl-errors"
    keeping, one = Keeping(tmp_path, 3, 1 << 20), ended("l1")
    save(Shelf(rank0=b"all is well\n", rank1=b"noise\n" + (case / "input-gid.log").read_bytes()), handles(), one, keeping)
    assert (
        str(network_failure(tmp_path, one)) == "NCCL on spark-a, roceP2p1s0f1: wrong gid index: look at GID index of that device"
    )
    quiet = ended("l2", 1)
    save(Shelf(rank0=b"all is well\n", rank1=b"\n"), handles("l2"), quiet, keeping)
    assert network_failure(tmp_path, quiet) is None
