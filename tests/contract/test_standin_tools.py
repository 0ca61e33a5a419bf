"""The stand-in's packer and checker, and how ranks refuse to start: exit codes, error names, files."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from signal import SIGTERM

import pytest

from tests.testing.standin import DEADLINE_S, STANDIN, Demo, Gang, binaries, demo, pack, parts, wait_for


def run(name: str, *args: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    argv = [str(binaries() / name), *map(str, args)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, check=False, env=env or {})


def check(cache: Path, rank: int, world: int) -> subprocess.CompletedProcess[str]:
    return run("tf-dsv41-check", demo().model, cache, rank, world)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A writable copy of the rank files of world 2."""
    shutil.copytree(demo().ranks(2), tmp_path / "ranks")
    return tmp_path / "ranks"


def only_file(cache: Path, rank: int) -> Path:
    (found,) = cache.glob(f"rank{rank}of2-*.bin")
    return found


def test_every_binary_lists_exactly_the_sources_it_imports() -> None:
    for name, part in parts()["parts"].items():
        needed, todo = set[str](), [part["root"]]
        while todo:
            source = todo.pop()
            if source not in needed:
                needed.add(source)
                todo += re.findall(r'@import\("([^"]+\.zig)"\)', (STANDIN / "src" / source).read_text())
        assert sorted(needed) == part["sources"], name


def test_the_packer_says_what_it_wrote_and_names_the_file_by_its_index(tmp_path: Path) -> None:
    done = pack(demo().model, tmp_path, 1, 2)
    said = json.loads(done.stdout)
    assert (said["rank"], said["world"], said["parity"], said["dspark"]) == (1, 2, False, True)
    raw = (tmp_path / said["file"]).read_bytes()
    index_at = int.from_bytes(raw[-16:-8], "little")
    index = raw[index_at:-16]
    assert raw.endswith(b"TFDSRK01")
    assert said["file"] == f"rank1of2-{hashlib.sha256(index).hexdigest()[:20]}.bin"
    rows = json.loads(index)
    assert (said["entries"], said["data_bytes"], said["index_bytes"]) == (len(rows), index_at, len(index))
    offset = 0
    for _key, dtype, shape, at, size in rows:
        assert at == offset
        assert dtype in {"uint8", "uint16"}
        assert len(shape) <= 4
        offset += size
    assert offset == index_at


def test_packing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    one, other = (json.loads(pack(demo().model, tmp_path / name, 0, 2).stdout)["file"] for name in ("a", "b"))
    assert (tmp_path / "a" / one).read_bytes() == (tmp_path / "b" / other).read_bytes()


def test_the_packer_refuses_a_folder_that_has_that_rank(cache: Path) -> None:
    before = only_file(cache, 0).read_bytes()
    done = pack(demo().model, cache, 0, 2)
    assert (done.returncode, done.stdout) == (1, "")
    assert "RankAlreadyPacked" in done.stderr
    assert only_file(cache, 0).read_bytes() == before


@pytest.mark.parametrize(
    ("flags", "extra", "missing"),
    [(["--parity"], "layers.4.ngram.weight.parity", ""), (["--no-dspark"], "", "draft.next.weight")],
)
def test_packer_flags_change_what_is_in_the_file(flags: list[str], extra: str, missing: str, tmp_path: Path) -> None:
    said = json.loads(pack(demo().model, tmp_path, 0, 4, *flags).stdout)
    raw = (tmp_path / said["file"]).read_bytes()
    keys = {row[0] for row in json.loads(raw[said["data_bytes"] : -16])}
    assert not extra or extra in keys
    assert missing not in keys
    assert check(tmp_path, 0, 4).returncode == 0


def test_index_only_writes_nothing(tmp_path: Path) -> None:
    done = pack(demo().model, tmp_path / "out", 0, 2, "--index-only")
    assert done.returncode == 0
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["m", "o", "0"],
        ["m", "o", "0", "3"],
        ["m", "o", "2", "2"],
        ["m", "o", "0", "2", "--parity"],
        ["m", "o", "x", "2"],
        ["m", "o", "0", "2", "--x"],
    ],
)
def test_wrong_usage_of_the_packer_exits_2(args: list[str]) -> None:
    assert run("tf-dsv41-rank-cache", *args).returncode == 2


@pytest.mark.parametrize("lost", ["model.safetensors.index.json", "model-00002-of-00004.safetensors"])
def test_a_missing_tensor_exits_1_before_a_byte_is_written(lost: str, tmp_path: Path) -> None:
    shutil.copytree(demo().model, tmp_path / "model")
    (tmp_path / "model" / lost).unlink()
    done = pack(tmp_path / "model", tmp_path / "out", 0, 2)
    assert done.returncode == 1
    assert "error.MissingTensor" in done.stderr
    assert not (tmp_path / "out").exists()


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


DAMAGE: list[tuple[str, Callable[[Path], object]]] = [
    ("NoRankCache", lambda path: path.unlink()),
    ("SeveralRankCaches", lambda path: shutil.copy(path, path.with_name("rank1of2-00000000000000000000.bin"))),
    ("BadRankCache", lambda path: path.write_bytes(path.read_bytes()[:-1])),
    ("BadRankCache", lambda path: path.write_bytes(path.read_bytes()[1:])),
    ("BadRankCache", lambda path: flip(path, -1)),
    ("BadRankCache", lambda path: flip(path, -40)),
    ("BadRankCache", lambda path: path.write_bytes(b"")),
]


@pytest.mark.parametrize(("name", "damage"), DAMAGE)
def test_a_rank_file_that_is_not_whole_is_found_by_checker_and_rank(
    name: str, damage: Callable[[Path], object], cache: Path
) -> None:
    damage(only_file(cache, 1))
    checked = check(cache, 1, 2)
    assert (checked.returncode, json.loads(checked.stdout)["error"]) == (1, name)
    lanes = run("tf-dsv41-lanes", demo().model, cache, 1, 2, "127.0.0.1", 1, demo().kit)
    assert lanes.returncode == 1
    assert f"error.{name}" in lanes.stderr


def test_the_checker_finds_a_changed_weight_that_the_name_does_not_show(cache: Path) -> None:
    flip(only_file(cache, 0), 100_000)
    checked = check(cache, 0, 2)
    assert (checked.returncode, json.loads(checked.stdout)["error"]) == (1, "WeightsDiffer")
    whole = check(cache, 1, 2)
    assert whole.returncode == 0
    assert whole.stdout.rstrip().endswith('"ok": true}')


@pytest.mark.parametrize("args", [[], ["m", "c", "1", "2", "127.0.0.1", "1"], ["m", "c", "--rdma", "2", "127.0.0.1", "1", "k"]])
def test_wrong_usage_of_lanes_exits_2(args: list[str]) -> None:
    done = run("tf-dsv41-lanes", *args)
    assert (done.returncode, done.stderr[:6]) == (2, "usage:")


@pytest.mark.parametrize("flag", [["--unheard-of", "1"], ["--pool", "many"], ["--pool"]])
def test_a_wrong_flag_of_lanes_exits_1_with_bad_argument(flag: list[str]) -> None:
    done = run("tf-dsv41-lanes", "m", "c", 1, 2, "127.0.0.1", 1, "k", *flag)
    assert done.returncode == 1
    assert "error.BadArgument" in done.stderr


def test_a_follower_without_rank_0_gives_up_with_connect_failed() -> None:
    given = demo()
    lanes = run(
        "tf-dsv41-lanes", given.model, given.ranks(2), 1, 2, "127.0.0.1", 1, given.kit, env={"TF_STANDIN_CONNECT_S": "0.6"}
    )
    assert lanes.returncode == 1
    assert "error.ConnectFailed" in lanes.stderr
    assert json.loads(lanes.stdout)["rank"] == 1


def test_a_context_beyond_the_rope_tables_is_refused_by_both_ranks(tmp_path: Path) -> None:
    gang = Gang(tmp_path, options=["--context", "70000"])
    assert gang.start(0).wait() == 1
    assert "error.ShortRopeTable" in gang.ranks[0].text()
    lanes = run("tf-dsv41-lanes", demo().model, demo().ranks(2), 1, 2, "127.0.0.1", 1, demo().kit, "--context", 70000)
    assert lanes.returncode == 1
    assert "error.ShortRopeTable" in lanes.stderr


def test_wrong_usage_of_the_server_exits_2_and_a_missing_model_path_exits_1(tmp_path: Path) -> None:
    for args in (
        [],
        ["bench"],
        ["serve"],
        ["serve", "m", "--bogus"],
        ["serve", "m", "--port", "x"],
        ["serve", "m", "--backend", "cpu"],
    ):
        assert run("tensorfold-native", *args).returncode == 2, args
    done = run("tensorfold-native", "serve", tmp_path / "none", "--backend", "cuda")
    assert done.returncode == 1
    assert done.stderr == f"tensorfold: {tmp_path}/none is neither a directory nor a Hugging Face repo id\n"


@pytest.mark.parametrize("name", ["TF_TP_MASTER", "TF_DS_RANK_CACHE", "TF_DS_KIT", "TENSORFOLD_CUDA_KERNELS"])
def test_the_server_names_a_required_variable_that_is_not_set(name: str, tmp_path: Path) -> None:
    environment = {key: value for key, value in Gang(tmp_path).full_environment().items() if key != name}
    done = run("tensorfold-native", "serve", demo().model, env=environment)
    assert done.returncode == 1
    assert name in done.stderr


def test_too_little_memory_is_refused_at_start_in_the_known_form(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 33554432 kB\nMemFree: 100 kB\nMemAvailable: 1048576 kB\n")
    refused = Gang(tmp_path, environment={"TF_STANDIN_PROC": str(tmp_path), "TENSORFOLD_MEMORY_RESERVE_GIB": "2.5"})
    assert refused.start(0).wait() == 1
    form = r"tensorfold: 4 x 65536 on rank 0 leaves 1\.00 GiB, under the 2\.5 GiB hard floor; fit: 0 stream\(s\)\n"
    assert re.fullmatch(form, refused.ranks[0].text())


def test_rank_0_waits_for_its_peer_after_loading_and_a_signal_ends_it(tmp_path: Path) -> None:
    gang = Gang(tmp_path, inputs=Demo(demo().folder))
    rank = gang.start(0)
    wait_for("the memory line", lambda: "[tensorfold] CUDA sm_121 device 0 (" in rank.text())
    assert "serving" not in rank.text()
    rank.signal(SIGTERM)
    assert rank.wait() == 0
