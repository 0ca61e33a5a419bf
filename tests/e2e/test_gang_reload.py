"""Settings that change under a serving gang: what counts at once, what waits, what is refused."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from build.store import generations
from tests.testing.checkout import CHECKOUT
from tests.testing.demo import demo_state
from tests.testing.supervised import Supervised, kill
from tests.testing.waiting import until

pytestmark = pytest.mark.timeout(1500)
PROGRAM = """
import sys
from pathlib import Path
from supervisor import cli
cli.CHECKOUT = Path(sys.argv.pop(1))
sys.exit(cli.main())
"""
BAD = (
    ("restart_limit = 3\nparalel = 1\n", "did you mean parallel"),
    ('restart_limit = 3\nlog_format = "json"\n', "log_format cannot change while the supervisor runs"),
    ("= =\n", "TOML"),
)
SOON_S = 10.0  # ten times the goal


class Reloaded(Supervised):
    """A gang whose config.toml lies in a folder of the test's own."""

    def argv(self, *args: str) -> list[str]:
        return [sys.executable, "-c", PROGRAM, str(self.folder), *args]

    def configure(self, text: str) -> float:
        (self.folder / "config.toml").write_text(text)
        return time.monotonic()


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Reloaded]:
    gang = Reloaded(demo_state(tmp_path), tmp_path)
    del gang.env["TWINFOLD_MIN_AVAIL_GIB"]
    gang.configure("min_avail_gib = 0.25\n")
    try:
        yield gang
    finally:
        gang.configure("")
        gang.close()


def test_live_settings_count_at_once_others_wait_and_a_bad_file_changes_nothing(gang: Reloaded) -> None:
    gang.start().wait_ready()
    ranks = gang.pids()
    at_s = gang.configure("min_avail_gib = 0.25\nrestart_limit = 0\nparallel = 2\n")
    until("the plan", lambda: "settings that count from now on: restart_limit: 5 -> 0" in gang.err, SOON_S)
    assert time.monotonic() - at_s < SOON_S
    until("what waits", lambda: "waiting for `supervisor restart`: parallel: 4 -> 2" in gang.err, SOON_S)
    until("the status", lambda: any("parallel: 4 -> 2" in one for one in gang.status()["reload"]["waiting"]), SOON_S)
    assert "waits for a restart: parallel: 4 -> 2" in gang.command("status").stdout
    for bad, why in BAD:
        gang.configure(bad)
        until("the refusal", lambda why=why: why in gang.status()["reload"]["refused"], SOON_S)
    until("the metric", lambda: gang.series("twinfold_settings_refused") == {"twinfold_settings_refused": 1.0}, SOON_S)
    assert gang.pids() == ranks
    assert gang.ask("What is 6 times 7?")[0] == 200
    kill(ranks[1])
    assert gang.ended() == 5  # restart_limit = 0 counts, and the bad file's 3 does not


def test_a_restart_takes_what_waits_the_floor_and_the_launch_time_among_it(gang: Reloaded) -> None:
    gang.start().wait_ready()
    gang.configure("min_avail_gib = 0.5\nwait_timeout = 777\n")
    until("what waits", lambda: len(gang.status()["reload"]["waiting"]) == 2, SOON_S)
    assert gang.series("twinfold_settings_waiting") == {"twinfold_settings_waiting": 2.0}
    assert gang.status()["memory"][0]["floor_bytes"] == 1 << 28
    done = gang.command("restart")
    assert done.returncode == 0, done.stderr
    gang.wait_state("serving", launch=2)
    until("a sample against the new floor", lambda: gang.status()["memory"][0]["floor_bytes"] == 1 << 29)
    assert gang.status()["reload"] == {"refused": "", "waiting": []}


def test_reload_restart_relaunches_by_itself(gang: Reloaded) -> None:
    gang.start().wait_ready()
    gang.configure('min_avail_gib = 0.25\nparallel = 2\nreload = "restart"\n')
    gang.wait_ready(times=2)
    assert gang.wait_state("serving", launch=2)["restarts"] == [{"reason": "asked", "count": 1}]


@pytest.mark.parametrize("bad", ["= =\n", "nonsense = 7\n"])
def test_a_gang_is_reached_and_stopped_though_its_settings_cannot_be_taken(gang: Reloaded, bad: str) -> None:
    gang.start().wait_ready()
    gang.configure(bad)
    shown = gang.command("status")
    assert shown.returncode == 0, shown.stderr
    assert "serving" in shown.stdout
    assert "warning: " in shown.stderr
    assert f"this goes to the supervisor of {gang.state} all the same" in shown.stderr
    assert gang.command("restart").returncode == 2
    assert gang.command("stop").returncode == 0
    assert gang.ended() == 0
    assert "stopped: no rank is left" in gang.err
    alone = gang.command("stop")
    assert alone.returncode == 2, "nothing serves: the file's own trouble is the answer"


@pytest.mark.parametrize(("rest", "code"), [("nonsense = 7\n", 0), ("= =\n", 2)], ids=["said", "not to be known"])
def test_a_state_folder_that_a_bad_file_names_is_the_one_that_counts(gang: Reloaded, rest: str, code: int) -> None:
    gang.start().wait_ready()
    gang.configure(f'state_dir = "{gang.state}"\n{rest}')
    found = gang.env.pop("TWINFOLD_STATE_DIR")
    shown = gang.command("status")
    gang.env["TWINFOLD_STATE_DIR"] = found
    assert shown.returncode == code, shown.stderr
    assert ("serving" in shown.stdout) is (code == 0)


def test_a_restart_that_is_stopped_before_the_new_launch_serves_says_so(gang: Reloaded) -> None:
    gang.start().wait_ready()
    env = gang.env | {"TWINFOLD_LAUNCH_GATE_GIB": "4096", "TWINFOLD_GATE_WAIT_S": "600"}
    with subprocess.Popen(gang.argv("restart"), cwd=CHECKOUT, env=env, stderr=subprocess.PIPE, text=True) as restart:
        gang.wait_state("gating", launch=2)
        assert gang.status()["launch_id"] == "", "the old launch's id is not the new one's"
        gang.signal(signal.SIGTERM)
        assert gang.ended() == 0
        _, said = restart.communicate(timeout=60)
    assert restart.returncode == 1
    assert "before the new launch served" in said


def another_generation(state: Path) -> None:
    """Make a generation of a bundle that differs by its entry alone. The store becomes a folder of links of this test's own."""
    shared, entry = (state / "store").resolve(), generations.current(state, "demo").bundle_entry
    other = "0" * 32 + "-bundle"
    links = state / "links"
    links.mkdir()
    for one in shared.iterdir():
        (links / one.name).symlink_to(one)
    shutil.copytree(shared / entry, links / other)
    shutil.copy(shared / f"{entry}.json", links / f"{other}.json")
    (state / "store").unlink()
    links.rename(state / "store")
    generations.make(state, "demo", other)


def test_a_newer_generation_waits_for_a_restart_and_a_damaged_lock_changes_nothing(gang: Reloaded) -> None:
    lock = gang.folder / "lockfiles" / "demo.lock.toml"
    lock.parent.mkdir()
    gang.start().wait_ready()
    ranks = gang.pids()
    another_generation(gang.state)
    until("the newer generation", lambda: gang.status()["reload"]["waiting"] == ["generation: 1 -> 2 (current)"], SOON_S)
    lock.write_text("= =\n")
    until("the refusal", lambda: "demo.lock.toml" in gang.status()["reload"]["refused"], SOON_S)
    assert gang.pids() == ranks
    lock.unlink()
    until("its end", lambda: not gang.status()["reload"]["refused"], SOON_S)
    assert gang.status()["reload"]["waiting"] == ["generation: 1 -> 2 (current)"]
    assert gang.command("restart").returncode == 0
    status = gang.wait_state("serving", launch=2)
    assert status["generation"] == 2
    until("nothing that waits", lambda: gang.status()["reload"] == {"refused": "", "waiting": []}, SOON_S)


def test_reload_restart_takes_a_newer_generation_by_itself(gang: Reloaded) -> None:
    gang.configure('min_avail_gib = 0.25\nreload = "restart"\n')
    gang.start().wait_ready()
    another_generation(gang.state)
    gang.wait_ready(times=2)
    assert gang.wait_state("serving", launch=2)["generation"] == 2
