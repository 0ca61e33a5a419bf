"""Damage: each kind is found by verify and mended by repair."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import pytest

from build.errors import OutputDiffers, StoreDamaged
from build.locks.pins import Lock, Output
from build.store import durable, hashing, recheck, repair, roots, verify
from tests.testing import toy


def entry_of(project: toy.Toy, name: str) -> str:
    entry = project.resolve(name).entry
    assert entry is not None
    return entry


@pytest.fixture
def project(tmp_path: Path) -> toy.Toy:
    return toy.built(tmp_path, "abc")


def write(path: Path, content: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(content)
    path.chmod(0o444)


def same_length(path: Path) -> None:
    content = path.read_bytes()
    write(path, bytes([content[0] ^ 1]) + content[1:])


def swapped(folder: Path) -> None:
    big, small = folder / "inner" / "big.bin", folder / "inner" / "words.txt"
    one, two = big.read_bytes(), small.read_bytes()
    write(big, two)
    write(small, one)


def put(path: Path, content: bytes) -> None:
    path.parent.chmod(0o755)
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    path.chmod(0o444)
    path.parent.chmod(0o555)


def remove(path: Path) -> None:
    path.parent.chmod(0o755)
    path.unlink()
    path.parent.chmod(0o555)


DAMAGE: dict[str, tuple[str, Callable[[Path, Path], object]]] = {
    "a byte of the same length": ("other content", lambda p, _: same_length(p / "inner" / "big.bin")),
    "truncation": ("bytes, had", lambda p, _: write(p / "inner" / "big.bin", b"x")),
    "swapped files": ("bytes, had", lambda p, _: swapped(p)),
    "a missing file": ("is missing", lambda p, _: remove(p / "inner" / "words.txt")),
    "a strange file": ("does not belong", lambda p, _: put(p / "inner" / "new", b"")),
    "a changed mode": ("has mode 0644", lambda p, _: (p / "inner" / "words.txt").chmod(0o644)),
    "a lost executable bit": ("has mode 0444", lambda p, _: (p / "run.sh").chmod(0o444)),
    "a writable folder": ("its folder has mode", lambda p, _: p.chmod(0o755)),
    "a vanished path": ("its path is gone", lambda p, _: durable.remove_tree(p)),
    "a vanished record": ("its record is gone", lambda _, r: r.unlink()),
    "an empty record": ("not readable", lambda _, r: put_record(r, b"")),
    "a record with another hash": ("contradicts itself", lambda _, r: edit(r, b'"output": "', b'"output": "0')),
    "a record with other parameters": ("contradicts itself", lambda _, r: edit(r, b":shout", b":shut")),
}  # fmt: skip


def edit(path: Path, old: bytes, new: bytes) -> None:
    put_record(path, path.read_bytes().replace(old, new))


def put_record(path: Path, content: bytes) -> None:
    path.unlink()
    path.write_bytes(content)


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_found_told_and_mended(project: toy.Toy, kind: str) -> None:
    entry = entry_of(project, "shouted")
    before = hashing.tree(project.store.path(entry))
    said, damage = DAMAGE[kind]
    damage(project.store.path(entry), project.store.record_path(entry))
    again = toy.Toy(project.checkout, project.state)
    found = toy.problems(again)
    assert [p.entry for p in found] == [entry]
    assert said in found[0].what
    assert toy.mend(again).mended == (entry,)
    again.close()
    last = toy.Toy(project.checkout, project.state)
    assert toy.problems(last) == ()
    assert hashing.tree(last.store.path(entry)) == before
    assert toy.make_all(last) == []


def test_two_damaged_paths_are_mended_inputs_first(project: toy.Toy) -> None:
    for name in ("shouted", "part", "bundle"):
        durable.remove_tree(project.store.path(entry_of(project, name)))
    project.store.record_path(entry_of(project, "part")).unlink()
    again = toy.Toy(project.checkout, project.state)
    found = toy.problems(again)
    assert len(found) == 3
    assert len(toy.mend(again).mended) == 3
    assert toy.problems(again) == ()


def test_whole_store_is_read_not_the_cache_of_hashes(project: toy.Toy) -> None:
    project.fingerprints.sha256 = lambda _: "0" * 64  # type: ignore[method-assign]
    assert toy.problems(project) == ()


def test_garbage_that_nothing_needs_is_no_damage(project: toy.Toy) -> None:
    (project.store.root / f"{'0' * 32}-half").mkdir()
    assert toy.problems(project) == ()


def old_form(path: Path) -> None:
    """A record as an earlier version might have written it."""
    put_record(path, path.read_bytes().replace(b'"format": 1', b'"format": 0').replace(b'"by_place": false, ', b""))


def repaired(project: toy.Toy, problems: Iterable[verify.Problem], needed: Collection[str]) -> repair.Outcome:
    """Repair from a fresh start; what it said is in ``project``'s report."""
    return repair.repair(toy.Toy(project.checkout, project.state), problems, needed)


def test_a_path_whose_sources_are_gone_cannot_be_mended_and_stays_damaged(project: toy.Toy) -> None:
    same_length(project.store.path(entry_of(project, "words")) / "words.txt")
    entry = entry_of(project, "words")
    toy.checkout(project.checkout, "other words")
    done = repaired(project, [verify.Problem(entry, "other content")], {entry})
    assert "other bytes by now" in str(done.failed[entry])
    assert isinstance(done.failed[entry], StoreDamaged)
    assert project.store.path(entry).exists()


def test_what_is_made_from_a_path_that_cannot_be_mended_is_not_made_from_its_wrong_bytes(project: toy.Toy) -> None:
    words, shouted = entry_of(project, "words"), entry_of(project, "shouted")
    same_length(project.store.path(words) / "words.txt")
    same_length(project.store.path(shouted) / "run.sh")
    damaged = hashing.tree(project.store.path(shouted))
    toy.checkout(project.checkout, "other words")
    done = repaired(project, [verify.Problem(e, "other content") for e in (shouted, words)], {words, shouted})
    assert set(done.failed) == {words, shouted}
    assert f"{words}, which it is made from, is damaged too" in str(done.failed[shouted])
    assert hashing.tree(project.store.path(shouted)) == damaged


def test_one_path_that_cannot_be_mended_stops_none_of_the_others(project: toy.Toy) -> None:
    strange = f"{'0' * 32}-strange"
    (project.store.root / strange).mkdir()
    put(project.store.record_path(strange), b"{}")
    same_length(project.store.path(entry_of(project, "part")) / "words.txt")
    done = repaired(project, toy.problems(project), {strange, entry_of(project, "part")})
    assert done.mended == (entry_of(project, "part"),)
    assert list(done.failed) == [strange]
    assert "neither its record nor target toy says from what" in str(done.failed[strange])


def test_what_cannot_be_mended_and_nothing_needs_is_removed(project: toy.Toy) -> None:
    strange = f"{'0' * 32}-strange"
    (project.store.root / strange / "deep").mkdir(parents=True)
    put(project.store.record_path(strange), b"{}")
    again = toy.Toy(project.checkout, project.state)
    assert [p.entry for p in toy.problems(again)] == [strange]
    done = toy.mend(again)
    again.close()
    assert (done.removed, dict(done.failed)) == ((strange,), {})
    assert not [p for p in project.store.root.rglob("*") if "strange" in p.name]
    assert toy.problems(toy.Toy(project.checkout, project.state)) == ()


@pytest.mark.parametrize("generation_stays", [True, False])
def test_a_store_whose_records_are_all_of_an_older_form_is_mended(project: toy.Toy, generation_stays: bool) -> None:
    before = {e: hashing.tree(project.store.path(e)) for e in project.store.entries()}
    for entry in before:
        old_form(project.store.record_path(entry))
    strange = f"{'0' * 32}-strange"
    (project.store.root / strange).mkdir()
    put(project.store.record_path(strange), b'{"format": 0}')
    if not generation_stays:
        durable.remove_tree(project.state / "generations")
    again = toy.Toy(project.checkout, project.state)
    done = toy.mend(again)
    again.close()
    assert done.removed == (strange,)
    assert set(done.mended) == before.keys()
    assert not done.failed
    last = toy.Toy(project.checkout, project.state)
    assert toy.problems(last) == ()
    assert {e: hashing.tree(last.store.path(e)) for e in last.store.entries()} == before


def test_what_an_unreadable_bundle_record_hides_is_still_read_from_its_bundle(project: toy.Toy) -> None:
    bundle, part = entry_of(project, "bundle"), entry_of(project, "part")
    put(project.store.path(bundle) / "bundle.json", f'{{"model": {{"entry": "{part}", "inside": ""}}}}'.encode())
    put_record(project.store.record_path(bundle), b"")
    fresh = toy.Toy(project.checkout, project.state)
    reached = roots.reached(fresh.store, [roots.Root(bundle, "it")], strict=False)
    assert {part, entry_of(fresh, "shouted"), entry_of(fresh, "words")} <= reached
    with pytest.raises(StoreDamaged, match="is not whole"):
        roots.reached(fresh.store, [roots.Root(bundle, "it")], strict=True)


@pytest.mark.parametrize("form", ["empty", "older", "folder"])
def test_a_build_makes_what_has_an_unreadable_record_again_and_keeps_the_path_where_it_holds_the_same(
    project: toy.Toy, form: str
) -> None:
    entry = entry_of(project, "shouted")
    record, inode = project.store.record_path(entry), (project.store.path(entry) / "run.sh").stat().st_ino
    if form == "older":
        old_form(record)
    else:
        record.unlink()
        record.mkdir() if form == "folder" else record.write_bytes(b"")
    again = toy.Toy(project.checkout, project.state)
    again.report._stream = said = io.StringIO()
    assert toy.make_all(again) == ["shouted"]
    again.close()
    assert f"note: the record of {entry} " in said.getvalue()
    assert (project.store.path(entry) / "run.sh").stat().st_ino == inode
    last = toy.Toy(project.checkout, project.state)
    assert toy.problems(last) == ()
    assert toy.make_all(last) == []


def test_a_build_replaces_other_bytes_under_an_unreadable_record(project: toy.Toy) -> None:
    entry = entry_of(project, "shouted")
    before = hashing.tree(project.store.path(entry))
    put_record(project.store.record_path(entry), b"{")
    same_length(project.store.path(entry) / "run.sh")
    again = toy.Toy(project.checkout, project.state)
    assert toy.make_all(again) == ["shouted"]
    assert hashing.tree(project.store.path(entry)) == before
    assert toy.problems(toy.Toy(project.checkout, project.state)) == ()


def unsteady(project: toy.Toy) -> None:
    """Make the builder of ``shouted`` give another result from now on, with nothing in its key changed."""
    code = project.store.path(entry_of(project, "code")) / "toy_code.py"
    write(code, code.read_bytes().replace(b"upper()", b"lower()"))


def test_another_result_is_not_put_in_place(project: toy.Toy) -> None:
    entry = entry_of(project, "shouted")
    unsteady(project)
    same_length(project.store.path(entry) / "inner" / "big.bin")
    damaged = hashing.tree(project.store.path(entry))
    done = repair.repair(project, [verify.Problem(entry, "other content")], {entry})
    assert isinstance(done.failed[entry], OutputDiffers)
    assert "nothing was changed" in str(done.failed[entry])
    assert hashing.tree(project.store.path(entry)) == damaged


def test_check_says_which_artefact_comes_out_different_and_where(project: toy.Toy) -> None:
    assert recheck.recheck(project, ["shouted", "part"]) == []
    unsteady(project)
    project.report._stream = said = io.StringIO()
    assert recheck.recheck(project, ["shouted"]) == ["shouted"]
    assert "differs shouted: inner/words.txt" in said.getvalue()


def test_a_vanished_record_whose_bytes_are_as_locked_costs_no_rebuild(project: toy.Toy) -> None:
    found = project.resolve("shouted")
    assert found.key is not None
    assert found.output is not None
    lock = Lock(outputs=(Output("shouted", "", project.host, found.key, found.output),))
    project.store.record_path(str(found.entry)).unlink()
    unsteady(project)
    again = toy.Toy(project.checkout, project.state, lock=lock)
    assert repair.repair(again, [verify.Problem(str(found.entry), "its record is gone")], {str(found.entry)}).mended
    assert again.ready("shouted")


def test_exchange_swaps_two_trees(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "is").write_text(name)
    repair.exchange(tmp_path / "a", tmp_path / "b")
    assert [(tmp_path / n / "is").read_text() for n in ("a", "b")] == ["b", "a"]


def test_exchange_tells_which_path_is_missing(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(FileNotFoundError, match="nowhere"):
        repair.exchange(tmp_path / "a", tmp_path / "nowhere")
