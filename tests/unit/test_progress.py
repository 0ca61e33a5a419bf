"""When a busy gang counts as hung, and when it is only busy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.engine.progress import Patience, Progress, Verdict, asked, begin, observe, probe_deadline_s, probed
from supervisor.engine.readings import EngineReading

PATIENCE = Patience(stall_s=10, misses=3, idle_probe_s=60, prefill_tokens_per_s=400, context_tokens=40_000, streams=4)
IDLE = EngineReading(running=0, waiting=0, prompt_tokens=100.0, generated_tokens_live=50.0, rounds=20.0, live=True)
DECODING = replace(IDLE, running=1, generated_tokens_live=60.0)


def follow(*seen: tuple[float, EngineReading | None], progress: Progress | None = None) -> tuple[Progress, Verdict]:
    progress, verdict = progress or begin(0.0), Verdict()
    for at_s, reading in seen:
        progress, verdict = observe(progress, reading, at_s, PATIENCE)
    return progress, verdict


def test_a_decode_that_stands_is_a_hang_after_the_stall_time() -> None:
    seen = ((0.0, IDLE), (1.0, replace(DECODING, generated_tokens_live=51.0)), (2.0, DECODING))
    assert follow(*seen, (11.9, DECODING))[1].stalled == ""
    assert follow(*seen, (12.0, DECODING))[1].stalled == "requests run, and nothing has moved for 10 s"


def test_a_prompt_of_unknown_length_gets_three_times_the_longest_ones_time() -> None:
    came = replace(IDLE, running=1)
    assert follow((0.0, IDLE), (1.0, came), (299.0, came))[1].stalled == ""
    assert follow((0.0, IDLE), (1.0, came), (301.1, came))[1].stalled


def test_a_prompt_of_known_length_gets_three_times_its_own() -> None:
    came = replace(IDLE, running=1, prompt_tokens=100.0 + 4000)
    assert follow((0.0, IDLE), (1.0, came), (29.0, came))[1].stalled == ""
    assert follow((0.0, IDLE), (1.0, came), (31.1, came))[1].stalled


def test_requests_that_come_to_a_gang_that_stands_do_not_buy_it_time() -> None:
    progress, _ = follow((0.0, IDLE), (1.0, replace(DECODING, generated_tokens_live=51.0)), (2.0, DECODING))
    for second in range(3, 12):
        later = replace(DECODING, waiting=second, running=1 + (second > 4))
        progress, verdict = observe(progress, later, float(second), PATIENCE)
    assert verdict.stalled == ""
    assert observe(progress, later, 12.0, PATIENCE)[1].stalled


def test_a_decode_that_waits_for_another_requests_prompt_is_no_hang() -> None:
    seen = (
        (0.0, IDLE),
        (1.0, replace(DECODING, generated_tokens_live=51.0)),
        (2.0, DECODING),
        (3.0, replace(DECODING, running=2)),
    )
    assert follow(*seen, (60.0, replace(DECODING, running=2)))[1].stalled == ""


def test_one_silent_reading_is_nothing_and_silence_is_a_hang() -> None:
    assert follow((0.0, IDLE), (1.0, None), (2.0, None), (9.0, None))[1].stalled == ""
    assert follow((0.0, IDLE), (1.0, None), (2.0, None), (10.0, None))[1].stalled == "rank 0 has not answered for 10 s"
    assert follow((0.0, IDLE), (30.0, None))[1].stalled == "", "one late reading is no proof, however late"


def test_an_idle_gang_is_asked_for_a_token_now_and_then() -> None:
    progress, verdict = follow((0.0, IDLE), (59.0, IDLE))
    assert not verdict.probe
    progress, verdict = follow((60.0, IDLE), progress=progress)
    assert verdict.probe
    progress, _ = probed(asked(progress), True, 60.5, PATIENCE)
    assert not follow((61.0, IDLE), progress=progress)[1].probe
    assert follow((120.5, IDLE), progress=progress)[1].probe


def test_our_own_request_that_hangs_is_found_before_a_long_prompts_time_is_over() -> None:
    progress, _ = follow((0.0, IDLE), (60.0, IDLE))
    held = replace(IDLE, running=1)
    progress = asked(progress)
    assert follow((61.0, held), (89.0, held), progress=progress)[1].stalled == ""
    assert follow((61.0, held), (90.0, held), progress=progress)[1].stalled


def test_an_engine_that_has_made_no_token_yet_may_take_the_smoke_tests_time_for_its_first() -> None:
    patience = replace(PATIENCE, first_token_s=120.0)
    new = replace(IDLE, generated_tokens_live=0.0, rounds=0.0)
    came = replace(new, running=1, prompt_tokens=120.0)
    for last in (came, replace(came, generated_tokens_live=1.0)):
        progress = begin(0.0)
        for at_s, reading in ((0.0, new), (1.0, came), (2.0, last), (3.0, last)):
            progress = observe(progress, reading, at_s, patience)[0]
        assert bool(observe(progress, last, 13.0, patience)[1].stalled) is (last is not came)
        assert observe(progress, last, 121.1, patience)[1].stalled


def test_silence_while_an_engine_warms_up_is_borne_as_long_and_one_that_has_served_is_warm() -> None:
    patience = replace(PATIENCE, first_token_s=120.0)
    for warm, found_s in ((False, 120.0), (True, 10.0)):
        progress = begin(0.0, warm=warm)
        for at_s in (3.0, 6.0, found_s - 0.1):
            progress, verdict = observe(progress, None, at_s, patience)
            assert verdict.stalled == ""
        assert observe(progress, None, found_s, patience)[1].stalled == f"rank 0 has not answered for {found_s:.0f} s"


@pytest.mark.parametrize(("prefilling", "found_s"), [(None, 300.0), (0, 10.0)])
def test_a_busy_gang_that_is_taken_over_gets_a_prompts_time_only_where_one_may_be_under_way(
    prefilling: int | None, found_s: float
) -> None:
    hung = replace(DECODING, prefilling=prefilling)
    assert follow((0.0, hung), (found_s - 0.1, hung), progress=begin(0.0, warm=True))[1].stalled == ""
    assert follow((0.0, hung), (found_s, hung), progress=begin(0.0, warm=True))[1].stalled


AT_THE_END = replace(IDLE, running=1, rounds=None, live=False)  # tokens are counted when a request ends
LONGEST_S = 3 * PATIENCE.context_tokens / PATIENCE.prefill_tokens_per_s


def test_where_tokens_are_counted_at_the_end_a_long_decode_is_no_hang_and_is_asked_beside_for_a_token() -> None:
    progress, verdict = follow((0.0, replace(AT_THE_END, running=0)), (1.0, AT_THE_END), (59.0, AT_THE_END))
    assert verdict == Verdict()
    progress, verdict = follow((61.0, AT_THE_END), progress=progress)
    assert verdict == Verdict(probe=True)
    progress, _ = probed(asked(progress), True, 62.0, PATIENCE)
    assert follow((121.0, AT_THE_END), progress=progress)[1] == Verdict()
    ended = replace(AT_THE_END, generated_tokens_live=900.0)
    assert follow((121.0, ended), (180.0, ended), progress=progress)[1] == Verdict()
    assert follow((121.0, ended), (181.0, ended), progress=progress)[1] == Verdict(probe=True)


@pytest.mark.parametrize(
    ("running", "prompt_tokens", "wait_s"),
    [(3, 4000.0, 30.0), (3, 8000.0, 60.0), (4, 4000.0, LONGEST_S), (3, 0.0, LONGEST_S)],
    ids=["a short prompt", "a long one", "every place taken", "a prompt of unknown length"],
)
def test_a_token_asked_for_beside_others_may_wait_for_their_prompts_and_for_a_place(
    running: int, prompt_tokens: float, wait_s: float
) -> None:
    came = replace(AT_THE_END, running=running, prompt_tokens=100.0 + prompt_tokens)
    progress, _ = follow((0.0, replace(AT_THE_END, running=0)), (1.0, came), (61.0, came))
    assert probe_deadline_s(progress, PATIENCE) == wait_s
    progress = probed(asked(progress), None, 61.0 + wait_s / 2, PATIENCE)[0]
    held = replace(came, running=min(running + 1, PATIENCE.streams), waiting=int(running == PATIENCE.streams))
    assert follow((59.9 + wait_s, held), progress=progress)[1].stalled == ""
    assert follow((60.0 + wait_s, held), progress=progress)[1].stalled


def test_garbage_is_a_miss_beside_others_too() -> None:
    progress, _ = follow((0.0, replace(AT_THE_END, running=0)), (1.0, AT_THE_END), (61.0, AT_THE_END))
    for at_s, stalled in ((62.0, False), (63.0, False), (64.0, True)):
        progress, verdict = probed(asked(progress), False, at_s, PATIENCE)
        assert bool(verdict.stalled) is stalled


def test_a_reading_that_lacks_one_of_the_two_answers_does_not_make_a_busy_gang_idle() -> None:
    nothing = EngineReading()
    progress, _ = follow((0.0, IDLE), (1.0, DECODING), (2.0, nothing), (11.0, nothing))
    assert follow((12.0, nothing), progress=progress)[1] == Verdict()
    assert follow((12.0, DECODING), progress=progress)[1].stalled
    assert follow((12.0, replace(DECODING, generated_tokens_live=61.0)), progress=progress)[1] == Verdict()


def test_an_engine_that_never_says_whether_it_is_busy_is_asked_as_an_idle_one_is() -> None:
    nothing = EngineReading()
    assert follow((0.0, nothing), (59.0, nothing))[1] == Verdict()
    assert follow((0.0, nothing), (60.0, nothing))[1] == Verdict(probe=True)


def test_idleness_counts_from_the_last_token() -> None:
    ended = replace(IDLE, generated_tokens_live=60.0)
    progress, _ = follow((0.0, IDLE), (50.0, ended), (60.0, ended))
    assert follow((109.0, ended), progress=progress)[1] == Verdict()
    assert follow((110.0, ended), progress=progress)[1] == Verdict(probe=True)


def test_a_full_gang_whose_requests_end_is_never_a_hang_though_no_tiny_generation_gets_a_place() -> None:
    full = replace(AT_THE_END, running=4, waiting=6)
    progress, tokens = begin(0.0), 0.0
    for at_s in range(0, 7200, 5):
        tokens += 64.0 * (at_s % 70 == 0)
        progress, verdict = observe(progress, replace(full, generated_tokens_live=tokens), float(at_s), PATIENCE)
        assert verdict.stalled == ""
        if verdict.probe:
            progress, verdict = probed(asked(progress), None, float(at_s), PATIENCE)
            assert verdict.stalled == ""


@given(st.lists(st.tuples(st.floats(0.1, 20.0), st.integers(1, 4), st.booleans()), max_size=60))
def test_where_tokens_are_counted_at_the_end_a_gang_that_answers_is_never_a_hang(steps: list[tuple[float, int, bool]]) -> None:
    progress, at_s = begin(0.0), 0.0
    for pause_s, running, ends in steps:
        at_s += pause_s
        tokens = (progress.reading.generated_tokens_live or 0.0) + ends if progress.reading else 0.0
        progress, verdict = observe(progress, replace(AT_THE_END, running=running, generated_tokens_live=tokens), at_s, PATIENCE)
        assert verdict.stalled == ""
        if verdict.probe:
            progress, verdict = probed(asked(progress), True, at_s, PATIENCE)
            assert verdict.stalled == ""


@pytest.mark.parametrize("outcome", [False, None], ids=["garbage", "nothing"])
def test_several_missed_tiny_generations_are_a_hang_and_one_is_not(outcome: bool | None) -> None:
    progress = begin(0.0)
    for second, stalled in ((1.0, False), (2.0, False), (3.0, True)):
        progress, verdict = probed(asked(progress), outcome, second, PATIENCE)
        assert bool(verdict.stalled) is stalled
    progress, _ = probed(progress, True, 4.0, PATIENCE)
    assert progress.probe_misses == 0


def test_a_fatal_error_needs_no_patience() -> None:
    assert follow((0.0, replace(IDLE, fatal=True)))[1].stalled == "the engine reports a fatal error"


@given(st.lists(st.tuples(st.floats(0.1, 5.0), st.integers(0, 3), st.integers(0, 2)), max_size=60))
def test_a_gang_that_moves_at_every_reading_is_never_a_hang(steps: list[tuple[float, int, int]]) -> None:
    progress, at_s, tokens = begin(0.0), 0.0, 0.0
    for pause_s, running, waiting in steps:
        at_s, tokens = at_s + pause_s, tokens + 1
        reading = replace(IDLE, running=running, waiting=waiting, generated_tokens_live=tokens)
        progress, verdict = observe(progress, reading, at_s, PATIENCE)
        assert verdict.stalled == ""


@given(st.lists(st.floats(0.1, 5.0), min_size=1, max_size=200))
def test_a_decode_that_stands_is_always_found(pauses: list[float]) -> None:
    progress, _ = follow((0.0, IDLE), (0.5, replace(DECODING, generated_tokens_live=51.0)), (1.0, DECODING))
    at_s, found = 1.0, False
    for pause_s in pauses:
        at_s += pause_s
        progress, verdict = observe(progress, DECODING, at_s, PATIENCE)
        found = found or bool(verdict.stalled)
    assert found == (at_s - 1.0 >= PATIENCE.stall_s)
