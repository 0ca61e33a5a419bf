"""The drawn machine, and the table that it is drawn from."""

from __future__ import annotations

import pytest

from supervisor.machine import IGNORED, Phase, types
from supervisor.machine.diagram import EVENTS, document, transitions
from supervisor.machine.table import TABLE
from supervisor.machine.types import Event, LaunchEvent, PolicyChanged, RankEvent
from tests.testing.checkout import CHECKOUT

DOCS = CHECKOUT / "docs" / "machine.md"


def test_the_drawing_in_the_docs_is_current() -> None:
    assert DOCS.read_text(encoding="utf-8") == document(), "run: python -m supervisor.machine.diagram > docs/machine.md"


def test_every_event_is_drawn() -> None:
    kinds = {kind for kind in vars(types).values() if isinstance(kind, type) and issubclass(kind, Event)}
    kinds -= {Event, LaunchEvent, RankEvent}  # those of which the others are made
    assert {type(event) for _, event in EVENTS} == kinds
    assert {kind for row in TABLE.values() for kind in row} == kinds - {PolicyChanged}


@pytest.mark.parametrize("phase", Phase)
def test_an_event_is_acted_on_or_ignored_and_never_both(phase: Phase) -> None:
    assert not [kind for kind in TABLE[phase] if (phase, kind) in IGNORED]


def test_every_phase_is_reached_and_only_ends_have_no_way_out() -> None:
    arrows = transitions()
    assert {there for _, there in arrows} == {phase.value for phase in Phase}
    assert {phase.value for phase in Phase} - {here for here, _ in arrows} == {"gave_up", "handed_over"}


def test_nothing_starts_again_but_from_a_phase_in_which_no_rank_can_live() -> None:
    assert {here for here, there in transitions() if there == "gating"} == {"stopped", "clearing", "pausing"}
    assert {here for here, there in transitions() if there == "launching"} == {"gating"}
