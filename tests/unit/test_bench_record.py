"""The bench that is kept in the state folder, and what status says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from supervisor.bench import record

GANG = {"target": "demo", "generation": 1, "bundle": "abc-bundle", "variant": "base", "launch_id": "x"}


def report(**more: object) -> dict[str, Any]:
    def spread(rate: float) -> dict[str, float]:
        return {"median": rate, "lowest": rate, "highest": rate, "count": 3}

    return {
        "schema": 1,
        "began_unix_s": 1796048309.0,
        "gang": GANG,
        "decode": [
            {"prompts": "prose", "streams": 1, "tokens_per_s": spread(74.9)},
            {"prompts": "code", "streams": 4, "tokens_per_s": None},
        ],
        "prefill": [{"prefill_tokens": 262144, "tokens_per_s": spread(2100.0)}],
        **more,
    }


def test_a_kept_bench_is_found_again_by_target_and_variant(tmp_path: Path) -> None:
    record.keep(tmp_path, report())
    path = record.keep(tmp_path, report(took_s=1))
    assert path == tmp_path / "bench" / "demo-base.json"
    assert record.kept(tmp_path, GANG) == report(took_s=1)
    assert record.kept(tmp_path, {**GANG, "variant": "ablit"}) is None
    assert [one.name for one in path.parent.iterdir()] == ["demo-base.json"]


def test_what_cannot_be_read_or_is_of_another_form_is_none(tmp_path: Path) -> None:
    path = record.keep(tmp_path, report())
    for content in ("", "[]", '{"schema": 2}', "{"):
        path.write_text(content)
        assert record.kept(tmp_path, GANG) is None


def test_figures_say_when_they_are_of_another_bundle() -> None:
    assert record.as_text(report(), "abc-bundle") == (
        "measured 2026-11-30 14:18 UTC: prose x1 74.9, code x4 -, prefill 256K 2100 tokens/s"
    )
    assert record.as_text(report(), "new-bundle").endswith("; of another bundle (abc-bundle), not of what is served now")
    assert record.summary(report(), "new-bundle")["of_what_is_served"] is False
    assert record.of_bundle(report(), "abc-bundle") == report()
    assert record.of_bundle(report(), "new-bundle") is None
    assert record.of_bundle(None, "abc-bundle") is None
