"""The node tool's binary for tests: compiled once for a state of its sources, kept under .zig-cache/ of the checkout."""

from __future__ import annotations

import fcntl
import hashlib
import json
import socket
import subprocess
import time
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from build.artefacts.toolchain import PROGRAM, TRIPLES, host, installed_root
from build.units import GIB
from tests.testing.checkout import CHECKOUT

SOURCES = CHECKOUT / "build/zig/node"
CACHE = CHECKOUT / ".zig-cache/node-tool"
NAME = "twinfold-node"
COMPILE_S = 280


@cache
def node_tool() -> Path:
    """The binary for this machine."""
    kept = CACHE / sources_key(SOURCES) / NAME
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            compile_tool(SOURCES, TRIPLES[host()], kept, CACHE)
    return kept


def sources_key(folder: Path) -> str:
    """A digest over what the binary is made from."""
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("src/**/*.zig"), folder / "parts.toml"]):
        digest.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:24]


def compile_tool(folder: Path, triple: str, binary: Path, cache_root: Path) -> None:
    """``zig build-exe`` as parts.toml says it, in the folder of the sources; the finished file appears at once."""
    parts = tomllib.loads((folder / "parts.toml").read_text())
    part = parts["parts"][NAME]
    binary.parent.mkdir(parents=True, exist_ok=True)
    made = binary.with_suffix(".new")
    argv = [
        str(installed_root() / PROGRAM), "build-exe", part["root"], *parts["flags"], "-target", triple, "--name", NAME,
        f"-femit-bin={made}", "--cache-dir", str(cache_root / "local"), "--global-cache-dir", str(cache_root / "global"),
    ]  # fmt: skip
    subprocess.run(argv, cwd=folder / "src", check=True, timeout=COMPILE_S)
    made.rename(binary)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one call printed: JSON lines, the text of standard error, the exit status."""

    lines: list[dict[str, Any]]
    errors: str
    status: int


def ask(*argv: str | bytes | Path, stdin: bytes = b"", deadline_s: float = 120) -> Answer:
    """Run the tool to its end."""
    done = subprocess.run([node_tool(), *argv], input=stdin, capture_output=True, check=False, timeout=deadline_s)
    return Answer([json.loads(line) for line in done.stdout.splitlines()], done.stderr.decode(), done.returncode)


class ProcTree:
    """A proc tree of plain files whose memory a test sets, by a rename or in place."""

    def __init__(self, root: Path, available_bytes: int) -> None:
        self.root = root
        (root / "pressure").mkdir(parents=True)
        self.set(available_bytes)

    def set(self, available_bytes: int, free_bytes: int | None = None, *, in_place: bool = False) -> float:
        """Write meminfo; the monotonic time at which the figures were there."""
        free = available_bytes if free_bytes is None else free_bytes
        rows = {
            "MemTotal": 134217728,
            "MemFree": free >> 10,
            "MemAvailable": available_bytes >> 10,
            "SwapTotal": 0,
            "SwapFree": 0,
        }
        text = "".join(f"{name + ':':<15}{kib:>10} kB\n" for name, kib in rows.items())
        target = self.root / "meminfo"
        made = target if in_place else target.with_suffix(".new")
        with made.open("r+" if in_place else "w") as file:
            file.write(text)
        if not in_place:
            made.rename(target)
        return time.monotonic()

    def set_pressure(self, some: str, full: str) -> None:
        row = "avg60=0.00 avg300=0.00 total=0"
        (self.root / "pressure/memory").write_text(f"some avg10={some} {row}\nfull avg10={full} {row}\n")


class Tree(Protocol):
    """Where a guard reads memory from."""

    @property
    def root(self) -> Path: ...


class Identified(Protocol):
    """What a guard is told of its rank."""

    @property
    def pid(self) -> int: ...

    @property
    def start_ticks(self) -> int: ...


class Victim:
    """A process of our own that stands for a rank; its end is seen through a pidfd."""

    def __init__(self, *argv: str) -> None:
        self.process = subprocess.Popen(argv or ("sleep", "1000"), stdout=subprocess.PIPE)
        self.pid = self.process.pid
        self.start_ticks = start_ticks(self.pid)

    def wait(self, deadline_s: float = 30) -> int:
        """Its status once it has ended: negative for a signal."""
        return self.process.wait(deadline_s)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()


def start_ticks(pid: int) -> int:
    """Field 22 of the process's stat."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


class Listener:
    """One client of a guard's stream."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(30)
        self.socket.connect(str(path))
        self.lines = self.socket.makefile("rb")

    def next(self) -> dict[str, Any]:
        """The next line; EOFError at the end of the stream."""
        line = self.lines.readline()
        if not line:
            raise EOFError
        found: dict[str, Any] = json.loads(line)
        return found

    def until(self, **wanted: object) -> dict[str, Any]:
        """The next line that has all these values; a key alone is asked for by ``...``."""
        while True:
            line = self.next()
            if all(key in line and value in (..., line[key]) for key, value in wanted.items()):
                return line

    def send(self, message: dict[str, object]) -> None:
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def close(self) -> None:
        self.lines.close()
        self.socket.close()


class GuardProcess:
    """A running guard over a victim and a proc tree."""

    def __init__(self, folder: Path, victim: Identified, proc: Tree, *more: str, **given: object) -> None:
        self.socket_path = folder / "guard.sock"
        self.log = folder / "guard.log"
        options: dict[str, object] = {
            "pid": victim.pid, "start-ticks": victim.start_ticks, "proc": proc.root, "hard-bytes": 2 * GIB, "soft-bytes": 4 * GIB,
            "socket": self.socket_path, "log": self.log, "launch": "launch-1", "linger-s": 0,
        }  # fmt: skip
        options |= {key.replace("_", "-"): value for key, value in given.items()}
        argv = [word for key, value in options.items() for word in (f"--{key}", str(value))]
        self.process = subprocess.Popen(
            [node_tool(), "guard", *argv, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        assert self.process.stdout
        first = self.process.stdout.readline()
        self.hello: dict[str, Any] = json.loads(first)["hello"] if first else {}

    def listen(self) -> Listener:
        return Listener(self.socket_path)

    def wait(self, deadline_s: float = 30) -> int:
        return self.process.wait(deadline_s)

    def logged(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream:
                stream.close()
