"""Keys, resolution and order of the build graph."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from build.graph import graph
from build.graph.graph import Artefact

HASH = st.text("0123456789abcdef", min_size=8, max_size=8)
PARAMS = st.dictionaries(st.sampled_from(["a", "b"]), st.integers() | st.text(max_size=3), max_size=2)


def chain(*names: str) -> tuple[Artefact, ...]:
    return tuple(Artefact(n, "b", 1, inputs={"in": names[i - 1]} if i else {}) for i, n in enumerate(names))


def index_of(made: Mapping[str, str]) -> graph.Index:
    return lambda _key, name: made.get(name)


CONTENT = st.tuples(PARAMS, st.integers(1, 3), HASH)


@given(CONTENT, CONTENT)
def test_a_key_is_the_same_exactly_where_everything_that_enters_it_is(
    one: tuple[dict[str, object], int, str], two: tuple[dict[str, object], int, str]
) -> None:
    keys = {graph.key(Artefact("x", "b", v, params, {"in": "y"}), {"in": ("e", h)}) for params, v, h in (one, two)}
    assert (len(keys) == 1) == (one == two)


def test_where_an_input_lies_counts_only_for_what_names_it() -> None:
    plain, placed = (Artefact("x", "b", 1, inputs={"in": "y"}, by_place=p) for p in (False, True))
    assert graph.key(plain, {"in": ("here-y", "h")}) == graph.key(plain, {"in": ("there-y", "h")})
    assert graph.key(placed, {"in": ("here-y", "h")}) != graph.key(placed, {"in": ("there-y", "h")})


def test_what_follows_something_not_made_is_not_known() -> None:
    found = graph.resolve(chain("a", "b", "c"), index_of({"a": "ha"}))
    assert found["b"].key is not None
    assert found["b"].output is None
    assert found["c"].key is None
    assert found["c"].entry is None


def test_an_input_that_comes_out_the_same_leaves_the_key_as_it_was() -> None:
    def with_source(version: int) -> dict[str, graph.Resolved]:
        source = Artefact("source", "source", version, known_output=f"h{version}")
        binary = Artefact("binary", "zig", 1, inputs={"in": "source"})
        cache = Artefact("cache", "pack", 1, inputs={"in": "binary"})
        return graph.resolve((source, binary, cache), index_of({"binary": "same bytes"}))

    before, after = with_source(1), with_source(2)
    assert before["binary"].key != after["binary"].key
    assert before["cache"].key == after["cache"].key


def test_an_output_known_beforehand_lets_everything_resolve_with_nothing_made() -> None:
    found = graph.resolve((Artefact("a", "b", 1, known_output="h"), *chain("x")), index_of({}))
    assert found["a"].output == "h"


def test_inputs_come_first_even_in_a_long_chain_given_backwards() -> None:
    names = [f"n{i}" for i in range(5000)]
    assert [a.name for a in graph.ordered(chain(*names)[::-1])] == names


@pytest.mark.parametrize(
    ("artefacts", "said"),
    [
        ((Artefact("a", "b", 1, inputs={"in": "c"}), Artefact("c", "b", 1, inputs={"in": "a"})), "needs itself"),
        ((Artefact("a", "b", 1, inputs={"in": "nowhere"}),), "no artefact is called nowhere"),
        ((Artefact("a", "b", 1), Artefact("a", "b", 2)), "two artefacts are called a"),
    ],
)
def test_a_graph_that_cannot_be_built_is_refused_by_name(artefacts: tuple[Artefact, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        graph.ordered(artefacts)


def test_a_diamond_is_no_cycle_and_its_closure_has_each_part_once() -> None:
    parts = (
        Artefact("top", "b", 1, inputs={"l": "left", "r": "right"}),
        Artefact("left", "b", 1, inputs={"in": "base"}),
        Artefact("right", "b", 1, inputs={"in": "base", "also": "left"}),
        Artefact("base", "b", 1),
        Artefact("other", "b", 1),
    )
    assert graph.ordered(parts)[0].name == "base"
    assert graph.closure(["right"], {a.name: a for a in parts}) == {"right", "left", "base"}
