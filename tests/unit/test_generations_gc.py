"""Generations, roots and garbage collection."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from build.errors import StoreDamaged, UsageError
from build.store import gc, generations, roots
from tests.testing import toy

BOOT = "this boot"


@pytest.fixture
def project(tmp_path: Path) -> toy.Toy:
    """Four generations, from four texts; the last is current."""
    return toy.built(tmp_path, "alpha", "beta", "gamma", "delta")


def bundles(project: toy.Toy) -> list[str]:
    return [g.bundle_entry for g in generations.every(project.state, "toy")]


def numbers(project: toy.Toy) -> list[int]:
    return [g.number for g in generations.every(project.state, "toy")]


def collect(project: toy.Toy, keep: int = 1) -> gc.Plan:
    done = gc.carry_out(project.store, project.state, keep, ())
    project.close()
    return done


def test_a_generation_is_made_only_where_something_changed(project: toy.Toy) -> None:
    assert numbers(project) == [1, 2, 3, 4]
    assert project.bundle_is_newest()
    assert project.make_generation().number == 4
    assert numbers(project) == [1, 2, 3, 4]


def test_a_rollback_is_not_undone_by_a_build_that_changes_nothing(project: toy.Toy) -> None:
    generations.select(project.state, "toy", 2)
    assert project.bundle_is_newest()
    assert toy.make_all(project) == []
    assert generations.current(project.state, "toy").number == 2


def test_nothing_built_yet_says_to_run_doit(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="run `doit target=demo`"):
        generations.current(tmp_path, "demo")
    assert generations.every(tmp_path, "demo") == ()


def test_a_generation_that_cannot_be_read_is_damage(project: toy.Toy) -> None:
    file = project.state / "generations" / "toy" / "4.json"
    file.chmod(0o644)
    file.write_text("{")
    with pytest.raises(StoreDamaged, match=r"4\.json is no readable generation"):
        generations.current(project.state, "toy")


def test_a_bundle_that_is_gone_says_so(project: toy.Toy) -> None:
    with pytest.raises(StoreDamaged, match="generation 4 of toy needs"):
        _ = generations.current(project.state, "toy").bundle


def test_gc_keeps_the_newest_and_forgets_the_others_but_never_reuses_a_number(project: toy.Toy) -> None:
    first, last = bundles(project)[0], bundles(project)[-1]
    done = collect(project)
    assert numbers(project) == [4]
    assert project.store.find(last) is not None
    assert not project.store.path(first).exists()
    assert done.bytes > 0
    toy.checkout(project.checkout, "epsilon")
    again = toy.Toy(project.checkout, project.state)
    toy.make_all(again)
    assert numbers(again) == [4, 5]


def test_after_gc_a_build_has_nothing_to_do(project: toy.Toy) -> None:
    collect(project)
    assert toy.make_all(toy.Toy(project.checkout, project.state)) == []


def test_gc_keeps_the_current_generation_after_a_rollback(project: toy.Toy) -> None:
    first = bundles(project)[0]
    generations.select(project.state, "toy", 1)
    collect(project)
    assert numbers(project) == [1, 4]
    assert project.store.find(first) is not None
    with pytest.raises(UsageError, match="is the current one"):
        generations.remove(project.state, generations.current(project.state, "toy"))


def test_gc_takes_nothing_that_a_launch_or_an_explicit_root_reaches(project: toy.Toy) -> None:
    one, two, three, _ = bundles(project)
    roots.hold(project.state, "launch-a", one, pid=1, start=2)
    (project.state / "roots").mkdir()
    (project.state / "roots" / "mine").symlink_to(project.store.path(two))
    reached = roots.reached(project.store, [roots.Root(one, ""), roots.Root(two, "")], strict=True)
    collect(project)
    assert all(project.store.find(e) for e in reached)
    assert project.store.find(three) is None


def test_a_launch_of_an_earlier_boot_holds_nothing(project: toy.Toy) -> None:
    file = roots.hold(project.state, "old", bundles(project)[0], pid=1, start=2)
    raw = json.loads(file.read_text())
    file.chmod(0o644)
    file.write_text(json.dumps({**raw, "boot_id": "another boot"}))
    assert roots.launches(project.state, roots.boot_id()) == ()
    file.write_text(json.dumps({"bundle": bundles(project)[0], "pid": 1, "start": 2}))
    assert [r.why for r in roots.launches(project.state, BOOT)] == ["launch old"]


def test_gc_removes_nothing_where_a_root_s_reach_is_not_known(project: toy.Toy) -> None:
    project.store.record_path(bundles(project)[3]).unlink()
    fresh = toy.Toy(project.checkout, project.state)
    before = list(fresh.store.entries())
    with pytest.raises(StoreDamaged, match="generation 4 of toy needs"):
        gc.carry_out(fresh.store, fresh.state, 1, ())
    assert list(fresh.store.entries()) == before
    assert numbers(fresh) == [1, 2, 3, 4]


def test_a_root_file_that_cannot_be_read_stops_gc(project: toy.Toy) -> None:
    folder = project.state / "run" / "roots"
    folder.mkdir(parents=True)
    (folder / "torn.json").write_text("")
    with pytest.raises(StoreDamaged, match=r"torn\.json is no readable root"):
        gc.plan(project.store, project.state, 1, ())


def test_gc_takes_paths_without_records_and_records_without_paths(project: toy.Toy) -> None:
    garbage = project.store.root / f"{'0' * 32}-half"
    (garbage / "deep").mkdir(parents=True)
    lone = project.store.root / f"{'1' * 32}-lone.json"
    lone.write_bytes(b"{}")
    collect(project)
    assert not garbage.exists()
    assert not lone.exists()


def test_a_plan_changes_nothing_and_says_what_carrying_out_does(project: toy.Toy) -> None:
    before = list(project.store.entries())
    planned = gc.plan(project.store, project.state, 2, ())
    assert list(project.store.entries()) == before
    assert gc.carry_out(project.store, project.state, 2, ()) == planned


def test_keeping_none_is_refused(project: toy.Toy) -> None:
    with pytest.raises(UsageError, match="at least the newest"):
        gc.plan(project.store, project.state, 0, ())
