"""Plans of changed settings, and the watch on their files."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from build.errors import Refused
from build.settings import Sources
from supervisor.configuration import Configuration, configure
from supervisor.machine import Phase, Policy, State, step
from supervisor.machine.types import PolicyChanged
from supervisor.reload.plan import plan
from supervisor.reload.watch import ReloadWatch


def configured(tmp_path: Path, **flags: object) -> Configuration:
    return configure(Sources(None, {}, {"state_dir": str(tmp_path), **flags}))


def test_a_change_is_split_into_what_counts_at_once_and_what_waits(tmp_path: Path) -> None:
    now = configured(tmp_path)
    wanted = configured(tmp_path, stop_timeout=7, log_keep=3, probe_misses=9, parallel=2, min_avail_gib=5)
    found = plan(now, wanted)
    assert {one.name for one in found.live} == {"stop_timeout", "log_keep", "probe_misses"}
    assert {one.name for one in found.restart} == {"parallel", "min_avail_gib"}
    taken = found.taken
    assert (taken.serve.stop_timeout, taken.logs.log_keep, taken.probes.probe_misses) == (7, 3, 9)
    assert (taken.serve.parallel, taken.memory) == (now.serve.parallel, now.memory)
    assert taken.origins["stop_timeout"].kind == "flag"
    assert taken.origins["parallel"].kind == "default"


@pytest.mark.parametrize(("name", "value"), [("metrics_port", 1), ("runner", "docker"), ("state_dir", "/elsewhere")])
def test_what_the_supervisor_itself_runs_by_is_refused(tmp_path: Path, name: str, value: object) -> None:
    with pytest.raises(Refused, match=f"{name} cannot change"):
        plan(configured(tmp_path), configured(tmp_path, **{name: value}))


def test_the_watch_sees_a_file_written_replaced_and_removed(tmp_path: Path) -> None:
    seen = threading.Semaphore(0)
    file = tmp_path / "config.toml"
    watch = ReloadWatch([file], seen.release)
    watch.start()
    try:
        assert seen.acquire(timeout=20)
        file.write_text("a = 1")
        assert seen.acquire(timeout=20)
        (tmp_path / "new").write_text("a = 22")
        (tmp_path / "new").replace(file)
        assert seen.acquire(timeout=20)
        file.unlink()
        assert seen.acquire(timeout=20)
    finally:
        watch.stop()
        watch.join(20)


def test_a_new_policy_keeps_the_world_and_shortens_a_pause_under_way() -> None:
    paused = State(Policy(2, pause_first_s=100.0), phase=Phase.PAUSING, since_s=50.0, failures=1, resume_at_s=150.0)
    after, effects = step(paused, PolicyChanged(60.0, replace(Policy(4), pause_first_s=1.0)))
    assert effects == ()
    assert after.policy.world_size == 2
    assert 50.0 < after.resume_at_s <= 51.0
