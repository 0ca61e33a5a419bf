"""The fault matrix's figures and their place in the docs."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.soak import results
from bench.soak.__main__ import missing
from bench.soak.kinds import KINDS
from bench.soak.page import replace_part, write_matrix
from bench.soak.table import Circumstances, percentile, table
from bench.soak.trial import Outcome

KIND = KINDS[0]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "faults.md"


def outcomes() -> list[Outcome]:
    times = [0.1, 0.2, 0.9]
    return [Outcome(KIND, safe_s=one, serving_s=one + 4, reason="rank exit", seed=1) for one in times] + [
        Outcome(KIND, reason="rank exit", complaints=["a client hung for 61 s"], seed=2)
    ]


@pytest.mark.parametrize(("share", "value"), [(0.5, 2.0), (0.99, 4.0), (0.01, 1.0), (1.0, 4.0)])
def test_a_percentile_is_a_value_that_was_seen(share: float, value: float) -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], share) == value


def test_a_row_counts_trials_those_that_held_and_how_the_launch_ended() -> None:
    row = table(outcomes()).splitlines()[-1]
    assert row == f"| {KIND.name} | {KIND.expect.value} | 4 | 3 | rank exit (4) | 0.20 / 0.90 | 4.20 / 4.90 |"


def test_a_run_replaces_its_part_of_the_page_and_names_what_did_not_hold(tmp_path: Path) -> None:
    page = tmp_path / "faults.md"
    page.write_text(PAGE.read_text())
    before = page.read_text()
    for _ in range(2):
        write_matrix(page, outcomes(), Circumstances(clients=3, cores=2))
    text = page.read_text()
    assert text.count("4 trials of 1 kinds, 3 held; seeds 1, 2;") == 1
    assert f"- {KIND.name}: a client hung for 61 s" in text
    assert text.partition("<!-- matrix -->")[0] == before.partition("<!-- matrix -->")[0]
    assert text.partition("<!-- end of matrix -->")[2] == before.partition("<!-- end of matrix -->")[2]


def test_trials_are_kept_in_files_and_a_half_written_line_counts_for_nothing(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    strange = ['{"a": 1}', "[1]", "3", '{"fault": ["x"]}', f'{{"fault": "{KIND.name}"}}', "\xff", '{"fault": "half']
    first.write_text("\n".join(strange))
    for path, made in ((first, outcomes()[:3]), (second, outcomes()[3:])):
        for one in made:
            results.append(path, one)
    assert results.read([first, second, tmp_path / "none"], KINDS) == outcomes()
    assert results.read([first, second], KINDS[1:]) == []


def test_the_rounds_that_are_left_hold_what_each_kind_still_wants() -> None:
    first, second = KINDS[:2]
    assert missing([first, second], {first.name: 2, second.name: 1}, 3) == [[second], [first, second]]
    assert missing([first, second], {first.name: 3, second.name: 4}, 3) == []


def test_a_page_without_marks_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing\n")
    with pytest.raises(ValueError, match="lacks the marks"):
        replace_part(page, "soak", "text")
