"""Fixtures that every kind of test may ask for."""

from __future__ import annotations

pytest_plugins = ["tests.testbed.fixtures"]
