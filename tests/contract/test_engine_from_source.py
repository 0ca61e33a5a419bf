"""An engine from source, small and of the same shape: fetched, patched, compiled in its container, put on its base."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from build.errors import BuildFailed, OutputDiffers, TwinfoldError
from build.image.assemble import read_archive
from tests.testing.small_engine import SHORT, Bench, Small, bench_in

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with bench_in(tmp_path_factory.mktemp("b")) as made:
        yield made


def test_an_engine_is_fetched_patched_compiled_and_put_on_its_base(bench: Bench, tmp_path: Path) -> None:
    project = Small(bench, tmp_path / "state")
    first = project.make_all()
    source = project.store.path(str(project.resolve("engine-source").entry))
    assert "return 3;" in (source / "src" / "main.zig").read_text()
    assert not (source / ".git").exists()
    server = project.store.path(str(project.resolve(f"tensorfold-native-{SHORT}").entry)) / "tensorfold-native"
    assert subprocess.run([server], check=False, timeout=60).returncode == 3
    engine = project.store.path(str(project.resolve("engine").entry))
    assert [p.name for p in engine.iterdir()] == ["bin"]
    assert (engine / "bin").stat().st_uid == os.getuid()

    image = project.store.path(str(project.resolve(f"engine-image-{SHORT}").entry)) / "image.tar"
    archive = read_archive(image)
    assert len(archive.identity.diff_ids) == 2  # the base's layer, and ours
    assert archive.config["config"]["Env"] == ["PATH=/usr/bin:/bin"]
    project.close()

    # another folder, another state: the same bytes
    again = Small(bench, tmp_path / "other" / "place")
    assert again.make_all() == first
    again.close()


@pytest.mark.parametrize(
    ("more", "kind", "says"),
    [
        ({"spoil": "x"}, OutputDiffers, "patch 0001-to-2.patch is"),
        ({"commit": "1" * 40}, BuildFailed, "git"),
        ({"words": ("zig", "no-such-command")}, BuildFailed, "zig ended with"),
    ],
)
def test_what_goes_wrong_is_named(
    bench: Bench, tmp_path: Path, more: dict[str, object], kind: type[TwinfoldError], says: str
) -> None:
    project = Small(bench, tmp_path / "state", **more)  # type: ignore[arg-type]
    with pytest.raises(kind, match=says):
        project.make_all()
    project.close()


def test_a_build_sees_no_network(bench: Bench, tmp_path: Path) -> None:
    from build.image.containers import Run, run_once

    run = Run(
        image=f"{bench.base.reference.rpartition(':')[0]}@{bench.base.digest}",
        argv=("/bin/busybox", "ls", "/sys/class/net"), cwd="/", env=(),
        mounts=((Path("/bin/busybox"), "/bin/busybox", True),), log=tmp_path / "log",
    )  # fmt: skip
    run_once(bench.socket, run, "net")
    assert run.log.read_text().split() == ["lo"]
