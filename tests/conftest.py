"""Fixtures that every kind of test may ask for."""

from __future__ import annotations

import signal

import hypothesis
import pytest

pytest_plugins = ["tests.testbed.fixtures"]

# Times are the machine's: one that builds or tests beside this would fail examples that are right.
hypothesis.settings.register_profile("shared", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("shared")

# A shell gives its background jobs SIGINT ignored, and every program of a test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of several workers one takes a file whole, for its fixtures' sake, and one alone all tests of the testbed: there is one."""
    for item in items:
        shared = item.get_closest_marker("testbed") is not None
        item.add_marker(pytest.mark.xdist_group("testbed" if shared else item.path.name))
