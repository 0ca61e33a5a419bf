"""A target of the hub in small, all the way: the real list of files, both variants, bundles, and a gang that serves them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from build.bundle import OTHER_VARIANT
from build.store import generations
from tests.testing.checkpoint import TARGET
from tests.testing.checkpoint_site import Site, small_site
from tests.testing.demo import QUESTION
from tests.testing.standin import wait_for
from tests.testing.supervised import Supervised
from tests.testing.waiting import free_port

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with small_site(tmp_path_factory.mktemp("site")) as found:
        yield found


def made(out: str) -> set[str]:
    return set(re.findall(r"^built   (\S+)", out, re.MULTILINE))


def serves(site: Site, *, ablit: bool) -> str:
    """Run the gang once, ask the smoke question, stop it; what it answered."""
    port = free_port()
    environ = site.environment(ablit=ablit, offline=True) | {
        "TWINFOLD_PORT": str(port), "TWINFOLD_METRICS_PORT": str(free_port()), "TWINFOLD_MASTER_PORT": str(free_port()),
        "TWINFOLD_CONTEXT": "4096",
    }  # fmt: skip
    log = site.folder / f"run-{int(ablit)}.log"
    with log.open("wb") as out:
        argv = [sys.executable, "-m", "supervisor", "run", "--target", TARGET, "--runner", "process"]
        child = subprocess.Popen(argv, cwd=site.checkout, env=environ, stdout=out, stderr=out)
    try:
        wait_for(f"an answer ({log})", lambda: child.poll() is not None or _health(port), 120)
        assert child.poll() is None, log.read_text()
        question = {"model": "DeepSeek-V4.1-Flash", "messages": [{"role": "user", "content": QUESTION}]}
        request = Request(f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(question).encode())
        request.add_header("Content-Type", "application/json")
        with urlopen(request, timeout=60) as answer:
            return str(json.load(answer)["choices"][0]["message"]["content"])
    finally:
        child.terminate()
        child.wait(60)


def _health(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_both_variants_are_built_from_the_hub_and_served(site: Site) -> None:
    out = site.build("-n", "2")
    assert {"model-files", "engram-files", "checkpoint", "rank0of2", "rank1of2", "bundle"} <= made(out)
    base = generations.current(site.state, TARGET)
    assert base.bundle.variant == "base"
    assert "42" in serves(site, ablit=False)

    out = site.build("-n", "2", ablit=True)
    assert {"overlay-files", "overlay-shards", "checkpoint", "rank0of2", "rank1of2", "bundle"} <= made(out)
    assert not {"model-files", "engram-files", "tensorfold-native-amd64"} & made(out)
    ablit = generations.current(site.state, TARGET)
    assert ablit.bundle.variant == "ablit"
    assert {r.entry for r in ablit.bundle.rank_caches}.isdisjoint({r.entry for r in base.bundle.rank_caches})
    assert "42" in serves(site, ablit=True)

    # back and forth, without a network: nothing is built again
    for variant in (False, True, False):
        out = site.build(ablit=variant, offline=True)
        assert made(out) <= {"bundle"}
        assert made(out) == set()
        assert generations.current(site.state, TARGET).bundle.variant == ("ablit" if variant else "base")
    assert len(site.hub.asked(".safetensors")) > 0


@pytest.fixture
def gang(site: Site, tmp_path: Path) -> Iterator[Supervised]:
    """A supervisor over both variants' generations."""
    site.build("-n", "2", ablit=True)
    site.build("-n", "2")
    one = Supervised(site.state, tmp_path, target=TARGET, runner="process", context=4096)
    one.env.pop("ABLIT", None)
    yield one
    one.close()


def stored(state: Path) -> list[str]:
    """All that was ever built or numbered."""
    return sorted(str(p) for part in ("store", "generations") for p in (state / part).glob("*/*"))


def test_a_restart_goes_to_the_variant_and_back_and_builds_nothing(site: Site, gang: Supervised) -> None:
    before = stored(site.state)
    gang.start().wait_ready()
    for launch, (ablit, variant) in enumerate((("1", "ablit"), ("0", "base"), ("1", "ablit")), 2):
        done = gang.command("restart", ABLIT=ablit)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"ablit: {ablit == '0'} -> {ablit == '1'} (environment ABLIT)" in done.stdout
        assert gang.wait_state("serving", launch)["variant"] == variant
        for shown in (gang.command("status"), gang.command("bench", "--quick", "--runs=1", "--prefill=1K")):
            assert shown.returncode == 0, shown.stderr
            assert (OTHER_VARIANT in shown.stdout) == (variant == "ablit")
    assert stored(site.state) == before


def test_a_rank_of_the_other_variant_is_never_taken_into_a_gang(site: Site, gang: Supervised) -> None:
    bundles = {v: generations.chosen(site.state, TARGET, v).bundle for v in ("base", "ablit")}
    gang.start().wait_ready()
    left = gang.pids()
    gang.running.kill()
    gang.running.wait()
    gang.env["ABLIT"] = "1"
    gang.start().wait_ready()
    ranks = gang.pids()
    assert len(ranks) == 2
    assert set(ranks.values()).isdisjoint(left.values())
    for rank, pid in ranks.items():
        told = (Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()).decode()
        assert bundles["ablit"].rank_caches[rank].entry in told
        assert not any(ref.entry in told for ref in bundles["base"].rank_caches)
    for pid in left.values():
        assert not Path(f"/proc/{pid}/exe").exists()


def test_of_the_original_checkpoint_only_the_engrams_files_are_asked_for(site: Site) -> None:
    site.build("-n", "2")
    folder = site.state / "store" / generations.current(site.state, TARGET).bundle.engram.entry  # type: ignore[union-attr]
    assert sorted(p.name for p in folder.iterdir()) == [
        "config.json", "model-00047-of-00048.safetensors", "model-00048-of-00048.safetensors", "model.safetensors.index.json",
    ]  # fmt: skip
    assert all(p.is_symlink() and p.resolve().is_relative_to(site.cache) for p in folder.iterdir())


def test_a_file_of_the_cache_that_changed_is_seen_by_the_next_build_and_by_verify(site: Site) -> None:
    site.build("-n", "2")
    folder = site.state / "store" / generations.current(site.state, TARGET).bundle.model.entry
    shard = (folder / "model-00007-of-00039.safetensors").resolve()
    content, before = shard.read_bytes(), shard.stat()
    shard.write_bytes(bytes([content[0], content[1] ^ 1]) + content[2:])
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
    damaged = site.run("doit", "verify", f"target={TARGET}")
    assert damaged.returncode == 6, damaged.stdout + damaged.stderr
    assert "model-00007-of-00039.safetensors" in damaged.stdout

    site.hub.log.clear()
    mended = site.run("doit", "repair", f"target={TARGET}")
    assert mended.returncode == 0, mended.stdout + mended.stderr
    assert {a.path.rpartition("/")[2] for a in site.hub.log if a.method == "GET"} == {"model-00007-of-00039.safetensors"}
    assert site.run("doit", "verify", f"target={TARGET}").returncode == 0
    assert made(site.build(offline=True)) == set()


def test_pins_that_are_missing_are_named_and_made_again_by_doit_lock(site: Site) -> None:
    path = site.checkout / "lockfiles" / f"{TARGET}.lock.toml"
    whole = path.read_text()
    try:
        start = whole.index('[[hub]]\nname = "overlay"')
        path.write_text("# mine\n" + whole[:start] + whole[whole.index("[[file]]") :])
        refused = site.run("doit", f"target={TARGET}")
        assert refused.returncode == 7, refused.stderr
        assert "hub overlay: commit and files of" in refused.stderr
        assert f"doit lock target={TARGET}" in refused.stderr
        pinned = site.run("doit", "lock", f"target={TARGET}")
        assert pinned.returncode == 0, pinned.stdout + pinned.stderr
        assert re.findall(r"^pinned  (\w+)", pinned.stdout, re.MULTILINE) == ["overlay"]
        assert path.read_text().startswith("# mine\n")
        again = site.run("doit", "lock", "--only=model,engram", f"target={TARGET}")
        assert again.returncode == 0, again.stdout + again.stderr
        from build.locks import lockfile

        first = site.folder / "first.toml"
        first.write_text(whole)
        before, after = lockfile.read(first), lockfile.read(path)
        assert set(after.files) == set(before.files)
        assert set(after.hubs) == set(before.hubs)
    finally:
        path.write_text(whole)


def test_gc_never_deletes_in_the_hubs_cache(site: Site) -> None:
    site.build("-n", "2")
    before = sorted(p for p in site.cache.rglob("*"))
    for path in (site.state / "generations" / TARGET).iterdir():
        path.unlink()
    (site.checkout / "lockfiles" / f"{TARGET}.toml").rename(site.folder / "away.toml")
    try:
        done = site.run("doit", "gc", "target=nothing")
        assert sorted(p for p in site.cache.rglob("*")) == before, done.stdout + done.stderr
    finally:
        (site.folder / "away.toml").rename(site.checkout / "lockfiles" / f"{TARGET}.toml")
