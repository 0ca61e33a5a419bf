"""The real targets in small: their own lists of files, with contents that the stand-in engine serves.

The lock's shape is ``dsv41``'s, name by name; only sizes and hashes are of the small contents, and the engine is the stand-in.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from build.artefacts import toolchain
from build.artefacts.overlay import places
from build.demo.safetensors import Tensor, write_file, write_json
from build.locks import lockfile
from build.locks.pins import FilePin, HubPin, Lock
from tests.testing.checkout import CHECKOUT
from tests.testing.hub import Content, Repo, blob_id, sha256
from tests.testing.standin import demo

TARGET = "dsv41"
WISH = """kind = "checkpoint"
served_name = "DeepSeek-V4.1-Flash"
world = 2
platforms = []
window_tokens = 65536
prefill_tokens_per_s = 20000
zig = "0.17.0"
smoke_question = "What is 6 times 7? Answer with the number alone."
smoke_answer = "42"
[engine]
folder = "build/zig/standin"
[kit]
"""
HUB = '[{name}]\nrepo = "{repo}"\nref = "main"\nfiles = {files}\nunpacked = {unpacked}\n'


def real_lock() -> Lock:
    """The lock of the real target."""
    return lockfile.read(CHECKOUT / "lockfiles" / f"{TARGET}.lock.toml")


def repos(folder: Path) -> dict[str, Repo]:
    """Repositories of the hub by pin name, with the real lists of files and small contents."""
    lock = real_lock()
    made = demo()
    contents = {
        "model": _model(made.model, [f.path for f in lock.files_of("model")], folder / "model"),
        "engram": _engram(made.engram, [f.path for f in lock.files_of("engram")], folder / "engram"),
        "overlay": _overlay(made.model, [f.path for f in lock.files_of("overlay")], folder / "overlay"),
    }
    found = {}
    for name, files in contents.items():
        pin = lock.hub(name)
        assert pin is not None
        lfs = frozenset(f.path for f in lock.files_of(name) if f.sha256)
        found[name] = Repo(pin.revision, files, lfs)
    return found


def checkout(folder: Path, hubs: Mapping[str, Repo]) -> Path:
    """A copy of what a build reads, with the target and its lock for the small contents."""
    skip = shutil.ignore_patterns("__pycache__")
    for name in ("build", "supervisor", "metrics"):
        shutil.copytree(CHECKOUT / name, folder / name, ignore=skip)
    for name in ("dodo.py", "pyproject.toml"):
        shutil.copy2(CHECKOUT / name, folder / name)
    (folder / "lockfiles").mkdir()
    real = real_lock()
    wish = WISH
    pins: list[HubPin] = []
    files: list[FilePin] = []
    for name, repo in hubs.items():
        pin = real.hub(name)
        assert pin is not None
        pins.append(pin)
        only = sorted(repo.files) if name == "engram" else []
        shards = sorted(path for path in repo.files if path.endswith(".safetensors"))
        wish += HUB.format(name=name, repo=pin.repo, files=only, unpacked=shards[-1:] if name == "model" else [])
        files += [file_pin(name, path, repo) for path in sorted(repo.files)]
    (folder / "lockfiles" / f"{TARGET}.toml").write_text(wish)
    zig = toolchain.pin_of(toolchain.installed(), toolchain.host())
    lock = replace(Lock(), toolchains=(zig,), hubs=tuple(pins), files=tuple(files))
    lockfile.write(folder / "lockfiles" / f"{TARGET}.lock.toml", lock, lambda path, content: path.write_bytes(content) and None)
    return folder


def file_pin(name: str, path: str, repo: Repo) -> FilePin:
    """The pin of a file of a test hub's repository."""
    content = repo.files[path]
    assert isinstance(content, bytes)
    if repo.in_lfs(path):
        return FilePin(name, path, len(content), sha256=sha256(content))
    return FilePin(name, path, len(content), git_blob=blob_id(content))


def by_repo(hubs: Mapping[str, Repo]) -> dict[str, Repo]:
    """The same by the hub's own names."""
    lock = real_lock()
    return {pin.repo: hubs[pin.name] for pin in lock.hubs}


def _tensors(folder: Path) -> dict[str, Tensor]:
    """Every tensor of a checkpoint."""
    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        content = file.read_bytes()
        for name, place in places(file):
            found[name] = Tensor(place.dtype, place.shape, content[place.start : place.start + place.bytes])
    return found


def _model(trained: Path, paths: Sequence[str], folder: Path) -> dict[str, Content]:
    """The trained model over as many shards as the real one has; the last holds the vision table, as there."""
    shards = [p for p in paths if p.endswith(".safetensors")]
    tensors = _tensors(trained)
    homes = {name: shards[-1] if name.startswith("vision") else shards[n % (len(shards) - 1)] for n, name in enumerate(tensors)}
    for shard in shards:
        homes.setdefault(f"padding.{shard}", shard)
        tensors[f"padding.{shard}"] = Tensor("U8", (8,), hashlib.sha256(shard.encode()).digest()[:8])
    return _written(paths, homes, tensors, trained, folder)


def _engram(trained: Path, paths: Sequence[str], folder: Path) -> dict[str, Content]:
    shards = [p for p in paths if p.endswith(".safetensors")]
    tensors = _tensors(trained)
    homes = dict(zip(sorted(tensors), shards, strict=True))
    return _written(paths, homes, tensors, trained, folder)


def _overlay(trained: Path, paths: Sequence[str], folder: Path) -> dict[str, Content]:
    """Tensors that replace some of the checkpoint's: the vision words in another case."""
    name, old = next((n, t) for n, t in _tensors(trained).items() if n.startswith("vision"))
    folder.mkdir(parents=True)
    (path,) = paths
    write_file(folder / path, {name: Tensor(old.dtype, old.shape, old.data.upper())})
    return {path: (folder / path).read_bytes()}


def _written(
    paths: Sequence[str], homes: Mapping[str, str], tensors: Mapping[str, Tensor], trained: Path, folder: Path
) -> dict[str, Content]:
    folder.mkdir(parents=True)
    index = "model.safetensors.index.json"
    for shard in sorted(set(homes.values())):
        write_file(folder / shard, {name: tensors[name] for name, home in homes.items() if home == shard})
    write_json(folder / index, {"metadata": {}, "weight_map": dict(homes)})
    for path in paths:
        if not (folder / path).exists():
            there = trained / path
            (folder / path).write_bytes(there.read_bytes() if there.exists() else f"small {path}\n".encode())
    return {path: (folder / path).read_bytes() for path in paths}
