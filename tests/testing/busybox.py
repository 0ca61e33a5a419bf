"""A small image whose ranks are shell scripts: Debian's static busybox at the path that it has on the host too."""

from __future__ import annotations

from pathlib import Path

import pytest

from build.bundle import ImageRef, StoreRef
from build.image.assemble import ImageConfig, assemble
from build.image.layers import Layer, Placed
from tests.testing.dockerd import HERE

SHELL = ("/bin/busybox", "sh", "-c")


def busybox_image(store: Path) -> ImageRef:
    """The image, its archive in a store entry."""
    program = Path(SHELL[0])
    if not program.exists():
        pytest.skip("busybox-static is not installed")
    entry = "0000000000-busybox-image"
    (store / entry).mkdir(parents=True)
    folders = (("/tmp/.keep", ""), ("/etc/passwd", "root:x:0:0:root:/:/bin/sh\n"))
    layers = (Layer("busybox", (Placed(program, SHELL[0]),), folders),)
    identity = assemble(layers, ImageConfig("localhost/t/busybox", HERE), None, store / entry / "image.tar")
    return ImageRef(identity.tag, identity.config_digest, identity.diff_ids, StoreRef(entry, "image.tar"))
