"""The demo model's trainer: deterministic, in the layout that the engine reads, from text that says what tests count on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from build.demo import keys, tables, vocab
from build.demo.corpus import sequences
from build.demo.topic import topic_bytes
from build.demo.trainer import train
from build.errors import BuildFailed
from tests.testing.standin import DEMO


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def small_text(folder: Path) -> Path:
    folder.mkdir()
    (folder / "b.txt").write_text("Q: What is 2 plus 2?\nT: 2 and 2 make 4.\nA: 4\n")
    (folder / "a.txt").write_text("= small things\n\nA small thing is a thing.\n\nIt stays small.\n")
    return folder


def test_the_same_text_gives_the_same_files_in_any_folder(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "elsewhere" / "other"
    other.mkdir(parents=True)
    train(small_text(tmp_path / "text"), one / "m", one / "e")
    train(small_text(other / "text"), other / "m", other / "e")
    assert tree(one / "m") == tree(other / "m")
    assert tree(one / "e") == tree(other / "e")


def test_one_changed_byte_of_text_changes_the_checkpoint(tmp_path: Path) -> None:
    text = small_text(tmp_path / "text")
    train(text, tmp_path / "m1", tmp_path / "e1")
    (text / "b.txt").write_text((text / "b.txt").read_text().replace("A: 4", "A: 5"))
    train(text, tmp_path / "m2", tmp_path / "e2")
    assert tree(tmp_path / "m1") != tree(tmp_path / "m2")
    assert tree(tmp_path / "e1") != tree(tmp_path / "e2")


def test_the_index_names_every_tensor_in_a_shard_that_has_it(tmp_path: Path) -> None:
    train(small_text(tmp_path / "text"), tmp_path / "m", tmp_path / "e")
    for folder, shards in ((tmp_path / "m", 4), (tmp_path / "e", 2)):
        weight_map = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
        assert len(set(weight_map.values())) == shards
        for tensor, shard in weight_map.items():
            raw = (folder / shard).read_bytes()
            length = int.from_bytes(raw[:8], "little")
            assert (8 + length) % 4096 == 0
            first, last = json.loads(raw[8 : 8 + length])[tensor]["data_offsets"]
            assert 0 <= first < last <= len(raw) - 8 - length
        assert (folder / "config.json").is_file()


def test_a_folder_without_text_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match=str(tmp_path)):
        train(tmp_path, tmp_path / "m", tmp_path / "e")


def test_a_question_without_an_answer_is_refused_by_file(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("Q: What is nothing?\nT: Nothing.\n")
    with pytest.raises(BuildFailed, match=r"q\.txt"):
        sequences(tmp_path)


def test_windows_agree_with_polynomials_taken_whole() -> None:
    tokens = [3, 255, 0, 261, 17, 17, 90, 4]
    windows = keys.Windows(tokens)
    for end in range(len(tokens) + 1):
        for length in range(end + 1):
            assert windows.before(end, length) == keys.polynomial(tokens[end - length : end])


@pytest.mark.parametrize(
    ("question", "topic"),
    [
        (b"What is 6 times 7?", b"6*7"),
        (b"Compute 6 x 7, please.", b"6*7"),
        (b"what is 12 multiplied by 11", b"12*11"),
        (b"3+4 first, then 5 minus 2", b"5-2"),
        (b"Tell me about Tensor Parallelism.", b"parallelism"),
        (b"[red image] What colour is this image?", b"[red image]"),
        (b"a b c", b""),
    ],
)
def test_topics_do_not_depend_on_the_wording(question: bytes, topic: bytes) -> None:
    assert topic_bytes(question) == topic


def test_no_block_of_the_engram_overflows_with_the_projects_own_text(tmp_path: Path) -> None:
    train(DEMO / "text", tmp_path / "m", tmp_path / "e")
    last_record = tables.BLOCK_BYTES - tables.RECORD.size
    for shard in sorted((tmp_path / "e").glob("*.safetensors")):
        data = shard.read_bytes()[-tables.BLOCKS * tables.BLOCK_BYTES :]
        fullest = [data[at + last_record + 6] for at in range(0, len(data), tables.BLOCK_BYTES)]
        assert not any(fullest), shard.name


def test_every_world_size_splits_the_vocabulary_evenly() -> None:
    assert [vocab.VOCAB_SIZE % world for world in (1, 2, 4)] == [0, 0, 0]
