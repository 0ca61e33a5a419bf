"""Fixtures that every kind of test may ask for."""

from __future__ import annotations

import signal
from typing import Any

import hypothesis
import pytest

pytest_plugins = ["tests.testbed.fixtures"]

# Times are the machine's: one that builds or tests beside this would fail examples that are right.
hypothesis.settings.register_profile("shared", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("shared")

# A shell gives its background jobs SIGINT ignored, and every program of a test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)  # pytest-xdist's
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Of several workers one takes a file whole, for its fixtures' sake, and one alone all files of the testbed: there is one."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc] # untyped
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "testbed" if "mark.testbed" in (config.rootpath / file).read_text() else file

    return ByFile(config, log)
