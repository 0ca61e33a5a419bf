"""What doit's start costs a build that has nothing to do: modules and looks that such a build has no use for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from build.commands import hasten, is_program
from tests.testing.checkout import CHECKOUT
from tests.testing.demo import environment

# Runs `doit list` as a program would be run, and tells what it has loaded and how often it listed the installed distributions.
WATCHED = """
import importlib.metadata, json, os, runpy, sys
looks = []
real = importlib.metadata.entry_points
importlib.metadata.entry_points = lambda **asked: (looks.append(asked["group"]), real(**asked))[1]
leave = os._exit
def told(code):
    sys.stderr.write(json.dumps({"looks": looks, "modules": sorted(sys.modules)}))
    sys.stderr.flush()
    leave(code)
os._exit = told
sys.argv = ["doit", "list"]
sys.path[0] = ""
try:
    runpy.run_module("doit", run_name="__main__", alter_sys=True)
finally:
    told(0)
"""
HEAVY = {
    "docker", "plumbum", "huggingface_hub", "tomlkit", "watchdog", "prometheus_client", "supervisor",
    "asyncio", "http.client", "concurrent.futures", "build.replication", "build.hub.cache", "build.bundle",
}  # fmt: skip


def test_nothing_is_loaded_that_only_work_needs_and_distributions_are_listed_once(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WATCHED],
        cwd=CHECKOUT, env=environment(tmp_path), capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    told = json.loads(done.stderr)
    assert "generation" in done.stdout
    assert HEAVY & set(told["modules"]) == set()
    assert told["looks"] == ["doit.COMMAND"]  # before the first command of ours is known


def test_a_process_that_is_not_doit_keeps_its_collector_and_doits_plugins() -> None:
    import gc

    assert not is_program()
    assert gc.isenabled()


def test_doit_still_asks_for_entry_points_where_we_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    from doit import plugin

    monkeypatch.setattr(plugin, "entry_points_impl", plugin.entry_points_impl)
    monkeypatch.setattr("gc.disable", lambda: None)
    hasten()
    found = plugin.PluginDict()
    found.add_plugins({"BACKEND": {"twinfold": "build.commands.database:StoreDecides"}}, "BACKEND")
    assert list(found) == ["twinfold"]
