"""An engine from source in small, of the real one's shape: repository, patch series, base in a registry, build container."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from build.artefacts import engine_source, git_source, toolchain
from build.graph.graph import Artefact
from build.graph.jobs import Toolbox
from build.graph.project import Project
from build.graph.report import Report
from build.locks.pins import GitPin, ImagePin, Lock, PatchPin
from build.settings import Places
from build.store.hashing import sha256_bytes
from tests.testing import dockerd as daemons
from tests.testing import registry as registries

PROGRAM = "tensorfold-native"
# `zig build` compiles its own build runner first, which takes minutes: bench.engine_build does that; all around it is the same
COMPILE = ("zig", "build-exe", "src/main.zig", "-O", "ReleaseSmall", "-fstrip", "-femit-bin=OUT/bin/tensorfold")
BUILD = ("zig", "build", "-Doptimize=ReleaseSmall", "-p", "OUT")
BUILD_ZIG = """const std = @import("std");

pub fn build(b: *std.Build) void {
    const module = b.createModule(.{
        .root_source_file = b.path("src/main.zig"),
        .target = b.standardTargetOptions(.{}),
        .optimize = b.standardOptimizeOption(.{}),
        .strip = true,
    });
    b.installArtifact(b.addExecutable(.{ .name = "tensorfold", .root_module = module }));
}
"""
MAIN = "pub fn main() u8 {\n    return 1;\n}\n"
SHORT = toolchain.host().removeprefix("linux/")


def git(folder: Path, *argv: str) -> str:
    """What git says."""
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


@contextmanager
def bench_in(folder: Path) -> Iterator[Bench]:
    """A repository with two patches, a registry with the base, and a daemon, in a folder with a short name."""
    daemons.need("dockerd", "containerd", "runc")
    source = folder / "source"
    (source / "src").mkdir(parents=True)
    (source / "patches").mkdir()
    subprocess.run(["git", "init", "-q", "-b", "main", str(source)], check=True)
    (source / "src" / "main.zig").write_text(MAIN)
    (source / "build.zig").write_text(BUILD_ZIG)
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
        """Make what is missing; every artefact's output."""
        for name in self.graph:
            if not self.ready(name):
                self.make(name)
        return {name: str(self.resolve(name).output) for name in self.graph}
