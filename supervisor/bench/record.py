"""The last recorded bench of each target and variant, in the state folder, and what ``supervisor status`` says of it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from build.store import durable

FOLDER = "bench"


def keep(state_dir: Path, report: Mapping[str, Any]) -> Path:
    """Write a report of the own gang down, in place of the one before; where it lies."""
    folder = state_dir / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _name(report["gang"])
    durable.replace_file(path, (json.dumps(report, indent=1) + "\n").encode())
    return path


def kept(state_dir: Path, gang: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The recorded bench of this target and variant; None where there is none that can be read."""
    try:
        found = json.loads((state_dir / FOLDER / _name(gang)).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("schema") == 1 else None


def of_bundle(report: Mapping[str, Any] | None, bundle: str) -> Mapping[str, Any] | None:
    """The report where it is this bundle's; tokens of another one are not expected to be the same."""
    return report if report is not None and report["gang"]["bundle"] == bundle else None


def summary(report: Mapping[str, Any], bundle: str) -> dict[str, Any]:
    """What ``supervisor status --json`` says of a recorded bench: whose figures they are, and the medians in tokens/s."""
    return {
        "began_unix_s": report["began_unix_s"],
        "bundle": report["gang"]["bundle"],
        "of_what_is_served": report["gang"]["bundle"] == bundle,
        "decode": [{**_of(one, "prompts", "streams"), "median_tokens_per_s": _rate(one)} for one in report["decode"]],
        "prefill": [{**_of(one, "prefill_tokens"), "median_tokens_per_s": _rate(one)} for one in report["prefill"]],
    }


def as_text(report: Mapping[str, Any], bundle: str) -> str:
    """One line for ``supervisor status``: the rates, when they were measured, and whose they are."""
    rates = [f"{one['prompts']} x{one['streams']} {_median(one)}" for one in report["decode"]]
    rates += [f"prefill {one['prefill_tokens'] // 1024}K {_median(one)}" for one in report["prefill"][-1:]]
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(report["began_unix_s"]))
    other = (
        ""
        if report["gang"]["bundle"] == bundle
        else f"; of another bundle ({report['gang']['bundle']}), not of what is served now"
    )
    return f"measured {when} UTC: {', '.join(rates) or 'nothing'} tokens/s{other}"


def _of(one: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: one[name] for name in names}


def _rate(one: Mapping[str, Any]) -> float | None:
    rate = one["tokens_per_s"]
    return None if rate is None else float(rate["median"])


def _median(one: Mapping[str, Any]) -> str:
    rate = _rate(one)
    return "-" if rate is None else f"{rate:.1f}" if rate < 1000 else f"{rate:.0f}"


def _name(gang: Mapping[str, Any]) -> str:
    return f"{gang['target']}-{gang['variant']}.json"
