"""Small file systems that can be filled: one on the head for the supervisor's state, one on a worker for its store."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from pathlib import Path

from supervisor.runners import procid
from tests.testbed.hosts import Host

BLOCK = 1 << 20
IMAGE = re.compile(r"/head-volume-(\d+)-(\d+)\.img( \(deleted\))?$")  # of the process that mounted it: id, start time


def end_left_volumes() -> None:
    """Unmount what killed runs left: their folders cannot be removed before. All of one machine see the same processes here."""
    listed = subprocess.run(["losetup", "--json", "--list"], check=True, capture_output=True, text=True).stdout
    for one in json.loads(listed or "{}").get("loopdevices", []):
        owner = IMAGE.search(one["back-file"] or "")
        if owner and procid.start_ticks(int(owner[1])) != int(owner[2]):
            subprocess.run(["umount", "--lazy", one["name"]], check=False, capture_output=True)
            subprocess.run(["losetup", "--detach", one["name"]], check=False, capture_output=True)


class HeadVolume:
    """An ext4 of ``size_mib`` in a file, mounted at ``at`` both here and on the head: the head has mounts of its own."""

    def __init__(self, head: Host, at: Path, size_mib: int) -> None:
        self._head, self._at = head, at
        image = at.parent / f"head-volume-{os.getpid()}-{procid.start_ticks(os.getpid())}.img"
        at.mkdir()
        with image.open("wb") as file:
            file.truncate(size_mib << 20)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", str(image)], check=True)
        found = subprocess.run(["losetup", "--find", "--show", str(image)], check=True, capture_output=True, text=True)
        self._device = found.stdout.strip()
        subprocess.run(["mount", self._device, str(at)], check=True)
        head.run(["mount", self._device, str(at)])

    def fill(self) -> None:
        """Leave not one block."""
        _fill(self._at / "filler")

    def free(self) -> None:
        """Give the room back."""
        (self._at / "filler").unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount and let the device go."""
        self._head.run(["umount", "--lazy", str(self._at)], check=False)
        subprocess.run(["umount", "--lazy", str(self._at)], check=False)
        subprocess.run(["losetup", "--detach", self._device], check=False)


class WorkerVolume:
    """A tmpfs over a folder of a worker's home, in that host's own mounts."""

    def __init__(self, host: Host, name: str, size_mib: int) -> None:
        self._host, self._name = host, name
        host.run(["sh", "-c", f"mkdir -p {name} && mount -t tmpfs -o size={size_mib}m soak {name}"])

    def fill(self) -> None:
        """Leave not one block."""
        self._host.run(["sh", "-c", f"cat /dev/zero > {self._name}/filler"], check=False)

    def free(self) -> None:
        """Give the room back."""
        self._host.run(["rm", "-f", f"{self._name}/filler"])

    def close(self) -> None:
        """Unmount."""
        self._host.run(["umount", "--lazy", self._name], check=False)


def _fill(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        for size in (BLOCK, 4096, 1):
            with contextlib.suppress(OSError):
                while file.write(b"\0" * size):
                    pass
