"""The store's commands as a user runs them, with their exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from build.store import generations, roots
from tests.testing import toy
from tests.testing.checkout import CHECKOUT
from tests.testing.demo import doit, environment

LIMIT_S = 120


@pytest.fixture
def project(tmp_path: Path) -> toy.Toy:
    return toy.built(tmp_path, "alpha", "beta", "gamma")


def run(project: toy.Toy, *args: str, code: int = 0) -> str:
    folder = project.state.parent
    file = toy.dodo(folder, folder / "src", project.state)
    done = subprocess.run(
        [sys.executable, "-m", "doit", "-f", str(file), *args],
        cwd=CHECKOUT, env=environment(project.state), capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    assert len(done.stderr.strip().splitlines()) == (1 if code else 0), done.stderr
    return done.stdout + done.stderr


def damage(project: toy.Toy) -> str:
    entry = str(project.resolve("part").entry)
    file = project.store.path(entry) / "words.txt"
    file.chmod(0o644)
    file.write_text("GAMMB")
    file.chmod(0o444)
    return entry


def test_verify_ends_with_6_until_repair_has_mended(project: toy.Toy) -> None:
    assert "every byte as recorded" in run(project, "verify")
    entry = damage(project)
    said = run(project, "verify", code=6)
    assert f"damaged {entry}: words.txt has other content" in said
    assert "`doit repair` mends them" in said
    assert f"mended  {entry}: made again in" in run(project, "repair")
    assert "every byte as recorded" in run(project, "verify")
    assert "nothing to mend" in run(project, "repair")


def test_check_makes_again_and_compares(project: toy.Toy) -> None:
    assert "same    shouted" in run(project, "check", "shouted")
    assert "no artefact is called nosuch" in run(project, "check", "nosuch", code=2)


def test_generations_rollback_and_back(project: toy.Toy) -> None:
    assert run(project, "generations").strip().endswith("current")
    assert "is generation 2" in run(project, "rollback")
    assert "generation 2 (rolled back: `doit rollback --to 3` goes forward again)" in run(project)
    assert "is generation 1" in run(project, "rollback")
    assert "is the oldest" in run(project, "rollback", code=2)
    assert "has no generation 9" in run(project, "rollback", "--to", "9", code=2)
    assert "has no generation 0" in run(project, "rollback", "--to", "0", code=2)
    assert "is generation 3" in run(project, "rollback", "--to", "3")


def test_gc_says_what_would_go_and_takes_nothing_that_a_running_gang_uses(project: toy.Toy) -> None:
    first = generations.find(project.state, "toy", 1)
    roots.hold(project.state, "running", first.bundle_entry, pid=1, start=1)
    planned = run(project, "gc", "--keep", "1", "--dry-run")
    assert "would go  generation 1 of toy" in planned
    done = run(project, "gc", "--keep", "1")
    assert done == planned.replace("would go", "gone")
    assert toy.problems_of(project.state, first.bundle_entry) == ()
    assert "nothing to do" in run(project)
    assert "every byte as recorded" in run(project, "verify")


def tear(project: toy.Toy, name: str) -> Path:
    """Leave a record as a torn file."""
    record = project.store.record_path(str(project.resolve(name).entry))
    record.unlink()
    record.write_text("{")
    return record


@pytest.mark.parametrize("verb", ["repair", "run"])
def test_a_damaged_record_stops_gc_and_rollback_until_repair_or_a_build_has_made_it_again(project: toy.Toy, verb: str) -> None:
    record = tear(project, "part")
    before = sorted(project.store.root.iterdir())
    assert "is not readable" in run(project, "verify", code=6)
    assert "run `doit repair` first" in run(project, "gc", code=6)
    assert "run `doit repair` first" in run(project, "rollback", "--to", "3", code=6)
    assert sorted(project.store.root.iterdir()) == before
    said = run(project, verb)
    wanted = f"damaged {record.stem}: its record is not readable" if verb == "repair" else f"note: the record of {record.stem} is"
    assert wanted in said
    assert ("1 mended" in said) if verb == "repair" else ("built   part" in said)
    assert "every byte as recorded" in run(project, "verify")
    assert "nothing to do" in run(project)


def test_repair_goes_on_past_what_it_cannot_mend_and_ends_with_6_and_the_way_out(project: toy.Toy) -> None:
    """The first generation's text is no longer in the checkout: its bytes cannot be made again."""
    first = roots.reached(project.store, [roots.Root(generations.find(project.state, "toy", 1).bundle_entry, "")], strict=True)
    (words,) = (e for e in first if e.endswith("-words"))
    (project.store.path(words) / "words.txt").chmod(0o644)
    (project.store.path(words) / "words.txt").write_text("omega")
    garbage = f"{'0' * 32}-garbage"
    (project.store.root / garbage).mkdir()
    (project.store.root / f"{garbage}.json").write_text('{"format": 0}')
    tear(project, "part")
    said = run(project, "repair", code=6)
    assert f"failed  {words}: cannot be made again, the checkout has other bytes by now" in said
    assert f"removed {garbage}: " in said
    assert "error: 1 mended, 1 removed, 1 still damaged: " in said
    assert "`doit gc --keep 1` then forgets the old ones" in said
    run(project, "gc", "--keep", "1")
    assert "every byte as recorded" in run(project, "verify")


def test_the_lock_is_checked_with_exit_1(project: toy.Toy) -> None:
    said = run(project, "lock", "--check", code=1)
    assert "not locked shouted: no output for key" in said
    assert "`doit lock --record` mends it" in said


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["gc", "--bogus"], "option --bogus not recognized"),
        (["--bogus"], "option --bogus not recognized"),
        (["gc", "--keep=x"], "keep: wanted a whole number"),
        (["gc", "x"], "`doit gc` takes no names"),
        (["info", "nosuch"], "wants the name of one artefact"),
        (["lock", "--check", "--record"], "neither --record nor --only goes with it"),
        (["lock", "--check", "--only", "kit"], "neither --record nor --only goes with it"),
        (["generations", "target=nosuch"], "no target is called 'nosuch'"),
        (["forget", "part"], "of no use here"),
        (["dumpdb"], "of no use here"),
    ],
)
def test_wrong_arguments_are_one_short_line(tmp_path: Path, argv: list[str], says: str) -> None:
    said = refused(tmp_path, *argv)
    assert says in said
    assert len(said) < 200


def test_help_is_given_as_every_program_gives_it(project: toy.Toy) -> None:
    assert "--dry-run" in run(project, "gc", "--help")
    assert "--to=ARG" in run(project, "rollback", "-h")


def test_a_target_without_generations_says_so(tmp_path: Path) -> None:
    done = doit("generations", state=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"target demo has no generation yet in {tmp_path}: run `doit`\n")


def test_a_variable_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, "list", "taget=demo") == (
        "error: unknown variable taget=…: doit takes target, world, state_dir and ablit\n"
    )


def refused(tmp_path: Path, *argv: str) -> str:
    """The one line with which doit, on the checkout's own graph, refuses."""
    done = subprocess.run(
        [sys.executable, "-m", "doit", *argv],
        cwd=CHECKOUT, env=environment(tmp_path), capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    return done.stderr
