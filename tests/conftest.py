"""Fixtures that every kind of test may ask for."""

from __future__ import annotations

import functools
import os
import signal
from pathlib import Path
from typing import Any

import hypothesis
import pytest

pytest_plugins = ["tests.testbed.fixtures"]

# Times are the machine's: one that builds or tests beside this would fail examples that are right.
# Examples are the same in every run, so that a change's tests judge the change. Before a release, and after a change of a pure
# core, HYPOTHESIS_PROFILE=search looks for new ones.
hypothesis.settings.register_profile(
    "shared", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], derandomize=True, database=None
)
hypothesis.settings.register_profile(
    "search", hypothesis.settings.get_profile("shared"), derandomize=False, max_examples=3000, print_blob=True
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "shared"))

# A shell gives its background jobs SIGINT ignored, and every program of a test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


MARK = "mark.testbed"


@functools.cache
def of_the_testbed(file: Path) -> bool:
    """Whether tests of this file may need the testbed: it names the mark, or takes it from a module of tests/testing that does.

    Told from the text: whoever shares the tests out among workers knows no more of them than their names.
    """
    text = file.read_text()
    shared = [one.stem for one in (file.parents[1] / "testing").glob("*.py") if MARK in one.read_text()]
    return MARK in text or any(f"tests.testing.{name} import" in text for name in shared)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """No test of the testbed may be one that the sharing out does not know as such: two workers would want the one testbed."""
    for item in items:
        if item.get_closest_marker("testbed") and not of_the_testbed(item.path):
            raise pytest.UsageError(f"{item.nodeid} needs the testbed, and its file does not say {MARK}")


@pytest.hookimpl(optionalhook=True)  # pytest-xdist's
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Of several workers one takes a file whole, for its fixtures' sake, and one alone all files of the testbed: there is one."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc] # untyped
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "testbed" if of_the_testbed(config.rootpath / file) else file

    return ByFile(config, log)
