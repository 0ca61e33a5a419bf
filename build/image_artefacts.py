"""Images as artefacts of the build graph: which binaries go in, the archive that comes out, and its name in a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from build import image_recipes
from build.bundle import ImageRef, StoreRef
from build.errors import BuildFailed
from build.graph import Artefact
from build.image import read_archive
from build.jobs import Job
from build.oci import parse_platform

BUILDER = "engine-image"
FILE = "image.tar"


def artefact(platform: str, programs: Mapping[str, str]) -> Artefact:
    """The engine's image for a platform. ``programs``: binary's file name -> the artefact that holds it, for that platform."""
    name = f"{BUILDER}-{platform.removeprefix('linux/')}"
    return Artefact(name, BUILDER, image_recipes.VERSION, {"platform": platform}, dict(programs), platform=platform)


def build(job: Job) -> None:
    """Assemble the image from the inputs' binaries."""
    platform = parse_platform(str(job.artefact.params["platform"]))
    binaries = {name: folder / name for name, folder in job.inputs.items()}
    job.out.mkdir()
    try:
        image_recipes.engine_image(binaries, platform, job.out / FILE)
    except BuildFailed as error:
        raise BuildFailed(f"{job.artefact.name}: {error}") from None


def reference(made: Path, entry: str) -> ImageRef:
    """What a bundle says of an image, from the folder that its artefact made and the entry's name in the store."""
    identity = read_archive(made / FILE).identity
    return ImageRef(identity.tag, identity.config_digest, identity.diff_ids, StoreRef(entry, FILE))
