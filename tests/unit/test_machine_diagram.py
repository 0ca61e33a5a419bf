"""The drawn machine."""

from __future__ import annotations

from supervisor.machine import Phase
from supervisor.machine.diagram import EVENTS, document, transitions
from supervisor.machine.step import _HANDLERS
from tests.testing.checkout import CHECKOUT

DOCS = CHECKOUT / "docs" / "machine.md"


def test_the_drawing_in_the_docs_is_current() -> None:
    assert DOCS.read_text(encoding="utf-8") == document(), "run: python -m supervisor.machine.diagram > docs/machine.md"


def test_every_event_is_drawn() -> None:
    assert {type(event) for _, event in EVENTS} == set(_HANDLERS)


def test_every_phase_is_reached_and_only_ends_have_no_way_out() -> None:
    arrows = transitions()
    assert {there for _, there in arrows} == {phase.value for phase in Phase}
    assert {phase.value for phase in Phase} - {here for here, _ in arrows} == {"gave_up", "handed_over"}


def test_nothing_starts_again_but_from_a_phase_in_which_no_rank_can_live() -> None:
    assert {here for here, there in transitions() if there == "gating"} == {"stopped", "clearing", "pausing"}
    assert {here for here, there in transitions() if there == "launching"} == {"gating"}
