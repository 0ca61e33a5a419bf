"""A `doit` with nothing to do at the real target's sizes: its shards as sparse files, their fingerprints known.

Run: ``python -m bench.noop_checkpoint FOLDER [--dvc PROGRAM]``. FOLDER takes sparse files of 400 GB apparent size and next to no
blocks. Beside it, on as many files: `dvc status` and doit's own default checker. Those two read every file once before they know
it, so theirs are of 1 MiB each; once it is known, a file's size costs neither of them anything.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from build.artefacts import hub_files, served
from build.artefacts.toolchain import host, installed, pin_of
from build.graph.graph import entry_name
from build.graph.project import Project
from build.hub.files import git_blob
from build.locks import lockfile
from build.locks.pins import FilePin, Lock
from build.settings import Places
from build.store.fingerprints import SMALL_BYTES
from build.store.hashing import tree
from build.store.record import Made, record_of

CHECKOUT = Path(__file__).resolve().parents[1]
TARGET = "dsv41"
RUNS = 15
PEAK = """
import runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_module(sys.argv[0], run_name="__main__")
finally:
    sys.stderr.write(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
GOAL_S, GOAL_BYTES = 0.3, 60 << 20


@dataclass(frozen=True, slots=True)
class Took:
    """One run: its time, and the processor's."""

    seconds: float
    cpu_s: float


def main() -> int:
    """Prepare, measure, print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dvc", type=Path)
    args = parser.parse_args()
    folder = args.folder.absolute()
    site = folder / "checkout"
    if not site.exists():
        _prepare(folder, site)
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("TWINFOLD_", "HF_"))}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    environ |= {"TWINFOLD_STATE_DIR": str(folder / "state"), "TWINFOLD_HF_CACHE": str(folder / "cache")}
    ours = [sys.executable, "-m", "doit", f"target={TARGET}"]
    said = subprocess.run(ours, cwd=site, env=environ, capture_output=True, text=True, check=True).stdout
    if "nothing to do" not in said:
        raise SystemExit(f"not a no-op: {said}")
    files = [p for p in (folder / "cache").rglob("*") if p.is_file() and not p.is_symlink()]
    apparent, used = sum(p.stat().st_size for p in files), sum(p.stat().st_blocks * 512 for p in files)
    print(f"{len(files)} files, {apparent / 1e9:.1f} GB apparent, {used / 1e6:.1f} MB on disk")
    middle_s = _say("doit target=dsv41", [_run(ours, site, environ) for _ in range(RUNS)])
    peak = _peak("doit", ours[3:], site, environ)
    print(f"{'':<34} peak {peak / (1 << 20):.0f} MiB")
    _beside(folder / "beside", len(files), environ, args.dvc)
    return 0 if middle_s <= GOAL_S and peak <= GOAL_BYTES else 1


def _prepare(folder: Path, site: Path) -> None:
    """The real lists of files in sparse form, and a store in which all that is made from them is there."""
    lock = lockfile.read(CHECKOUT / "lockfiles" / f"{TARGET}.lock.toml")
    site.mkdir(parents=True)
    for name in ("build", "supervisor", "metrics", "lockfiles"):
        subprocess.run(["cp", "-r", CHECKOUT / name, site / name], check=True)
    for name in ("dodo.py", "pyproject.toml"):
        subprocess.run(["cp", CHECKOUT / name, site / name], check=True)
    lock = replace(lock, toolchains=(pin_of(installed(), host()),))
    lock = replace(lock, files=tuple(_sparse(folder / "cache", lock, f) for f in lock.files))
    lockfile.write(site / "lockfiles" / f"{TARGET}.lock.toml", lock, lambda path, content: path.write_bytes(content) and None)
    time.sleep(0.3)  # fingerprints of files that changed a moment ago are not kept
    project = Project(site, Places(target=TARGET, hf_cache=folder / "cache"), folder / "state")
    seed = {p.sha256 or p.git_blob: p for p in lock.files}
    for kind in ("sha256", "git_blob"):
        _know(project, folder / "cache", kind, seed)
    for name in project.graph:
        _make(project, name)
    project.make_generation()
    project.close()


def _sparse(cache: Path, lock: Lock, pin: FilePin) -> FilePin:
    """A blob of the pinned size. Small ones are hashed at every look, so they are pinned to what they are."""
    hub = lock.hub(pin.hub)
    assert hub is not None
    root = cache / f"models--{hub.repo.replace('/', '--')}"
    (root / "blobs").mkdir(parents=True, exist_ok=True)
    blob = root / "blobs" / (pin.sha256 or pin.git_blob)
    with blob.open("wb") as file:
        file.truncate(pin.size)
    if pin.size <= SMALL_BYTES:
        found = git_blob(blob)
        blob = blob.rename(blob.with_name(found))
        pin = replace(pin, sha256="", git_blob=found)
    link = root / "snapshots" / hub.revision / pin.path
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(f"../../blobs/{blob.name}")
    return pin


def _know(project: Project, cache: Path, kind: str, pins: dict[str, FilePin]) -> None:
    """Let the fingerprints say of each large file what its pin says, as if it had been read."""
    learn: Callable[[Path, str, Callable[[Path], str]], str] = project.fingerprints._digest  # noqa: SLF001
    for blob in cache.glob("models--*/blobs/*"):
        pin = pins.get(blob.name)
        if pin is not None and bool(getattr(pin, kind)) and pin.size > SMALL_BYTES:
            learn(blob, "" if kind == "sha256" else "git:", lambda path: path.name)


def _make(project: Project, name: str) -> None:
    """What the hub's files are is made for real, and what is known beforehand; of the rest the store holds a small stand-in."""
    artefact = project.graph[name]
    if artefact.builder in {hub_files.BUILDER, served.BUILDER} or artefact.known_output:
        project.make(name)
        return
    found = project.resolve(name)
    assert found.key is not None
    out = project.store.scratch.new(entry_name(found.key, name))
    out.mkdir(parents=True)
    (out / "content").write_text(name)
    if name == "bundle":
        (out / "bundle.json").write_text("{}")
    inputs = {role: project.resolve(n) for role, n in artefact.inputs.items()}
    project.store.register(out, record_of(Made(artefact, found.key, 0.0, project.host, ""), inputs, tree(out)))


def _beside(folder: Path, count: int, environ: dict[str, str], dvc: Path | None) -> None:
    """The other two, over as many files of 1 MiB."""
    if not folder.exists():
        (folder / "data").mkdir(parents=True)
        for n in range(count):
            (folder / "data" / f"{n:03}").write_bytes(os.urandom(1 << 20))
        (folder / "dodo.py").write_text(
            "from pathlib import Path\n\ndef task_all():\n"
            "    return {'actions': None, 'file_dep': sorted(str(p) for p in Path('data').iterdir())}\n"
        )
    bare = [sys.executable, "-m", "doit"]
    _run(bare, folder, environ)
    _say("doit's own checker, 1 MiB files", [_run(bare, folder, environ) for _ in range(RUNS)])
    if dvc is None:
        return
    if not (folder / "data.dvc").exists():
        for argv in (["init", "--no-scm", "-q"], ["add", "-q", "data"]):
            subprocess.run([dvc, *argv], cwd=folder, env=environ, check=True)
    _run([str(dvc), "status", "-q"], folder, environ)
    _say("dvc status, 1 MiB files", [_run([str(dvc), "status"], folder, environ) for _ in range(RUNS)])


def _run(argv: Sequence[str], cwd: Path, environ: dict[str, str]) -> Took:
    started = time.monotonic()
    child = subprocess.Popen(argv, cwd=cwd, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{' '.join(argv)} ended with {child.returncode}")
    return Took(time.monotonic() - started, usage.ru_utime + usage.ru_stime)


def _peak(module: str, more: Sequence[str], cwd: Path, environ: dict[str, str]) -> int:
    """The greatest resident memory of a Python program, in bytes, as its own process knows it."""
    told = subprocess.run(
        [sys.executable, "-c", PEAK, module, *more], cwd=cwd, env=environ, capture_output=True, text=True, check=True
    )
    return int(told.stderr.split()[-2]) * 1024


def _say(what: str, runs: Sequence[Took]) -> float:
    """A line of what runs took; the middle one's seconds."""
    best = Took(min(r.seconds for r in runs), min(r.cpu_s for r in runs))
    middle = statistics.median(r.seconds for r in runs)
    print(f"{what:<34} median {middle:.3f} s, best {best.seconds:.3f} s, processor {best.cpu_s:.3f} s")
    return middle


if __name__ == "__main__":
    sys.exit(main())
