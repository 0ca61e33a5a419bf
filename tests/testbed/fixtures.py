"""The testbed as a pytest fixture: one for a whole run, healed before each test that asks for it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.testbed import bed
from tests.testbed.bed import Testbed
from tests.testbed.layout import Layout

LOCK_WAIT_S = 240.0


@pytest.fixture(scope="session")
def session_testbed() -> Iterator[Testbed]:
    """Two hosts for the whole run; skipped, with the reason, where none can be made."""
    if reason := bed.why_not():
        pytest.skip(reason)
    with bed.own(Layout.here(os.environ), LOCK_WAIT_S) as made:
        yield made


@pytest.fixture
def testbed(session_testbed: Testbed) -> Testbed:
    """The two hosts with every cable whole."""
    session_testbed.heal()
    return session_testbed
