"""A state folder that is removed under a gang that serves."""

from __future__ import annotations

import gzip
import shutil
import signal
from pathlib import Path

from supervisor.runners.process import LOST
from tests.testing.demo import QUESTION, demo_state
from tests.testing.supervised import Supervised
from tests.testing.waiting import exists, until


def test_the_gang_serves_on_and_says_so_and_a_signal_ends_it_in_order(tmp_path: Path) -> None:
    gang = Supervised(demo_state(tmp_path), tmp_path)
    try:
        gang.start().wait_ready()
        pids = gang.pids().values()
        assert gang.series("twinfold_state_folder_lost") == {"twinfold_state_folder_lost": 0.0}
        away = gang.state.with_name("away")
        gang.state.rename(away)
        until("the word about it", lambda: f"the state folder {gang.state} was removed or replaced" in gang.err)
        away.rename(gang.state)
        until("the word that it is back", lambda: f"the state folder {gang.state} is back" in gang.err)
        until("the metric", lambda: gang.series("twinfold_state_folder_lost") == {"twinfold_state_folder_lost": 0.0})
        shutil.rmtree(gang.state)
        until("the metric", lambda: gang.series("twinfold_state_folder_lost") == {"twinfold_state_folder_lost": 1.0})
        assert f"`kill {gang.running.pid}`" in gang.err
        assert f"warning: there is no state folder {gang.state}:" in gang.command("status").stderr
        assert "42" in gang.ask(QUESTION)[1]["choices"][0]["message"]["content"]
        gang.signal(signal.SIGTERM)
        assert gang.ended() == 0
        assert not any(exists(pid) for pid in pids)
        saved = [path for path in (gang.state / "logs").iterdir() if path.name.endswith(".log.gz")]
        assert [gzip.decompress(path.read_bytes()) for path in saved] == [LOST, LOST]
        assert "error: " not in gang.err.rpartition("was removed or replaced")[2]
    finally:
        gang.close()
