"""A checkpoint of the hub over two hosts: the worker has no cache of the hub, and gets the files that its rank reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testbed.bed import Testbed
from tests.testing.checkpoint import TARGET
from tests.testing.checkpoint_site import small_site
from tests.testing.demo import QUESTION
from tests.testing.fleet import SupervisedFleet, clear, doit, ranks_on, store

pytestmark = [pytest.mark.testbed, pytest.mark.timeout(1800)]
VISION = "model-00039-of-00039.safetensors"


def test_rank_1_reads_the_checkpoints_small_files_the_vision_shard_and_the_engram_on_its_own_disk(
    testbed: Testbed, tmp_path: Path
) -> None:
    (worker,) = testbed.workers
    clear(testbed)
    with small_site(tmp_path) as site:
        site.build("-n", "2")
        config = next(site.cache.glob("models--*EXL3-2.9bpw/snapshots/*/config.json")).read_bytes()
        fleet = SupervisedFleet(testbed, site.state, tmp_path, target=TARGET, context=4096)
        try:
            fleet.start().wait_ready()
            assert ranks_on(worker) == ["1"]
            assert "42" in fleet.answers(QUESTION)[0]
            read = {path.name: path for path in store(worker).iterdir() if "-read-" in path.name and path.is_dir()}
            (model,) = (path for name, path in read.items() if "model-files" in name)
            (engram,) = (path for name, path in read.items() if "engram-files" in name)
            assert [path.name for path in model.glob("*.safetensors")] == [VISION]
            assert (model / "config.json").read_bytes() == config
            assert len(list(engram.glob("*.safetensors"))) == 2
            (model / "config.json").chmod(0o600)
            (model / "config.json").write_bytes(b"{}")
            assert "config.json" in (said := doit(testbed, site.state, "verify", f"target={TARGET}")).stdout + said.stderr
            assert fleet.command("restart").returncode == 0
            fleet.wait_ready(2)
            assert (model / "config.json").read_bytes() == config
            kept = doit(testbed, site.state, "gc", f"target={TARGET}")
            assert kept.returncode == 0, kept.stdout + kept.stderr
            assert (model / VISION).exists()
            assert not list(store(worker).glob("*-read-*/*00001-of-00039*"))
            env = {"HF_CACHE": str(site.cache), "WORKER_HF_CACHE": str(site.cache), "TWINFOLD_PACK_RANK_CACHES": "node"}
            again = doit(testbed, site.state, "check", "rank1of2", f"target={TARGET}", checkout=site.checkout, **env)
            assert "same    rank1of2" in again.stdout, again.stdout + again.stderr  # packed there, of all shards
            assert list(store(worker).glob("*-read-*/*00001-of-00039*"))
            assert "are in its cache of the hub, and are not sent" in again.stdout
        finally:
            fleet.close()
            clear(testbed)
