"""What a machine says of itself: its processor, in the words of images, and which boot this is."""

from __future__ import annotations

from pathlib import Path

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # `uname -m` to Go's word, which images use
PROC = Path("/proc")


def platform_of(machine: str) -> str:
    """An image's platform, such as ``linux/arm64``, from what ``uname -m`` says; what is unknown here stays as it is."""
    return f"linux/{ARCHITECTURES[machine]}" if machine in ARCHITECTURES else machine


def boot_id(proc: Path = PROC) -> str:
    """This boot of this machine, a UUID of the kernel's (random(4)). ``OSError`` where it does not say."""
    return (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
