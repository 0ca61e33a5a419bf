"""The abliterated variant at the supervisor's side: the generation that a launch takes, and what status says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from build.bundle import OTHER_VARIANT, Bundle, Engine, StoreRef, to_json
from build.errors import Refused
from build.settings import Sources
from build.store import generations
from supervisor.configuration import configure
from supervisor.doctor.inquiry import inquire
from supervisor.status.text import as_text

REF = StoreRef(f"{0:032x}-thing")


def bundle(variant: str) -> Bundle:
    """A bundle whose variant is all that matters here."""
    return Bundle(
        target="t", variant=variant, served_name="t", world_size=2, window_tokens=65536, prefill_tokens_per_s=20_000,
        engine=Engine(REF, REF, REF, REF), model=REF, rank_caches=(REF, REF), rank_cache_bytes=(1, 1), kit=REF, token_map=REF,
    )  # fmt: skip


def made(state: Path, *variants: str) -> None:
    """Generations of bundles of these variants, in this order; the last is current."""
    for number, variant in enumerate(variants, 1):
        folder = state / "store" / f"{number:032x}-bundle"
        folder.mkdir(parents=True)
        (folder / "bundle.json").write_text(to_json(bundle(variant)), encoding="utf-8")
        generations.make(state, "t", folder.name)


@pytest.mark.parametrize(("variant", "current", "taken"), [("ablit", 3, 3), ("base", 3, 2), ("base", 1, 1), ("ablit", 2, 3)])
def test_a_launch_takes_the_newest_generation_of_its_variant(tmp_path: Path, variant: str, current: int, taken: int) -> None:
    made(tmp_path, "base", "base", "ablit")
    generations.select(tmp_path, "t", current)
    assert generations.chosen(tmp_path, "t", variant).number == taken
    assert generations.chosen_or_none(tmp_path, "t", variant) == generations.chosen(tmp_path, "t", variant)


def test_a_variant_that_was_never_built_is_refused_with_the_command(tmp_path: Path) -> None:
    made(tmp_path, "base")
    with pytest.raises(Refused, match="run `doit target=t ablit=1`"):
        generations.chosen(tmp_path, "t", "ablit")
    assert generations.chosen_or_none(tmp_path, "t", "ablit") is None


@pytest.mark.parametrize(("ablit", "number"), [(False, 1), (True, 2)])
def test_who_asks_about_the_gang_speaks_of_the_generation_that_it_serves(tmp_path: Path, ablit: bool, number: int) -> None:
    made(tmp_path, "base", "ablit")
    environ = {"TWINFOLD_STATE_DIR": str(tmp_path), "TWINFOLD_TARGET": "t", "ABLIT": str(int(ablit))}
    generation = inquire(configure(Sources(None, environ))).generation
    assert generation is not None
    assert generation.number == number


@pytest.mark.parametrize(("variant", "said"), [("base", False), ("ablit", True)])
def test_status_says_that_figures_of_the_original_do_not_validate_the_variant(variant: str, said: bool) -> None:
    status = {
        "state": "ready", "url": "http://x/v1", "served_name": "n", "context_tokens": 1, "target": "t", "generation": 1,
        "launch": 1, "launch_id": "a", "variant": variant,
    }  # fmt: skip
    assert (OTHER_VARIANT in as_text(status)) == said
