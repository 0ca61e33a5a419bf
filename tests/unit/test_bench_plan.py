"""What a bench plans to measure, and the texts that it asks with."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supervisor.bench.plan import FIT, LENGTHS, Decode, Options, Prefill, Ruler, plan, ruler
from supervisor.bench.prompts import ASKED, KINDS, decode_prompt, prefill_prompt

K = 1024


def lengths(context: int, wanted: tuple[int, ...] = LENGTHS) -> list[int]:
    return [step.tokens for step in plan(Options(4, lengths=wanted), context).steps if isinstance(step, Prefill)]


def test_a_large_window_takes_every_length() -> None:
    made = plan(Options(4), 1 << 20)
    assert lengths(1 << 20) == list(LENGTHS)
    assert made.left_out == ()
    assert [step for step in made.steps if isinstance(step, Decode)] == [Decode(kind, n) for kind in KINDS for n in (1, 4)]


def test_the_longest_that_fits_stands_in_for_what_does_not_and_the_reason_is_told() -> None:
    made = plan(Options(4), 64 * K)
    assert lengths(64 * K) == [8 * K, 16 * K, 32 * K, 62 * K]
    assert [(one.step, one.why) for one in made.left_out] == [
        (Prefill(n * K), "does not fit the context of 65536 tokens") for n in (64, 128, 256)
    ]


def test_a_small_window_is_measured_as_far_as_it_goes() -> None:
    assert lengths(4096) == [3 * K]
    assert lengths(1024) == [960]


def test_a_context_that_nobody_tells_leaves_nothing_out() -> None:
    made = plan(Options(4), None)
    assert [step.tokens for step in made.steps if isinstance(step, Prefill)] == list(LENGTHS)
    assert made.left_out == ()


def test_one_stream_is_measured_once() -> None:
    assert sum(isinstance(step, Decode) for step in plan(Options(1), 1 << 20).steps) == 2


@given(st.integers(256, 1 << 21), st.sets(st.integers(128, 1 << 20), min_size=1).map(lambda s: tuple(sorted(s))))
def test_every_length_is_measured_or_left_out_and_what_is_measured_fits(context: int, wanted: tuple[int, ...]) -> None:
    made = plan(Options(4, lengths=wanted), context)
    measured = [step.tokens for step in made.steps if isinstance(step, Prefill)]
    left = [one.step.tokens for one in made.left_out if isinstance(one.step, Prefill)]
    assert set(wanted) <= {*measured, *left}
    assert not set(measured) & set(left)
    assert all(length < context * FIT for length in measured)


@given(st.floats(0.05, 1.5), st.integers(0, 64), st.integers(1000, 1 << 18))
def test_a_ruler_finds_the_characters_of_a_length(each: float, around: int, tokens: int) -> None:
    made = ruler([(chars, round(around + each * chars)) for chars in (100, 700)])
    met = made.met(made.characters(tokens), round(around + each * made.characters(tokens)))
    assert abs(around + each * met.characters(tokens) - tokens) <= 2 + tokens * 0.001 + around


def test_a_ruler_of_a_strange_endpoint_still_divides() -> None:
    assert ruler([(100, 5), (700, 5)]).characters(8192) > 0
    assert Ruler(1.0, 50.0).characters(10) == 1


@given(st.text("0123456789abcdef-", min_size=1, max_size=30), st.text("0123456789abcdef-", min_size=1, max_size=30))
def test_prompts_of_two_marks_differ_from_the_first_words_on(mark: str, other: str) -> None:
    if mark == other:
        return
    texts = [prefill_prompt(one, 4000) for one in (mark, other)]
    assert [len(text) for text in texts] == [4000, 4000]
    shared = next(place for place, (a, b) in enumerate(zip(*texts, strict=True)) if a != b)
    assert shared <= max(len(mark), len(other)) + 1
    assert prefill_prompt(mark, 4000) == texts[0]


def test_no_two_streams_ask_the_same_however_many_there_are() -> None:
    for kind in KINDS:
        texts = [decode_prompt(kind, number) for number in range(64)]
        assert len(set(texts)) == 64
        assert texts[: len(ASKED[kind])] == list(ASKED[kind])
        assert decode_prompt(kind, 1, "m").startswith("[m] ")
