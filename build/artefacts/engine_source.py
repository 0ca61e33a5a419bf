"""The engine compiled from source in a container of the pinned base: no network, fixed paths and times, only the output kept.

Source paths and times enter compiled kernels, so the source is always at the same place with the store's one time. Then single
programs are taken out, so that a rank cache is keyed by its packer alone.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from build.artefacts import images as image_artefacts
from build.artefacts import toolchain
from build.errors import BuildFailed
from build.graph.graph import Artefact
from build.locks.pins import ImagePin
from build.store.hashing import sha256_bytes

if TYPE_CHECKING:
    from build.graph.jobs import Job
    from build.image.containers import Run

BUILDER, VERSION = "native-engine", 1
PART_BUILDER, PART_VERSION = "program", 1
BASE_BUILDER, BASE_VERSION = "base-image", 1
IMAGE_BUILDER = "native-image"
BIN = "bin"
MANIFEST, CONFIG = "manifest.json", "config.json"
SOURCE_AT, OUT_AT, ZIG_AT, CACHE_AT = "/build/source", "/build/out", "/build/zig", "/build/cache"
OUT_WORD = re.compile(r"(?<![A-Za-z0-9_])OUT(?![A-Za-z0-9_])")
OTHER_NAMES = {"tensorfold-native": "tensorfold"}  # what some builds of the engine call it


def artefact(name: str, source: str, base: ImagePin, command: Sequence[str], platform: str) -> Artefact:
    """The output tree of ``command`` (``zig …`` with OUT as its prefix), run over a git artefact in the base image."""
    params = {"base": by_digest(base.reference, base.digest), "command": list(command)}
    return Artefact(name, BUILDER, VERSION, params, {"source": source, "toolchain": "toolchain"}, platform=platform)


def program(name: str, binary: str, engine: str, platform: str) -> Artefact:
    """One program out of the engine's output tree."""
    return Artefact(name, PART_BUILDER, PART_VERSION, {"binary": binary}, {"engine": engine}, platform=platform)


def base_artefact(name: str, base: ImagePin) -> Artefact:
    """The base image's manifest and config, as its registry has them; its layers stay where Docker keeps them."""
    params = {"reference": base.reference, "digest": base.digest, "platform": base.platform}
    return Artefact(name, BASE_BUILDER, BASE_VERSION, params, platform=base.platform)


def image_artefact(platform: str, base: str, programs: Mapping[str, str]) -> Artefact:
    """The engine's image: its programs on the base."""
    name = image_artefacts.artefact(platform, {}).name
    params = {"platform": platform}
    return Artefact(name, IMAGE_BUILDER, image_artefacts.RECIPES_VERSION, params, {"base": base, **programs}, platform=platform)


def by_digest(reference: str, digest: str) -> str:
    """``host/repository@sha256:…`` of a reference: its tag may have moved since."""
    name = reference.partition("@")[0]
    host, _, rest = name.partition("/")
    return f"{host}/{rest.partition(':')[0]}@{digest}"


def compile_engine(job: Job) -> None:
    """Run the build in its container; ``BuildFailed`` names the log where it fails."""
    from build.image.containers import run_once

    if job.artefact.platform != toolchain.host():
        raise BuildFailed(
            f"{job.artefact.name} is compiled on {job.artefact.platform}, and this machine is {toolchain.host()}: build it there"
        )
    toolchain.verify(job.tools.wheels, (job.inputs["toolchain"] / toolchain.MANIFEST).read_bytes(), job.tools.hash_file)
    source, out, cache = job.scratch / "source", job.scratch / "out", job.tools.cache / "native"
    shutil.copytree(job.inputs["source"], source, symlinks=True)
    for folder, _, _ in os.walk(source):
        Path(folder).chmod(0o755)
    (out / BIN).mkdir(parents=True)
    cache.mkdir(parents=True, exist_ok=True)
    run = _in_container(job, source, out, cache)
    run_once(job.tools.docker_socket, run, job.artefact.name)
    if not (out / BIN).is_dir() or not any((out / BIN).iterdir()):
        raise BuildFailed(
            f"{job.artefact.name}: the build ended well and left no program in {BIN}/ of its prefix (log: {run.log})"
        )
    out.rename(job.out)


def _in_container(job: Job, source: Path, out: Path, cache: Path) -> Run:
    """The command with the container's own paths, which enter what it compiles."""
    from build.image.containers import Run

    params = job.artefact.params
    words = [f"{ZIG_AT}/zig" if n == 0 and w == "zig" else w for n, w in enumerate(params["command"])]
    return Run(
        image=str(params["base"]),
        argv=tuple(OUT_WORD.sub(OUT_AT, w) for w in words),
        cwd=SOURCE_AT,
        env=(
            ("HOME", CACHE_AT),
            ("SOURCE_DATE_EPOCH", "1"),
            ("ZIG_GLOBAL_CACHE_DIR", CACHE_AT),
            ("ZIG_LOCAL_CACHE_DIR", CACHE_AT),
        ),
        mounts=(
            (source, SOURCE_AT, False),
            (out, OUT_AT, False),
            (cache, CACHE_AT, False),
            ((job.tools.wheels / toolchain.PROGRAM).parent, ZIG_AT, True),
        ),
        log=job.tools.logs / f"{job.artefact.name}.log",
    )


def take_program(job: Job) -> None:
    """Copy one program."""
    binary = str(job.artefact.params["binary"])
    source = job.inputs["engine"] / BIN / binary
    if not source.is_file() and binary in OTHER_NAMES:
        source = source.with_name(OTHER_NAMES[binary])
    if not source.is_file():
        there = sorted(p.name for p in source.parent.iterdir())
        raise BuildFailed(f"{job.artefact.name}: the engine's build made no {binary}: it made {', '.join(there) or 'nothing'}")
    job.out.mkdir()
    shutil.copyfile(source, job.out / binary)
    (job.out / binary).chmod(0o755)


def describe_base(job: Job) -> None:
    """Ask the registry for what the digest names."""
    from build.image import registry
    from build.image.oci import parse_platform

    params = job.artefact.params
    name = registry.parse(by_digest(str(params["reference"]), str(params["digest"])))
    found = registry.Registry(name).find(parse_platform(str(params["platform"])))
    job.out.mkdir()
    (job.out / MANIFEST).write_bytes(found.manifest)
    (job.out / CONFIG).write_bytes(found.config)


def build_image(job: Job) -> None:
    """Assemble the image: one layer of programs on the base's own."""
    from build.image import recipes as image_recipes
    from build.image import registry
    from build.image.assemble import BaseImage
    from build.image.oci import parse_platform

    base = job.inputs["base"]
    manifest, config = (base / MANIFEST).read_bytes(), (base / CONFIG).read_bytes()
    params = job.records["base"].params
    reference = by_digest(str(params["reference"]), str(params["digest"]))
    found = registry.Found(str(params["digest"]), f"sha256:{sha256_bytes(manifest)}", manifest, config)
    below = BaseImage(reference, config, found.layers)
    programs = {name: folder / name for name, folder in job.inputs.items() if name != "base"}
    job.out.mkdir()
    image_recipes.engine_on_base(
        programs, parse_platform(str(job.artefact.params["platform"])), below, job.out / image_artefacts.FILE
    )
