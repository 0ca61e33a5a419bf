"""Real stand-in engines for tests: binaries and inputs made once and kept, gangs of processes on free ports.

Binaries and inputs lie under ``$TWINFOLD_TEST_CACHE`` (default: a folder of the system's temporary one), keyed by what they are
made from. A lock file lets several test runs share them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from build.artefacts import inputs
from build.demo.trainer import CONTEXT_TOKENS, train
from tests.testing.checkout import CHECKOUT
from tests.testing.waiting import free_port

STANDIN = CHECKOUT / "build" / "zig" / "standin"
DEMO = CHECKOUT / "build" / "demo"
WORLDS = (1, 2, 4)
NAME = "twinfold-demo"
DEADLINE_S = 60.0


def parts() -> dict[str, Any]:
    """``parts.toml``: what each binary is made from."""
    return tomllib.loads((STANDIN / "parts.toml").read_text())


def compile_part(name: str, out: Path, *, source: Path = STANDIN, target: str | None = None, cache: Path | None = None) -> None:
    """Compile one binary as the build does. ``cache`` holds the compiler's caches."""
    listed, machine = parts(), os.uname().machine
    folder = cache or _cache_folder() / "zig"
    root = source / "src" / listed["parts"][name]["root"]
    argv = [
        sys.executable,
        "-m",
        "ziglang",
        "build-exe",
        str(root),
        *listed["flags"],
        "-target",
        target or f"{machine}-linux-musl",
    ]
    argv += [
        "--name",
        name,
        f"-femit-bin={out}",
        "--cache-dir",
        str(folder / "local"),
        "--global-cache-dir",
        str(folder / "global"),
    ]
    subprocess.run(argv, check=True, cwd=source, timeout=600)


def binaries() -> Path:
    """A folder with the four binaries, compiled when their sources are new."""

    def make(folder: Path) -> None:
        for name in parts()["parts"]:
            compile_part(name, folder / name)

    return _cached("standin", [*STANDIN.rglob("*.zig"), STANDIN / "parts.toml"], make)


@dataclass(frozen=True, slots=True)
class Demo:
    """The demo's inputs: model, Engram, kit, token map, and one folder of rank files for each world."""

    folder: Path

    @property
    def model(self) -> Path:
        return self.folder / "model"

    @property
    def engram(self) -> Path:
        return self.folder / "engram"

    @property
    def kit(self) -> Path:
        return self.folder / "kit"

    @property
    def token_map(self) -> Path:
        return self.folder / "dsv41_token_map.json"

    def ranks(self, world: int) -> Path:
        return self.folder / f"ranks{world}"


def demo() -> Demo:
    """The demo's inputs, made when their sources are new."""
    packer_sources = [STANDIN / "src" / name for name in parts()["parts"]["tf-dsv41-rank-cache"]["sources"]]
    made_from = [*DEMO.rglob("*.py"), *DEMO.rglob("*.txt"), CHECKOUT / "build" / "artefacts" / "inputs.py", *packer_sources]
    return Demo(_cached("demo", made_from, _make_demo))


def _make_demo(folder: Path) -> None:
    made = Demo(folder)
    train(DEMO / "text", made.model, made.engram)
    inputs.token_map(made.model, made.token_map)
    inputs.kit(made.kit, CONTEXT_TOKENS)
    for world in WORLDS:
        for rank in range(world):
            pack(made.model, made.ranks(world), rank, world)


def pack(model: Path, out: Path, rank: int, world: int, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run the packer."""
    argv = [str(binaries() / "tf-dsv41-rank-cache"), str(model), str(out), str(rank), str(world), *flags]
    return subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def _cache_folder() -> Path:
    return Path(os.environ.get("TWINFOLD_TEST_CACHE") or Path(tempfile.gettempdir()) / f"twinfold-test-cache-{os.getuid()}")


def _cached(name: str, made_from: Sequence[Path], make: Callable[[Path], None]) -> Path:
    digest = hashlib.sha256()
    for path in sorted(made_from):
        digest.update(str(path.relative_to(CHECKOUT)).encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    folder = _cache_folder() / f"{name}-{digest.hexdigest()[:20]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            make(partial)
            partial.rename(folder)
    return folder


def wait_for(what: str, ready: Callable[[], bool], deadline_s: float = DEADLINE_S) -> None:
    """Ask until ``ready`` says so; AssertionError naming ``what`` after the deadline."""
    end = time.monotonic() + deadline_s
    while not ready():
        assert time.monotonic() < end, f"not within {deadline_s} s: {what}"
        time.sleep(0.02)


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def events(self) -> list[Any]:
        """Server-sent events: each one's data, parsed; ``[DONE]`` as the string."""
        lines = [line[6:] for line in self.body.decode().splitlines() if line.startswith("data: ")]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]


@dataclass(slots=True)
class Rank:
    """One rank's process and what it wrote."""

    process: subprocess.Popen[bytes]
    log: Path

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, deadline_s: float = DEADLINE_S) -> int:
        return self.process.wait(deadline_s)


@dataclass(slots=True)
class Gang:
    """A gang of processes. Use as a context manager: leaving it kills what still runs."""

    folder: Path
    world: int = 2
    options: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    lane_flags: Sequence[str] = ()
    inputs: Demo = field(default_factory=demo)
    port: int = field(default_factory=free_port)
    master_port: int = field(default_factory=free_port)
    ranks: dict[int, Rank] = field(default_factory=dict)

    def __enter__(self) -> Self:
        for rank in [*range(1, self.world), 0]:
            self.start(rank)
        self.wait_ready()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for rank in self.ranks.values():
            rank.process.kill()
            rank.process.wait()

    def start(self, rank: int) -> Rank:
        argv = self.server_argv() if rank == 0 else self.lanes_argv(rank)
        log = self.folder / f"rank{rank}.log"
        with log.open("ab") as out:
            process = subprocess.Popen(argv, env=self.full_environment(), stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        self.ranks[rank] = Rank(process, log)
        return self.ranks[rank]

    def server_argv(self) -> list[str]:
        argv = [str(binaries() / "tensorfold-native"), "serve", str(self.inputs.model), "--host", "127.0.0.1"]
        return [*argv, "--port", str(self.port), "--name", NAME, "--backend", "cuda", *self.options]

    def lanes_argv(self, rank: int) -> list[str]:
        argv = [str(binaries() / "tf-dsv41-lanes"), str(self.inputs.model), str(self.inputs.ranks(self.world)), str(rank)]
        argv += [str(self.world), "127.0.0.1", str(self.master_port), str(self.inputs.kit)]
        return [*argv, "--engram", str(self.inputs.engram), "--token-map", str(self.inputs.token_map), *self.lane_flags]

    def full_environment(self) -> dict[str, str]:
        return {
            "TF_TP_MASTER": "127.0.0.1",
            "TF_TP_PORT": str(self.master_port),
            "TF_TP_WORLD": str(self.world),
            "TF_DS_RANK_CACHE": str(self.inputs.ranks(self.world)),
            "TF_DS_KIT": str(self.inputs.kit),
            "TENSORFOLD_CUDA_KERNELS": str(self.inputs.kit / "aot"),
            "TF_DS_ENGRAM": str(self.inputs.engram),
            "TF_DS_TOKEN_MAP": str(self.inputs.token_map),
            "TENSORFOLD_MEMORY_RESERVE_GIB": "0.25",
            **self.environment,
        }

    def wait_ready(self) -> None:
        def serving() -> bool:
            assert self.ranks[0].process.poll() is None, f"rank 0 ended: {self.ranks[0].text()}"
            return "[tensorfold] serving" in self.ranks[0].text()

        wait_for("rank 0 serves", serving)

    def request(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Answer:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def get(self, path: str) -> Answer:
        return self.request("GET", path)

    def post(self, path: str, **fields: object) -> Answer:
        return self.request("POST", path, {"model": NAME, **fields})

    def chat(self, question: str, **fields: object) -> Answer:
        """A chat request of one question, greedy and without thinking unless ``fields`` say otherwise."""
        plain: dict[str, object] = {"temperature": 0, "reasoning_effort": "none"}
        return self.post("/v1/chat/completions", messages=[{"role": "user", "content": question}], **plain | fields)

    def sha(self, question: str, **fields: object) -> str:
        """The ``token_sha`` of a chat request."""
        answer = self.chat(question, **fields)
        assert answer.status == 200, answer.body
        return str(answer.json()["tensorfold"]["token_sha"])


@contextmanager
def long_request(gang: Gang, **fields: object) -> Iterator[HTTPConnection]:
    """A streamed request that runs until the block ends, past its first event."""
    connection = HTTPConnection("127.0.0.1", gang.port, timeout=DEADLINE_S)
    question = {"role": "user", "content": "Tell me everything."}
    asked = {"model": NAME, "messages": [question], "stream": True, "ignore_eos": True, "max_tokens": 30000, **fields}
    connection.request("POST", "/v1/chat/completions", json.dumps(asked).encode(), {"Content-Type": "application/json"})
    try:
        yield connection
    finally:
        connection.close()
