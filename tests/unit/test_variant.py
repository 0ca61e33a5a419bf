"""The abliterated variant at the supervisor's side: the generation that a launch takes, and what status says of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from build.errors import Refused
from build.settings import Places, Sources
from build.store import generations
from supervisor.configuration import Configuration, configure
from supervisor.gang import outside
from supervisor.status.text import OTHER_VARIANT, as_text


class Generation:
    """What choosing asks of one."""

    def __init__(self, number: int, variant: str) -> None:
        self.number = number
        self.bundle = type("Bundle", (), {"variant": variant})()


def configuration(tmp_path: Path, *, ablit: bool) -> Configuration:
    one = configure(Sources(None, {"TWINFOLD_STATE_DIR": str(tmp_path)}))
    return replace(one, places=Places(target="t", ablit=ablit))


@pytest.mark.parametrize(("ablit", "current", "taken"), [(True, 3, 3), (False, 3, 2), (False, 2, 2), (True, 2, 3)])
def test_a_launch_takes_the_newest_generation_of_its_variant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ablit: bool, current: int, taken: int
) -> None:
    made: list[Any] = [Generation(1, "base"), Generation(2, "base"), Generation(3, "ablit")]
    monkeypatch.setattr(generations, "current", lambda *_: made[current - 1])
    monkeypatch.setattr(generations, "every", lambda *_: tuple(made))
    assert outside.of_variant(configuration(tmp_path, ablit=ablit)).number == taken


def test_a_variant_that_was_never_built_is_refused_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = Generation(1, "base")
    monkeypatch.setattr(generations, "current", lambda *_: made)
    monkeypatch.setattr(generations, "every", lambda *_: (made,))
    with pytest.raises(Refused, match="run `doit target=t ablit=1`"):
        outside.of_variant(configuration(tmp_path, ablit=True))


@pytest.mark.parametrize(("variant", "said"), [("base", False), ("ablit", True)])
def test_status_says_that_figures_of_the_original_do_not_validate_the_variant(variant: str, said: bool) -> None:
    status = {
        "state": "ready", "url": "http://x/v1", "served_name": "n", "context_tokens": 1, "target": "t", "generation": 1,
        "launch": 1, "launch_id": "a", "variant": variant,
    }  # fmt: skip
    assert (OTHER_VARIANT in as_text(status)) == said
