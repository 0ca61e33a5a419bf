"""What goes into which image: the demo engine's, and the node tool's own.

Two images, so that a change of the tool does not touch the gang's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from build.image.assemble import BaseImage, ImageConfig, assemble
from build.image.identity import ImageIdentity
from build.image.layers import Layer, Placed
from build.image.oci import Platform

# A host that answers to no name on the network: a daemon that lacks the image never asks a registry for it.
ENGINE_REPOSITORY = "localhost/twinfold/demo-engine"
NATIVE_REPOSITORY = "localhost/twinfold/engine"
NODE_REPOSITORY = "localhost/twinfold/node"
BINARIES_AT = "/usr/local/bin"
NODE_TOOL_AT = "/twinfold-node"

# Enough for programs that look up who they are; ranks run under the numeric ids of whoever launches them.
_ACCOUNTS = (
    ("/etc/group", "root:x:0:\nnogroup:x:65534:\n"),
    ("/etc/passwd", "root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n"),
)


def engine_image(binaries: Mapping[str, Path], platform: Platform, out: Path) -> ImageIdentity:
    """An image of static binaries alone, by their names under /usr/local/bin. The accounts' layer is below: it never changes."""
    layers = (
        Layer("accounts", files=_ACCOUNTS),
        Layer("engine", tuple(Placed(path, f"{BINARIES_AT}/{name}") for name, path in sorted(binaries.items()))),
    )
    return assemble(layers, ImageConfig(ENGINE_REPOSITORY, platform, env=(("PATH", BINARIES_AT),)), None, out)


def engine_on_base(binaries: Mapping[str, Path], platform: Platform, base: BaseImage, out: Path) -> ImageIdentity:
    """The engine's programs, by their names under /usr/local/bin, on the base that they were compiled in."""
    layer = Layer("engine", tuple(Placed(path, f"{BINARIES_AT}/{name}") for name, path in sorted(binaries.items())))
    return assemble((layer,), ImageConfig(NATIVE_REPOSITORY, platform), base, out)


def node_image(tool: Path, platform: Platform, out: Path) -> ImageIdentity:
    """The node tool: one static binary and nothing else."""
    config = ImageConfig(NODE_REPOSITORY, platform, entrypoint=(NODE_TOOL_AT,))
    return assemble((Layer("node tool", (Placed(tool, NODE_TOOL_AT),)),), config, None, out)
