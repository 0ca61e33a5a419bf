"""The status page: one self-contained document that asks /status.json and /history.json and draws what they say.

It loads nothing from anywhere else; the policy that is sent with it allows its own script, by hash, and nothing more.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


@functools.cache
def page() -> bytes:
    """The document, put together from the three files beside this one."""
    html = (FOLDER / "page.html").read_text(encoding="utf-8")
    return html.replace("/*style*/", _text("style.css")).replace("/*script*/", _text("page.js")).encode()


@functools.cache
def policy() -> str:
    """The Content-Security-Policy that goes with it."""
    digest = base64.b64encode(hashlib.sha256(_text("page.js").encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


@functools.cache
def _text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")
