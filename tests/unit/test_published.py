"""Published figures in a target's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from build.errors import UsageError
from build.graph import dsv41
from build.locks import published
from tests.testing.checkout import CHECKOUT


def test_the_demo_has_none_and_neither_has_a_target_that_is_not_there() -> None:
    assert published.read(CHECKOUT, "demo") == ()
    assert published.read(CHECKOUT, "none") == ()
    assert published.read(CHECKOUT, "../demo") == ()


def test_the_recipes_figures_stand_as_its_guide_gives_them() -> None:
    (guide,) = published.read(CHECKOUT, "dsv41-1017")
    assert guide.decode == {
        ("prose", 1): (74.9, 74.9), ("code", 1): (109.9, 109.9), ("prose", 4): (130.0, 130.0), ("code", 4): (155.5, 155.5),
    }  # fmt: skip
    assert set(guide.prefill) == {n * 1024 for n in (8, 16, 32, 64, 128, 256)}
    assert set(guide.prefill.values()) == {(2000.0, 2180.0)}


def test_each_figure_of_the_sibling_has_a_source_and_an_engine() -> None:
    found = published.read(CHECKOUT, "dsv41")
    assert found[0].prefill[8192] == (2433.0, 2433.0)
    assert all(one.source and one.engine and one.checkpoint and (one.decode or one.prefill) for one in found)


def test_an_endpoints_model_finds_its_target() -> None:
    assert published.read_for_model(CHECKOUT, "DeepSeek-V4.1-Flash-1017") == published.read(CHECKOUT, "dsv41-1017")
    assert published.read_for_model(CHECKOUT, "twinfold-demo") == ()
    assert published.read_for_model(CHECKOUT, "another") == ()


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        ({}, "published is no list"),
        ([1], "is no table"),
        ([{"engine": "e", "checkpoint": "c"}], "source is missing"),
        ([{"source": "s", "engine": "e", "checkpoint": "c", "note": "n"}], "note is not a key of it"),
        ([{"source": "", "engine": "e", "checkpoint": "c"}], "are words"),
        ([{"source": "s", "engine": "e", "checkpoint": "c", "decode": {"poems_1": 1}}], "like prose_1 or code_4"),
        ([{"source": "s", "engine": "e", "checkpoint": "c", "prefill": {"8K": 1}}], "a number of prompt tokens"),
        ([{"source": "s", "engine": "e", "checkpoint": "c", "prefill": {"8192": [3, 1]}}], "the lowest and the highest"),
        ([{"source": "s", "engine": "e", "checkpoint": "c", "decode": {"prose_1": "fast"}}], "wanted tokens/s"),
        ([{"source": "s", "engine": "e", "checkpoint": "c", "decode": 1}], "decode is no table"),
    ],
)
def test_what_is_wrong_is_named(raw: object, line: str) -> None:
    with pytest.raises(UsageError, match=line):
        published.figures(raw, "here")


def test_a_wrong_figure_is_found_when_the_target_is_built(tmp_path: Path) -> None:
    folder = tmp_path / "lockfiles"
    folder.mkdir()
    (folder / "t.toml").write_text((CHECKOUT / "lockfiles/dsv41-1017.toml").read_text().replace("prose_1", "poems_1"))
    with pytest.raises(UsageError, match="poems_1"):
        dsv41.read_wanted(tmp_path, "t")
