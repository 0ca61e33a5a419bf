"""What becomes of ranks that an earlier supervisor left."""

from __future__ import annotations

from dataclasses import replace

from supervisor.gang.leftovers import beside, decide, ours
from supervisor.runners.protocol import Leftover, Owner, RankHandle

OURS = Owner("a" * 16, "here:/state")
THEIRS = Owner("b" * 16, "there:/other")


def left(launch: str, rank: int, *, alive: bool = True, spec: str = "now", world: int = 2) -> Leftover:
    return Leftover(RankHandle(launch, rank, "head", f"{launch}{rank}", spec), alive, world, "entry", 4096)


def test_a_whole_living_gang_of_the_same_spec_is_adopted_rank_0_first() -> None:
    found = (left("a", 1), left("a", 0))
    decision = decide(found, "now")
    assert [one.handle.rank for one in decision.adopt] == [0, 1]
    assert decision.remove == ()


def test_a_lone_rank_a_dead_one_and_another_spec_are_removed() -> None:
    for found in (
        (left("a", 0),),
        (left("a", 0), left("a", 1, alive=False)),
        (left("a", 0, spec="old"), left("a", 1, spec="old")),
        (left("a", 0), left("a", 1, spec="old")),
        (left("a", 0, world=4), left("a", 1, world=4)),
    ):
        decision = decide(found, "now")
        assert (decision.adopt, decision.remove) == ((), found)


def test_a_rank_that_was_edited_by_hand_is_not_adopted_nor_are_its_peers() -> None:
    found = (left("a", 0), replace(left("a", 1), changed="argument 3 (--pool) is '4096'"))
    assert (decide(found, "now").adopt, decide(found, "now").remove) == ((), found)


def test_of_two_gangs_the_newest_is_adopted_and_the_other_removed() -> None:
    old, new = (left("a", 0), left("a", 1)), (left("b", 0), left("b", 1))
    decision = decide((*old, *new), "now")
    assert (decision.adopt, decision.remove) == (new, old)


def test_nothing_left_is_nothing_to_do() -> None:
    assert decide((), "now") == decide((), "other")


def test_only_ranks_of_the_own_folder_are_ours_wherever_it_lies_now() -> None:
    moved = replace(left("a", 0), owner=Owner(OURS.id, "here:/moved"))
    unsaid, theirs = left("b", 0), replace(left("c", 0), owner=THEIRS)
    assert ours((moved, unsaid, theirs), OURS) == (moved, unsaid)
    assert ours((moved, unsaid, theirs), None) == (unsaid,)


def test_another_gang_is_named_while_it_lives() -> None:
    theirs = (replace(left("c", 0), owner=THEIRS), replace(left("c", 1), owner=THEIRS))
    (line,) = beside((left("a", 0), *theirs), OURS, OURS.folder)
    assert all(word in line for word in ("there:/other", "rank 0 of launch c", "rank 1 of launch c", "supervisor stop"))
    assert beside([replace(one, alive=False) for one in theirs], OURS, OURS.folder) == ()


def test_a_gang_of_a_folder_that_was_replaced_is_told_with_what_ends_it() -> None:
    lost = replace(left("c", 0), owner=Owner(THEIRS.id, OURS.folder))
    (line,) = beside([lost], None, OURS.folder)
    assert "launched before here:/state was replaced" in line
    assert "`docker rm -f c0`" in line
