"""The Zig toolchain: a reference artefact that points at the ``ziglang`` wheel, checked before use, and the compile step.

Its identity is the set of sha256 lines that the wheel's RECORD has for the compiler and its library
(https://packaging.python.org/en/latest/specifications/recording-installed-packages/), so saying that nothing changed takes
one small read. The files themselves are hashed against those lines before every compile (from the fingerprint cache where
they were not touched). Zig compiles offline: it gets no package manifest and a cache of ours.
"""

from __future__ import annotations

import base64
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from build.errors import BuildFailed, OutputDiffers
from build.graph.graph import Artefact
from build.locks.pins import ToolchainPin
from build.machine import ARCHITECTURES, platform_of
from build.store.hashing import Entry, FileHash, sha256_bytes, tree_hash

if TYPE_CHECKING:
    from build.graph.jobs import Job

NAME = "zig"
BUILDER, VERSION = "toolchain", 1
ZIG_BUILDER, ZIG_VERSION = "zig", 1
MANIFEST = "manifest"
PROGRAM = "ziglang/zig"
LIBRARY = "ziglang/lib/"
NO_WHEEL = (
    "the ziglang wheel is not installed in this Python environment: run `make run`, which installs it from lockfiles/python.txt"
)
TRIPLES = {"linux/amd64": "x86_64-linux-musl", "linux/arm64": "aarch64-linux-musl"}


@dataclass(frozen=True, slots=True)
class Wheel:
    """The installed wheel: ``root`` is the folder that its RECORD's paths start from."""

    root: Path
    version: str
    manifest: bytes


def host() -> str:
    """This machine's platform, e.g. ``linux/amd64``."""
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        raise BuildFailed(f"this machine is {machine}: twinfold builds on {' and '.join(ARCHITECTURES)}")
    return platform_of(machine)


def installed_root() -> Path:
    """The folder that the ``ziglang`` wheel of this Python environment is installed in; ``BuildFailed`` where there is none."""
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise BuildFailed(NO_WHEEL)
    return Path(spec.origin).parent.parent


def installed() -> Wheel:
    """The installed wheel, with its RECORD read; ``BuildFailed`` where there is none, or more than one."""
    root = installed_root()
    records = sorted(root.glob("ziglang-*.dist-info/RECORD"))
    if len(records) != 1:
        raise BuildFailed(NO_WHEEL)
    version = records[0].parent.name.removeprefix("ziglang-").removesuffix(".dist-info")
    return Wheel(root, version, manifest_of(records[0].read_bytes()))


def manifest_of(record: bytes) -> bytes:
    """RECORD's own lines for the compiler and its library, sorted, one a line."""
    wanted = (f"{PROGRAM},".encode(), LIBRARY.encode())
    return (
        b"\n".join(sorted(line for line in record.splitlines() if line.startswith(wanted) and b"/__pycache__/" not in line))
        + b"\n"
    )


def pin_of(wheel: Wheel, platform: str) -> ToolchainPin:
    """The pin that says: this wheel."""
    return ToolchainPin(NAME, platform, wheel.version, sha256_bytes(wheel.manifest))


def artefact(pin: ToolchainPin) -> Artefact:
    """The toolchain as pinned; its output is known from the pin alone."""
    known = tree_hash([Entry(MANIFEST, "file", 0, pin.sha256)])
    params = {"name": pin.name, "version": pin.version, "manifest": pin.sha256}
    return Artefact("toolchain", BUILDER, VERSION, params, known_output=known, platform=pin.platform)


def describe(job: Job) -> None:
    """Write the manifest, after every file was found to be as it says."""
    wheel = installed()
    found, wanted = sha256_bytes(wheel.manifest), str(job.artefact.params["manifest"])
    if found != wanted:
        raise OutputDiffers(
            f"toolchain: ziglang {wheel.version} in {wheel.root} has manifest {found[:12]}, the lock has {wanted[:12]}: "
            "reinstall it from lockfiles/python.txt, or pin this one with `doit lock`"
        )
    verify(wheel.root, wheel.manifest, job.tools.hash_file)
    job.out.mkdir()
    (job.out / MANIFEST).write_bytes(wheel.manifest)


def verify(root: Path, manifest: bytes, hash_file: FileHash) -> None:
    """Check every file that a manifest names; ``BuildFailed`` names the first that differs or is missing."""
    from concurrent.futures import ThreadPoolExecutor

    lines = [line.rsplit(",", 2) for line in manifest.decode().splitlines()]
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda parts: _hash(root / parts[0], hash_file), lines)
        for (path, digest, _size), sha in zip(lines, found, strict=True):
            if sha != _hex(digest):
                what = "is missing" if sha is None else "differs from the wheel's RECORD"
                raise BuildFailed(f"toolchain: {root / path} {what}: reinstall ziglang from lockfiles/python.txt")


def program(name: str, platform: str, source: str, part: dict[str, Any], flags: list[str]) -> Artefact:
    """One binary compiled from one source artefact. ``name`` is the file's name in the output."""
    params = {"root": part["root"], "flags": flags, "target": TRIPLES[platform], "binary": name}
    short = platform.removeprefix("linux/")
    return Artefact(
        f"{name}-{short}", ZIG_BUILDER, ZIG_VERSION, params, {"toolchain": "toolchain", "source": source}, platform=platform
    )


def compile_program(job: Job) -> None:
    """``zig build-exe`` in the source's folder, so that no path of this machine can get into the output."""
    params = job.artefact.params
    wheels = job.tools.wheels
    verify(wheels, (job.inputs["toolchain"] / MANIFEST).read_bytes(), job.tools.hash_file)
    job.out.mkdir()
    job.run(
        str(wheels / PROGRAM), "build-exe", str(params["root"]), *params["flags"], "-target", str(params["target"]),
        "--name", str(params["binary"]), f"-femit-bin={job.out / str(params['binary'])}",
        "--cache-dir", str(job.scratch / "zig"), "--global-cache-dir", str(job.tools.cache / "zig"),
        cwd=job.inputs["source"],
    )  # fmt: skip


def _hash(path: Path, hash_file: FileHash) -> str | None:
    try:
        return hash_file(path)
    except FileNotFoundError:
        return None


def _hex(digest: str) -> str:
    """RECORD's ``sha256=`` and URL-safe base64 without padding, as hex."""
    value = digest.removeprefix("sha256=")
    return base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)).hex()
