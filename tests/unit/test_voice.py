"""The supervisor's own log, for people and for journals."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime

import pytest

from supervisor import voice

AT = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def said(form: voice.Form) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    one = voice.TextVoice(out, err, form=form, now=lambda: AT)
    one.say("first")
    one.say("second\nline", "warning")
    one.say("not shown", "debug")
    one.ready("m", "http://127.0.0.1:1/v1")
    return out.getvalue(), err.getvalue()


def test_people_read_text() -> None:
    out, err = said(voice.Text())
    assert out == "READY m http://127.0.0.1:1/v1\n"
    assert err == "2026-01-31T12:00:00Z first\n2026-01-31T12:00:00Z warning: second line\n"


def test_programs_read_one_object_a_line() -> None:
    out, err = said(voice.Json())
    first, second = [json.loads(line) for line in err.splitlines()]
    assert first == {"time": "2026-01-31T12:00:00.000000Z", "level": "info", "message": "first"}
    assert (second["level"], second["message"]) == ("warning", "second\nline")
    ready = json.loads(out)
    assert (ready["model"], ready["url"]) == ("m", "http://127.0.0.1:1/v1")


@pytest.mark.parametrize(
    ("setting", "environ", "terminal", "form"),
    [
        ("auto", {"JOURNAL_STREAM": "8:1"}, False, voice.Json),
        ("auto", {"JOURNAL_STREAM": "8:1"}, True, voice.Text),
        ("auto", {}, False, voice.Text),
        ("json", {}, True, voice.Json),
        ("text", {"NOTIFY_SOCKET": "/n"}, False, voice.Text),
    ],
)
def test_auto_is_json_where_a_journal_reads(setting: str, environ: dict[str, str], terminal: bool, form: type) -> None:
    assert isinstance(voice.form(setting, environ, terminal=terminal), form)


def test_a_reader_that_has_gone_stops_nothing() -> None:
    gone = io.StringIO()
    gone.close()
    voice.TextVoice(gone, gone).say("nobody hears this")
