"""An engine from source, small and of the same shape: repository, patch series, base image in a registry, build container."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from build.artefacts import engine_source, git_source, toolchain
from build.errors import BuildFailed, OutputDiffers, TwinfoldError
from build.graph.graph import Artefact
from build.graph.jobs import Toolbox
from build.graph.project import Project
from build.graph.report import Report
from build.image.assemble import read_archive
from build.locks.pins import GitPin, ImagePin, Lock, PatchPin
from build.settings import Places
from build.store.hashing import sha256_bytes
from tests.testing import dockerd as daemons
from tests.testing import registry as registries

pytestmark = pytest.mark.timeout(900)
PROGRAM = "tensorfold-native"
# `zig build` compiles its own build runner first, which takes minutes; everything around the compiler is the same
COMPILE = ("zig", "build-exe", "src/main.zig", "-O", "ReleaseSmall", "-fstrip", "-femit-bin=OUT/bin/tensorfold")
MAIN = "pub fn main() u8 {\n    return 1;\n}\n"
SHORT = toolchain.host().removeprefix("linux/")


def git(folder: Path, *argv: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.org", *argv],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip()


@dataclass(frozen=True)
class Bench:
    """What an engine is built from and with."""

    source: Path
    base: ImagePin
    socket: str


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    daemons.need("dockerd", "containerd", "runc")
    folder = tmp_path_factory.mktemp("b")
    source = folder / "source"
    (source / "src").mkdir(parents=True)
    (source / "patches").mkdir()
    subprocess.run(["git", "init", "-q", "-b", "main", str(source)], check=True)
    (source / "src" / "main.zig").write_text(MAIN)
    git(source, "add", ".")
    git(source, "commit", "-qm", "one")
    for number, (old, new) in enumerate(((1, 2), (2, 3)), 1):
        text = (source / "src" / "main.zig").read_text()
        (source / "src" / "main.zig").write_text(text.replace(f"return {old};", f"return {new};"))
        (source / "patches" / f"000{number}-to-{new}.patch").write_text(git(source, "diff") + "\n")
        git(source, "commit", "-qam", f"to {new}")
    git(source, "checkout", "-q", "HEAD~2")
    git(source, "add", "patches")
    git(source, "commit", "-qm", "patches")
    with registries.registry(folder / "registry") as host, daemons.dockerd(folder) as docker:
        digest = registries.push(f"{host}/base/image", "1", [_rootfs()], SHORT)
        base = ImagePin("base_image", toolchain.host(), f"{host}/base/image:1", digest)
        yield Bench(source, base, docker.socket)


def _rootfs() -> bytes:
    """A base with nothing in it but a folder for temporary files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, mode in (("tmp", 0o1777), ("build", 0o755)):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, mode
            tar.addfile(folder)
    return out.getvalue()


class Small(Project):
    """The engine's part of a target, over the bench's repository."""

    def __init__(self, bench: Bench, state: Path, *, commit: str = "", spoil: str = "", words: tuple[str, ...] = COMPILE) -> None:
        super().__init__(Path(__file__).parents[2], Places(target="small"), state, Report(io.StringIO()))
        self._bench, self._commit, self._spoil, self._words = bench, commit, spoil, words

    @property
    def lock(self) -> Lock:
        return Lock()

    def tools(self, cache: Path | None = None) -> Toolbox:
        return replace(super().tools(cache), docker_socket=self._bench.socket)

    def _artefacts(self) -> tuple[Artefact, ...]:
        bench = self._bench
        pin = GitPin("engine", f"file://{bench.source}", self._commit or git(bench.source, "rev-parse", "HEAD"))
        patches = sorted((bench.source / "patches").glob("*.patch"))
        series = [PatchPin("patches", p.name, sha256_bytes(p.read_bytes() + self._spoil.encode())) for p in patches]
        host = toolchain.host()
        names = {PROGRAM: f"{PROGRAM}-{SHORT}"}
        return (
            toolchain.artefact(toolchain.pin_of(toolchain.installed(), host)),
            git_source.artefact("series", pin),
            git_source.artefact("engine-source", pin, series, "series", "patches"),
            engine_source.artefact("engine", "engine-source", bench.base, self._words, host),
            engine_source.base_artefact("base-image", bench.base),
            *(engine_source.program(name, binary, "engine", host) for binary, name in names.items()),
            engine_source.image_artefact(host, "base-image", names),
        )

    def make_all(self) -> dict[str, str]:
        for name in self.graph:
            if not self.ready(name):
                self.make(name)
        return {name: str(self.resolve(name).output) for name in self.graph}


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
