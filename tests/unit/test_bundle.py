"""The bundle's file: the same bundle gives the same bytes, and what is no bundle is told in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from build.bundle import Bundle, Engine, ImageRef, Needs, NodeTool, StoreRef, from_json, to_json
from build.errors import Refused, StoreDamaged

WORD = st.text("abcxyz0123456789-_./ ", max_size=8)
REF = st.builds(StoreRef, WORD, WORD)
IMAGE = st.builds(ImageRef, WORD, WORD, st.lists(WORD, max_size=2).map(tuple), REF)
BUNDLE = st.builds(
    Bundle,
    target=WORD,
    variant=WORD,
    served_name=WORD,
    world_size=st.integers(1, 4),
    window_tokens=st.integers(1, 1 << 20),
    prefill_tokens_per_s=st.integers(1, 1 << 20),
    engine=st.builds(Engine, REF, REF, REF, REF),
    model=REF,
    rank_caches=st.lists(REF, max_size=4).map(tuple),
    rank_cache_bytes=st.lists(st.integers(0, 1 << 40), max_size=4).map(tuple),
    kit=REF,
    token_map=REF,
    engram=st.none() | REF,
    image=st.dictionaries(st.sampled_from(["linux/amd64", "linux/arm64"]), IMAGE),
    node_tool=st.dictionaries(st.sampled_from(["linux/amd64", "linux/arm64"]), st.builds(NodeTool, REF, IMAGE)),
    env=st.lists(st.tuples(WORD, WORD), max_size=3).map(tuple),
    needs=st.builds(Needs, st.booleans(), st.booleans(), st.booleans()),
    smoke=st.tuples(WORD, WORD),
    model_revision=WORD,
)


@given(BUNDLE)
def test_what_is_written_is_read_again_and_written_the_same(bundle: Bundle) -> None:
    text = to_json(bundle)
    assert from_json(text, "here") == bundle
    assert to_json(from_json(text, "here")) == text


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 3}', '{"format": 3, "strange": 1}'])
def test_what_is_no_bundle_is_damage_that_names_the_file(content: str) -> None:
    with pytest.raises(StoreDamaged, match=r"^the/file") as error:
        from_json(content, "the/file")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", ['{"format": 1}', '{"format": 4}', '{"format": "x"}'])
def test_a_bundle_of_another_version_is_refused_and_told_what_to_run(content: str) -> None:
    with pytest.raises(
        Refused, match=r"^the/file is a bundle of format \w+, this version of twinfold reads format 3: run `doit`$"
    ):
        from_json(content, "the/file")


def test_a_reference_lies_below_whatever_store_it_is_asked_in() -> None:
    assert StoreRef("e", "a/b").under(Path("/one")) == Path("/one/e/a/b")
    assert StoreRef("e").under(Path("/two")) == Path("/two/e")
