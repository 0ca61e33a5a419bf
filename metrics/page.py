"""The status page: one self-contained HTML document made of a snapshot's status, for people without Grafana.

It follows the system's light or dark colours, loads nothing from anywhere, and asks for itself again every two seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from metrics.readings import Snapshot

_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="2">
<meta name="viewport" content="width=device-width,initial-scale=1"><title>twinfold</title>
<style>
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.3rem}h2{font-size:1rem;margin:1.5rem 0 .3rem}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.2rem .8rem .2rem 0;border-bottom:1px solid color-mix(in srgb,currentColor 15%,transparent)}
td{font-variant-numeric:tabular-nums}th{font-weight:600}
</style></head><body>
"""


def page(snapshot: Snapshot, age_s: float) -> bytes:
    """The document. Scalars of the status come first, then each mapping and each list of mappings under its name."""
    state = "ready" if snapshot.ready else f"not ready: {snapshot.why}" if snapshot.why else "not ready"
    scalars = {key: value for key, value in snapshot.status.items() if not _nested(value)}
    nested = {key: value for key, value in snapshot.status.items() if _nested(value)}
    body = [f"<h1>twinfold: {escape(state)}</h1>", _pairs({**scalars, "age": f"{age_s:.1f} s"})]
    body += [
        f"<h2>{escape(_words(key))}</h2>" + (_pairs(value) if isinstance(value, Mapping) else _rows(value))
        for key, value in nested.items()
    ]
    links = '<p><a href="/metrics">metrics</a> · <a href="/status.json">status.json</a></p></body></html>\n'
    return (_HEAD + "\n".join(body) + links).encode()


def _nested(value: Any) -> bool:
    return isinstance(value, (Mapping, list, tuple))


def _pairs(table: Mapping[str, Any]) -> str:
    return (
        "<table>"
        + "".join(f"<tr><th>{escape(_words(key))}</th><td>{_cell(value, key)}</td></tr>" for key, value in table.items())
        + "</table>"
    )


def _rows(items: Sequence[Any]) -> str:
    if not all(isinstance(item, Mapping) for item in items):
        return "<table>" + "".join(f"<tr><td>{_cell(item)}</td></tr>" for item in items) + "</table>"
    columns = list(dict.fromkeys(key for item in items for key in item))
    head = "".join(f"<th>{escape(_words(column))}</th>" for column in columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{_cell(item.get(column), column)}</td>" for column in columns) + "</tr>" for item in items
    )
    return f"<table><tr>{head}</tr>{rows}</table>"


def _cell(value: Any, key: str = "") -> str:
    """A value as text: bytes as GiB, by the unit in its key."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and "bytes" in key:
        return f"{value / (1 << 30):,.2f}"
    return escape(f"{value:,.1f}" if isinstance(value, float) else str(value))


def _words(key: str) -> str:
    return key.replace("bytes", "GiB").replace("_per_s", "/s").replace("_", " ")
