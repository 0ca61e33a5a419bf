"""The demo target itself: what a change rebuilds, what the lock enforces, and that two clean stores are the same.

The first test of a run that needs the engine's binaries builds them into the shared cache, which takes minutes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from build.artefacts import images, toolchain
from build.graph import graph
from build.graph.project import Project
from build.image.assemble import read_archive
from build.locks import lockfile
from build.locks.pins import Output
from build.settings import Places
from build.store import generations
from build.store.store import Store
from tests.testing.checkout import CHECKOUT
from tests.testing.demo import IMAGES, built_store, cache_root, demo_state, doit

pytestmark = pytest.mark.timeout(1800)
NOOP_LIMIT_S = 5.0  # ten times the goal


def checkout(folder: Path) -> Path:
    """A copy of what a build reads, to be edited."""
    skip = shutil.ignore_patterns("__pycache__")
    for name in ("build", "supervisor", "lockfiles"):
        shutil.copytree(CHECKOUT / name, folder / name, ignore=skip)
    for name in ("dodo.py", "pyproject.toml"):
        shutil.copy2(CHECKOUT / name, folder / name)
    return folder


def made(out: str) -> set[str]:
    return set(re.findall(r"^built   (\S+)", out, re.MULTILINE))


def save(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def edit(path: Path, old: str, new: str) -> None:
    """Change a file and put its times back."""
    before = path.stat()
    content = path.read_text()
    assert old in content
    path.write_text(content.replace(old, new, 1))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def a_text(here: Path) -> Path:
    """One file of the training text."""
    return min((here / "build" / "demo" / "text").glob("*.txt"))


def test_a_second_run_is_one_line_and_quick() -> None:
    built_store()
    started_s = time.monotonic()
    done = doit(state=cache_root() / "state")
    assert time.monotonic() - started_s < NOOP_LIMIT_S
    assert done.returncode == 0
    assert "nothing to do" in done.stdout
    assert len(done.stdout.strip().splitlines()) == 1


def test_a_changed_byte_of_the_training_text_rebuilds_the_rank_caches_and_no_binary(tmp_path: Path) -> None:
    state = demo_state(tmp_path, own_store=True)
    here = checkout(tmp_path / "checkout")
    edit(a_text(here), " is ", " iz ")
    done = doit(state=state, checkout=here)
    assert done.returncode == 0, done.stderr
    assert {"text", "trained", "checkpoint", "rank0of2", "rank1of2", "bundle"} <= made(done.stdout)
    assert not {name for name in made(done.stdout) if name.endswith(("amd64", "arm64", "-source"))}
    assert [g.number for g in generations.every(state, "demo")] == [1, 2]


def test_a_changed_byte_of_the_server_rebuilds_the_server_and_no_rank_cache(tmp_path: Path) -> None:
    state = demo_state(tmp_path, own_store=True)
    here = checkout(tmp_path / "checkout")
    main = here / "build" / "zig" / "standin" / "src" / "main_server.zig"
    edit(main, "//", "// .")
    done = doit(state=state, checkout=here)
    assert done.returncode == 0, done.stderr
    names = made(done.stdout)
    assert any(re.fullmatch(r"tensorfold-native-a..64", n) for n in names)
    assert not {n for n in names if n.startswith(("rank", "tf-dsv41-rank", "tf-dsv41-check", "tf-dsv41-lanes-a", "checkpoint"))}


def test_two_clean_stores_in_two_folders_are_the_same_and_come_to_the_locked_image_ids_of_both_platforms(tmp_path: Path) -> None:
    shared, entry = built_store(2, *IMAGES)
    state = tmp_path / "another place" / "state"
    done = doit("-n", "2", "generation", *IMAGES, state=state)
    assert done.returncode == 0, done.stderr
    one, two = Store(shared), Store(state / "store")
    assert two.find(entry) is not None
    for name in two.entries():
        first, second = one.need(name), two.need(name)
        differ = {(f.path, f.sha256) for f in first.files} ^ {(f.path, f.sha256) for f in second.files}
        assert not differ, f"{name}: {min(differ)}"
    project = Project(CHECKOUT, Places(), state)
    for name in IMAGES:
        key, there = project.resolve(name).key, project.resolve(name).entry
        found = {images.identity(store.path(str(there))).config_digest for store in (one, two)}
        assert found == {project.lock.image_id(name, str(key))}
    for command in ("verify", "lock --check"):
        checked = doit(*command.split(), state=state)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_another_image_id_in_the_lock_is_a_difference(tmp_path: Path) -> None:
    built_store()
    here = checkout(tmp_path / "checkout")
    lock = here / "lockfiles" / "demo.lock.toml"
    assert doit("lock", "--record", state=cache_root() / "state", checkout=here).returncode == 0
    image = f"engine-image-{toolchain.host().removeprefix('linux/')}"
    (old,) = (o for o in lockfile.read(lock).outputs if (o.name, o.host) == (image, toolchain.host()))
    lock.write_text(lock.read_text().replace(old.image_id, "sha256:" + "0" * 64))
    said = doit("lock", "--check", state=cache_root() / "state", checkout=here)
    assert said.returncode == 1
    assert f"differs    {image}: the lock has image id sha256:000" in said.stdout


@pytest.mark.parametrize("world", [1, 4])
def test_other_worlds_share_all_but_the_rank_caches(tmp_path: Path, world: int) -> None:
    state = demo_state(tmp_path, world)
    bundle = generations.current(state, "demo").bundle
    assert bundle.world_size == world
    assert len(bundle.rank_caches) == len(bundle.rank_cache_bytes) == world
    for ref in (*bundle.rank_caches, bundle.engine.server, bundle.model, bundle.kit, bundle.token_map):
        assert ref.under(state / "store").exists()


@pytest.mark.parametrize("world", ["3", "0", "x"])
def test_a_world_that_the_packer_does_not_take_is_refused(tmp_path: Path, world: str) -> None:
    done = doit(f"world={world}", state=tmp_path / "state")
    assert done.returncode == 2
    assert done.stderr.startswith("error: world = ")


def test_the_bundle_names_an_image_of_this_platform_that_is_there(tmp_path: Path) -> None:
    state = demo_state(tmp_path)
    bundle = generations.current(state, "demo").bundle
    assert len(bundle.image) == 1
    for image in bundle.image.values():
        assert image.archive.under(state / "store").is_file()
        assert image.config_digest.startswith("sha256:")


def test_the_bundle_names_the_node_tool_of_this_platform_and_its_image(tmp_path: Path) -> None:
    state = demo_state(tmp_path)
    bundle = generations.current(state, "demo").bundle
    ((platform, tool),) = bundle.node_tool.items()
    assert platform == toolchain.host()
    program = tool.program.under(state / "store")
    assert os.access(program, os.X_OK)
    assert json.loads(subprocess.run([program, "hash", program], capture_output=True, check=True).stdout)["path"] == str(program)
    assert read_archive(tool.image.archive.under(state / "store")).identity.config_digest == tool.image.config_digest
    assert tool.image.config_digest != bundle.image[platform].config_digest


@pytest.mark.parametrize("platform", ["amd64", "arm64"])
def test_no_engine_image_and_no_rank_cache_is_made_from_the_node_tool(tmp_path: Path, platform: str) -> None:
    made_from = Project(CHECKOUT, Places(), tmp_path).graph
    engine = graph.closure([f"engine-image-{platform}", "rank0of2-check", "rank1of2-check"], made_from)
    assert not {name for name in engine if "node" in name}
    node = graph.closure([f"node-image-{platform}"], made_from)
    assert node == {f"node-image-{platform}", f"twinfold-node-{platform}", "twinfold-node-source", "toolchain"}


def test_a_lock_without_the_toolchain_s_pin_names_it_and_the_command(tmp_path: Path) -> None:
    here = checkout(tmp_path / "checkout")
    (here / "lockfiles" / "demo.lock.toml").write_text("version = 1\n")
    done = doit(state=tmp_path / "state", checkout=here)
    assert done.returncode == 7
    assert "lacks the pin toolchain zig 0.17.0" in done.stderr
    assert "run `doit lock target=demo`" in done.stderr
    assert doit("lock", "target=demo", state=tmp_path / "state", checkout=here).returncode == 0
    assert lockfile.read(here / "lockfiles" / "demo.lock.toml").toolchains


def test_an_output_that_differs_from_its_lock_ends_with_9_and_is_not_kept(tmp_path: Path) -> None:
    here, state = checkout(tmp_path / "checkout"), tmp_path / "state"
    project = Project(here, Places(), state)
    artefact = project.graph["kit"]
    assert doit("kit", state=state, checkout=here).returncode == 0
    key = project.resolve("kit").key
    shutil.rmtree(state)
    lock = here / "lockfiles" / "demo.lock.toml"
    old = lockfile.read(lock)
    wrong = Output("kit", artefact.platform, project.host, str(key), "0" * 64)
    lockfile.write(lock, replace(old, outputs=(*(o for o in old.outputs if o.name != "kit"), wrong)), save)
    done = doit("kit", state=state, checkout=here)
    assert done.returncode == 9
    assert done.stderr.startswith("error: kit: the lock has 000000000000 for key")
    assert not list((state / "store").glob("*-kit*"))


def test_an_edit_is_told_as_not_locked_until_it_is_recorded(tmp_path: Path) -> None:
    state = demo_state(tmp_path, own_store=True)
    here = checkout(tmp_path / "checkout")
    recorded = doit("lock", "--record", state=state, checkout=here)
    assert recorded.returncode == 0, recorded.stderr
    only = doit("lock", "--check", state=state, checkout=here)
    beside = {line.split()[2].rstrip(":") for line in only.stdout.splitlines() if line.startswith(("not locked", "not known"))}
    assert not {name for name in beside if not name.endswith("-arm64")}, only.stdout
    edit(a_text(here), " is ", " iz ")
    built = doit(state=state, checkout=here)
    assert built.returncode == 0, built.stderr
    assert re.search(r"; \d+ not locked: trained, checkpoint, \S+, … \(`doit lock --check` lists them\)$", built.stdout)
    assert doit("lock", "--check", state=state, checkout=here).returncode == 1
    assert "locked  trained" in doit("lock", "--record", state=state, checkout=here).stdout
    assert "not locked" not in doit(state=state, checkout=here).stdout


def test_a_compiler_error_is_one_line_with_its_place_and_its_log(tmp_path: Path) -> None:
    here, state = checkout(tmp_path / "checkout"), tmp_path / "state"
    main = here / "build" / "zig" / "standin" / "src" / "main_check.zig"
    main.write_text(main.read_text() + "\npub const broken: u8 = nonsense;\ncomptime { _ = broken; }\n")
    done = doit("tf-dsv41-check-amd64", state=state, checkout=here)
    assert done.returncode == 8
    assert len(done.stderr.strip().splitlines()) == 1
    assert re.search(r"main_check\.zig:\d+:\d+: error: use of undeclared identifier 'nonsense' \(log: ", done.stderr)


def test_an_unknown_target_names_what_there_is(tmp_path: Path) -> None:
    done = doit("target=dem", state=tmp_path / "state")
    assert done.returncode == 2
    assert "did you mean demo?" in done.stderr
