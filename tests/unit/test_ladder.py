from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supervisor.memory.ladder import Ladder, climbed, evicted, may_climb, rung_above, rung_below, steps_down

contexts = st.integers(1024, 1 << 20)


def test_the_context_that_fell_in_the_field_comes_back_at_the_one_that_held() -> None:
    down = evicted(Ladder(), 655360, 8192, 0.0)
    assert (down.cap_tokens, steps_down(down)) == (524288, 1)
    assert down.bounded(655360, 1 << 20) == 524288
    assert down.bounded("auto", 1 << 20) == "auto"
    assert down.window(1 << 20) == 524288


def test_a_ladder_that_no_eviction_lowered_bounds_nothing() -> None:
    assert Ladder().bounded(1 << 20, 1 << 20) == 1 << 20
    assert Ladder().window(65536) == 65536
    assert steps_down(Ladder()) == 0


@given(contexts, contexts)
def test_a_rung_down_is_smaller_until_the_least_and_never_below_it(context: int, least: int) -> None:
    below = rung_below(context, least)
    assert below == min(context, least) or least <= below < context
    assert context > 2 * least or below >= min(context, least)
    assert below * 2 >= context or below in {least, context}


@given(contexts)
def test_up_undoes_down(context: int) -> None:
    below = rung_below(context, 1024)
    assert below == context == 1024 or rung_above(below) >= context


@given(st.lists(st.sampled_from(["evict", "wait", "climb"]), max_size=60), st.floats(1, 1000), st.floats(0.01, 300))
def test_it_never_climbs_faster_than_its_quiet_time(moves: list[str], quiet_s: float, step_s: float) -> None:
    ladder, now_s, served = Ladder(), 0.0, 1 << 20
    moved_s = served_since_s = float("-inf")
    for move in moves:
        now_s += step_s
        if move == "evict":
            ladder = evicted(ladder, served, 8192, now_s)
            moved_s = served_since_s = now_s
        elif move == "climb" and may_climb(ladder, quiet_s, served_since_s, now_s):
            assert now_s - moved_s >= quiet_s
            ladder = climbed(ladder, now_s)
            moved_s = served_since_s = now_s
        served = ladder.window(1 << 20)
        assert 8192 <= served <= 1 << 20
        assert (ladder.cap_tokens is None) == (steps_down(ladder) == 0)


def test_each_fall_makes_the_next_climb_wait_longer_to_a_bound() -> None:
    waits = []
    ladder = Ladder()
    for _ in range(8):
        ladder = evicted(ladder, 1 << 20, 8192, 0.0)
        waits.append(next(at for at in range(10**6) if may_climb(ladder, 10, 0.0, at)))
    assert waits == [10, 20, 40, 80, 160, 160, 160, 160]


def test_without_a_quiet_time_only_a_person_climbs() -> None:
    assert not may_climb(evicted(Ladder(), 65536, 8192, 0.0), 0.0, 0.0, 1e9)
    assert not may_climb(Ladder(), 10.0, 0.0, 1e9)
