"""The lock: its model, its file, what is enforced."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from build.errors import OutputDiffers, PinsMissing, UsageError
from build.graph import graph
from build.graph.graph import Artefact, Resolved
from build.locks import lockfile, pins
from build.locks.pins import Lock, Output, ToolchainPin
from tests.testing import toy

WORD = st.text("abcdef0123456789-/.", min_size=1, max_size=12)
PIN = ToolchainPin("zig", "linux/amd64", "0.17.0", "aa")
OUTPUT = Output("server", "linux/amd64", "linux/amd64", "k1", "h1")


def save(path: Path, content: bytes) -> None:
    path.write_bytes(content)


@given(
    st.lists(st.builds(ToolchainPin, WORD, WORD, WORD, WORD), max_size=3, unique_by=lambda t: (t.name, t.platform)),
    st.lists(
        st.builds(Output, WORD, WORD, WORD, WORD, WORD, st.just("") | WORD), max_size=4, unique_by=lambda o: (o.name, o.host)
    ),
)
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, toolchains: list[ToolchainPin], outputs: list[Output]
) -> None:
    path = tmp_path_factory.mktemp("lock") / "t.lock.toml"
    lock = Lock(tuple(toolchains), tuple(outputs))
    lockfile.write(path, lock, save)
    assert lockfile.read(path) == lock
    assert lockfile.write(path, lock, save) is False


def test_comments_and_order_stay_where_one_output_changes(tmp_path: Path) -> None:
    path = tmp_path / "t.lock.toml"
    lockfile.write(path, Lock((PIN,), (OUTPUT, Output("zz", "", "linux/amd64", "k", "h"))), save)
    path.write_text(path.read_text().replace('name = "server"', '# why this one\nname = "server"  # ours'))
    changed = pins.recorded(
        lockfile.read(path), [Resolved(Artefact("server", "zig", 1, platform="linux/amd64"), "k2", "h2")], "linux/amd64"
    )
    lockfile.write(path, changed, save)
    text = path.read_text()
    assert "# why this one" in text
    assert 'name = "server"  # ours' in text
    assert lockfile.read(path).expected("server", "k2") == "h2"
    assert lockfile.read(path).expected("server", "k1") is None
    assert text.index("server") < text.index("zz")


def test_an_image_s_id_stands_beside_its_hash_and_goes_with_it(tmp_path: Path) -> None:
    path = tmp_path / "t.lock.toml"
    image = Resolved(Artefact("image", "engine-image", 1), "k2", "h2")
    lockfile.write(path, pins.recorded(Lock((), (OUTPUT,)), [image], "here", {"image": "sha256:ab"}), save)
    assert path.read_text().count("image_id") == 1
    assert (lockfile.read(path).image_id("image", "k2"), lockfile.read(path).image_id("server", "k1")) == ("sha256:ab", "")
    lockfile.write(path, pins.recorded(lockfile.read(path), [image], "here"), save)
    assert "image_id" not in path.read_text()


def test_an_absent_lock_is_an_empty_one(tmp_path: Path) -> None:
    assert lockfile.read(tmp_path / "none.lock.toml") == Lock()


@pytest.mark.parametrize(
    ("content", "error", "said"),
    [
        ("version = [", UsageError, "not valid TOML"),
        ("", PinsMissing, "not a lock of version 1"),
        ("version = 2", PinsMissing, "not a lock of version 1"),
        ("version = 1\n[[strange]]\na = 1", PinsMissing, r"\[\[strange\]\]"),
        ('version = 1\n[[toolchain]]\nname = "zig"', PinsMissing, "wanted platform, sha256, version"),
        ('version = 1\n[[output]]\nname = 1\nplatform = ""\nhost = ""\nkey = ""\nhash = ""', PinsMissing, "text values only"),
    ],
)
def test_a_lock_that_cannot_be_used_says_what_is_wrong(tmp_path: Path, content: str, error: type[Exception], said: str) -> None:
    path = tmp_path / "t.lock.toml"
    path.write_text(content)
    with pytest.raises(error, match=said):
        lockfile.read(path)


def test_outputs_of_another_host_stay_when_this_one_records() -> None:
    elsewhere = Output("server", "linux/amd64", "linux/arm64", "k9", "h9")
    lock = pins.recorded(Lock(outputs=(OUTPUT, elsewhere)), [Resolved(Artefact("server", "zig", 1), "k2", "h2")], "linux/amd64")
    assert {(o.host, o.key) for o in lock.outputs} == {("linux/amd64", "k2"), ("linux/arm64", "k9")}


def test_a_pin_replaces_only_the_one_for_its_platform() -> None:
    other = ToolchainPin("zig", "linux/arm64", "0.17.0", "bb")
    lock = pins.pinned(Lock((PIN, other)), ToolchainPin("zig", "linux/amd64", "0.17.1", "cc"))
    assert [t.sha256 for t in lock.toolchains] == ["cc", "bb"]


def chain(source: str) -> tuple[Artefact, ...]:
    return (
        Artefact("source", "source", 1, {"s": source}, known_output=source),
        Artefact("binary", "zig", 1, inputs={"in": "source"}),
        Artefact("cache", "pack", 1, inputs={"in": "binary"}),
    )


def checked(locked: str, wanted: str, built: dict[str, str]) -> list[tuple[str, str]]:
    """Kinds of difference, for a lock recorded for one source and a store built for another."""
    made = graph.resolve(chain(locked), lambda _, name: {"binary": "hb", "cache": "hc"}.get(name))
    lock = pins.recorded(Lock(), made.values(), "h")
    by_lock = graph.resolve(chain(wanted), lock.index)
    by_store = graph.resolve(chain(wanted), lambda _, name: built.get(name))
    return [(d.name, d.kind) for d in pins.compare(lock, by_lock, by_store)]


def test_check_needs_nothing_built_where_the_lock_says_all() -> None:
    assert checked("s", "s", {}) == []


def test_check_names_the_first_key_that_the_lock_lacks_and_what_hangs_on_it() -> None:
    assert checked("s", "edited", {}) == [("binary", "not locked"), ("cache", "not known")]


def test_check_sees_that_a_rebuilt_binary_came_out_the_same() -> None:
    assert checked("s", "edited", {"binary": "hb", "cache": "hc"}) == [("binary", "not locked")]


def test_check_sees_an_output_that_differs() -> None:
    assert checked("s", "s", {"binary": "other", "cache": "hc"}) == [("binary", "differs"), ("cache", "not locked")]


def test_an_output_that_differs_from_its_lock_is_not_registered(tmp_path: Path) -> None:
    free = toy.Toy(toy.checkout(tmp_path / "src"), tmp_path / "one")
    toy.make_all(free)
    found = free.resolve("shouted")
    assert found.key is not None
    lock = Lock(outputs=(Output("shouted", "", free.host, found.key, "0" * 64),))
    bound = toy.Toy(tmp_path / "src", tmp_path / "two", lock=lock)
    with pytest.raises(OutputDiffers, match="nothing was registered"):
        toy.make_all(bound)
    bound.close()
    assert not bound.ready("shouted")
    assert list((tmp_path / "two" / "store" / "tmp").iterdir()) == []


def test_the_lock_binds_only_the_key_that_it_names(tmp_path: Path) -> None:
    lock = Lock(outputs=(Output("shouted", "", "linux/amd64", "0" * 32, "0" * 64),))
    project = toy.Toy(toy.checkout(tmp_path / "src"), tmp_path / "state", lock=lock)
    toy.make_all(project)
    assert "shouted" in project.not_locked()
    assert "words" not in project.not_locked()
