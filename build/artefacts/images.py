"""Images as artefacts of the build graph: which binaries go in, the archive that comes out, and its name in a bundle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from build.errors import BuildFailed
from build.graph.graph import Artefact

if TYPE_CHECKING:  # a build with nothing to do makes no image, and need not load what does
    from build.bundle import ImageRef
    from build.graph.jobs import Job
    from build.image.identity import ImageIdentity
    from build.image.oci import Platform

BUILDER = "engine-image"
NODE_BUILDER = "node-image"
BUILDERS = frozenset({BUILDER, NODE_BUILDER})
FILE = "image.tar"
# Of build.image.recipes: raised when the same inputs are to give another image; the build graph's keys hold it.
RECIPES_VERSION = 1


def artefact(platform: str, programs: Mapping[str, str]) -> Artefact:
    """The engine's image for a platform. ``programs``: binary's file name -> the artefact that holds it, for that platform."""
    name = f"{BUILDER}-{platform.removeprefix('linux/')}"
    return Artefact(name, BUILDER, RECIPES_VERSION, {"platform": platform}, dict(programs), platform=platform)


def node_artefact(platform: str, binary: str, program: str) -> Artefact:
    """The node tool's own image. ``program`` is the artefact that holds the file ``binary``, for that platform."""
    name = f"{NODE_BUILDER}-{platform.removeprefix('linux/')}"
    return Artefact(name, NODE_BUILDER, RECIPES_VERSION, {"platform": platform}, {binary: program}, platform=platform)


def build(job: Job) -> None:
    """Assemble the engine's image from the inputs' binaries."""
    from build.image import recipes as image_recipes

    job.out.mkdir()
    with _named(job):
        image_recipes.engine_image(_binaries(job), _platform(job), job.out / FILE)


def build_node(job: Job) -> None:
    """Assemble the node tool's image from the one binary."""
    from build.image import recipes as image_recipes

    (tool,) = _binaries(job).values()
    job.out.mkdir()
    with _named(job):
        image_recipes.node_image(tool, _platform(job), job.out / FILE)


def reference(made: Path, entry: str) -> ImageRef:
    """What a bundle says of an image, from the folder that its artefact made and the entry's name in the store."""
    from build.bundle import ImageRef, StoreRef

    found = identity(made)
    return ImageRef(found.tag, found.config_digest, found.diff_ids, StoreRef(entry, FILE))


def identity(made: Path) -> ImageIdentity:
    """Which image it is that an artefact made; ``StoreDamaged`` where it is not readable."""
    from build.image.assemble import read_archive

    return read_archive(made / FILE).identity


def _binaries(job: Job) -> dict[str, Path]:
    """File name -> path: a role is the name of the file that its artefact holds."""
    return {name: folder / name for name, folder in job.inputs.items()}


def _platform(job: Job) -> Platform:
    from build.image.oci import parse_platform

    return parse_platform(str(job.artefact.params["platform"]))


@contextmanager
def _named(job: Job) -> Iterator[None]:
    try:
        yield
    except BuildFailed as error:
        raise BuildFailed(f"{job.artefact.name}: {error}") from None
