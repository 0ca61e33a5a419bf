"""Images in the build graph: the key and the identity follow from the binaries' bytes, never from where they lie."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from build.artefacts.images import FILE, artefact, build, build_node, node_artefact, reference
from build.bundle import StoreRef
from build.errors import BuildFailed
from build.graph.graph import Artefact, Resolved, key_of
from build.graph.jobs import Job, Toolbox

PLATFORMS = ("linux/amd64", "linux/arm64")
PROGRAMS = {"server": "server-arm64", "lanes": "lanes-arm64"}


def _inputs(folder: Path, names: Mapping[str, str]) -> dict[str, Path]:
    made = {}
    for name in names:
        (folder / f"entry-{name}").mkdir(parents=True)
        (folder / f"entry-{name}" / name).write_text(f"binary {name}")
        (folder / f"entry-{name}" / name).chmod(0o555)
        made[name] = folder / f"entry-{name}"
    return made


def _job(one: Artefact, inputs: Mapping[str, Path], folder: Path) -> Job:
    return Job(one, f"key-{one.name}", inputs, {}, folder / "out", folder, cast("Toolbox", None))


@pytest.mark.parametrize("platform", PLATFORMS)
def test_two_folders_make_the_same_image_for_each_platform(platform: str, tmp_path: Path) -> None:
    one = artefact(platform, PROGRAMS)
    found = []
    for folder in (tmp_path / "a", tmp_path / "some/where/else"):
        build(_job(one, _inputs(folder, PROGRAMS), folder))
        found.append(reference(folder / "out", "entry"))
    assert found[0] == found[1]
    assert found[0].archive == StoreRef("entry", FILE)
    assert (tmp_path / "a/out" / FILE).read_bytes() == (tmp_path / "some/where/else/out" / FILE).read_bytes()


def test_each_platform_has_an_image_of_its_own(tmp_path: Path) -> None:
    found = set()
    for platform in PLATFORMS:
        folder = tmp_path / platform
        build(_job(artefact(platform, PROGRAMS), _inputs(folder, PROGRAMS), folder))
        found.add(reference(folder / "out", "entry").config_digest)
    assert len(found) == 2
    assert len({artefact(platform, PROGRAMS).name for platform in PLATFORMS}) == 2


def test_the_key_follows_from_the_binaries_outputs() -> None:
    one = artefact("linux/arm64", PROGRAMS)

    def key(server: str, entry: str) -> str | None:
        made = {"server": server, "lanes": "same"}
        return key_of(one, {role: Resolved(Artefact(entry + role, "b", 1), "k" + entry, made[role]) for role in PROGRAMS})

    assert key("1", "x") == key("1", "y")
    assert key("1", "x") != key("2", "x")


def test_the_tools_image_does_not_touch_the_gangs(tmp_path: Path) -> None:
    tool = node_artefact("linux/arm64", "twinfold-node", "twinfold-node-arm64")
    assert tool.inputs == {"twinfold-node": "twinfold-node-arm64"}
    assert not set(artefact("linux/arm64", PROGRAMS).inputs.values()) & set(tool.inputs.values())
    build_node(_job(tool, _inputs(tmp_path, tool.inputs), tmp_path))
    assert reference(tmp_path / "out", "entry").tag.startswith("localhost/twinfold/node:")


def test_a_missing_binary_fails_by_the_artefacts_name(tmp_path: Path) -> None:
    one = artefact("linux/arm64", PROGRAMS)
    inputs = _inputs(tmp_path, PROGRAMS)
    (inputs["lanes"] / "lanes").unlink()
    with pytest.raises(BuildFailed, match=r"engine-image-arm64: .*lanes is to become /usr/local/bin/lanes"):
        build(_job(one, inputs, tmp_path))
