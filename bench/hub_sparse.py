"""A file of 101 GB through the ranged download: killed in mid-file, resumed, hashed; memory, rate and what was sent.

Run: ``python -m bench.hub_sparse FOLDER [--gb 101.5]``. The test hub makes the file's zeros as it sends, and they are written
as holes, so FOLDER takes next to nothing. Goals: under 200 MB of memory, no byte that was stored is sent again.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from build.hub import layout, transfer
from build.hub.files import SHA256, HubFile, Proof
from tests.testing.hub import Repo, Sparse, TestHub

REPO, COMMIT, PATH = "example-org/big", "1" * 40, "model-00047-of-00048.safetensors"
MEMORY_GOAL_BYTES = 200 * 10**6
FETCH = """
import sys
from pathlib import Path
from build.hub import space
from build.hub.cache import Told, complete
from build.hub.shelf import Shelf
from build.hub.client import LibraryHub
from build.hub.files import HubFile, Proof, Snapshot
from build.store.hashing import sha256_file
endpoint, cache, repo, commit, path, size, sha = sys.argv[1:]
space.require = lambda *_: None  # zeros become holes: the file takes next to nothing of the disk
snapshot = Snapshot(repo, commit, (HubFile(path, int(size), Proof("sha256", sha)),))
complete(Shelf(Path(cache), sha256_file), snapshot, lambda: LibraryHub(endpoint, ""), Told(print))
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gb", type=float, default=101.53515)
    args = parser.parse_args()
    size = int(args.gb * 1e9)
    marks = {0: b"head", size // 2: b"middle", size - 4: b"tail"}
    started = time.monotonic()
    digest = hashlib.sha256()
    for block in Sparse(size, marks).blocks(0, size):
        digest.update(block)
    sha = digest.hexdigest()
    print(f"{size / 1e9:.1f} GB, hashed alone at {size / 1e9 / (time.monotonic() - started):.2f} GB/s")
    blob = layout.repo_folder(args.folder, REPO) / "blobs" / sha
    file = HubFile(PATH, size, Proof(SHA256, sha))
    with TestHub({REPO: Repo(COMMIT, {PATH: Sparse(size, marks, sha)})}) as hub:
        child = _fetcher(hub, args.folder, size, sha)
        map_file = blob.with_name(blob.name + transfer.MAP)
        while _stored(map_file, child) < size // 3:
            time.sleep(1)
        child.send_signal(signal.SIGKILL)
        child.communicate()
        kept = transfer.done_bytes(blob, file)
        time.sleep(1)
        hub.log.clear()
        started = time.monotonic()
        out, _ = _fetcher(hub, args.folder, size, sha).communicate()
        took = time.monotonic() - started
        peak = int(out.split()[-1]) * 1024
        sent = hub.sent_bytes(PATH)
    print(f"killed with {kept / 1e9:.2f} GB stored; then {sent / 1e9:.2f} GB were sent, {(size - kept) / 1e9:.2f} were missing")
    print(f"resumed and hashed in {took:.0f} s ({size / 1e9 / took:.2f} GB/s of the file), peak {peak / 1e6:.0f} MB")
    print(f"on disk: {blob.stat().st_size / 1e9:.1f} GB apparent, {blob.stat().st_blocks * 512 / 1e6:.2f} MB of blocks")
    return 0 if peak < MEMORY_GOAL_BYTES and sent == size - kept else 1


def _fetcher(hub: TestHub, cache: Path, size: int, sha: str) -> subprocess.Popen[str]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    argv = [sys.executable, "-c", FETCH, hub.endpoint, str(cache), REPO, COMMIT, PATH, str(size), sha]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environ, cwd=Path(__file__).resolve().parents[1])


def _stored(map_file: Path, child: subprocess.Popen[str]) -> int:
    """What is stored by now, read beside the process that holds the map."""
    from build.hub.extents import HEADER, ROW

    if child.poll() is not None:
        raise SystemExit(f"the fetch ended early with {child.returncode}")
    if not map_file.exists():
        return 0
    raw = map_file.read_bytes()
    rows = max(0, len(raw) - HEADER.size) // ROW.size
    return sum(ROW.unpack_from(raw, HEADER.size + n * ROW.size)[0] for n in range(rows))


if __name__ == "__main__":
    sys.exit(main())
