"""What is told of the served bundle's builds, and since when the store is known to be right."""

from __future__ import annotations

import os
from pathlib import Path

from build.store.verified import note_verified, verified_unix_s
from supervisor.status.built import built
from tests.testing.toy import built as toy


def test_every_artefact_of_the_bundle_is_told_with_its_size_and_time(tmp_path: Path) -> None:
    state = toy(tmp_path, "abc").state
    entry = next(path.stem for path in (state / "store").glob("*-bundle.json"))
    told = {one.name: one for one in built(state, state / "store", entry).artefacts}
    assert {"bundle", "words", "code", "shouted"} <= set(told)
    assert told["words"].size_bytes == 3
    assert all(one.duration_s >= 0 for one in told.values())


def test_the_store_counts_as_right_from_its_last_verification_or_the_bundles_making(tmp_path: Path) -> None:
    state = toy(tmp_path, "abc").state
    entry = next(path.stem for path in (state / "store").glob("*-bundle.json"))
    made = (state / "store" / f"{entry}.json").stat().st_mtime
    assert verified_unix_s(state) is None
    assert built(state, state / "store", entry).verified_unix_s == made
    note_verified(state)
    os.utime(state / "verified", (made + 50, made + 50))
    assert built(state, state / "store", entry).verified_unix_s == made + 50
    os.utime(state / "verified", (made - 50, made - 50))
    assert built(state, state / "store", entry).verified_unix_s == made


def test_records_that_are_gone_are_left_out(tmp_path: Path) -> None:
    told = built(tmp_path, tmp_path / "store", "0" * 32 + "-bundle")
    assert (told.artefacts, told.verified_unix_s) == ((), None)
