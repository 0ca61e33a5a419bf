"""What a target's first build brings, as far as its pins say: a disk that is too small is known before anything is fetched.

Sizes of the hub's files stand in the lock. A rank's weight file holds its share of the checkpoint: two ranks' files of dsv41's
196.2 GiB take 98 GiB each, both of them on the head for a time unless each node packs its own. The image's size is in no pin and
is not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from build.errors import TwinfoldError
from build.hub.layout import snapshot_folder
from build.locks import lockfile
from build.locks.pins import FilePin, Lock
from build.settings import Places

CHECKOUT = Path(__file__).resolve().parents[2]
WEIGHTS = ".safetensors"


@dataclass(frozen=True, slots=True)
class Unbuilt:
    """Bytes by what they are. ``files``: the head's, by their places in the hub's cache, which is at ``cache``.

    ``rank_bytes``: one rank's weight file. ``rewritten_bytes``: shards under an overlay. ``worker_bytes``: what each worker reads
    beside its ranks' files, and ``packed_bytes`` what its packer does. ``on_nodes``: each node packs its own ranks' files.
    """

    cache: str
    files: Mapping[str, int]
    world: int
    rank_bytes: int
    rewritten_bytes: int
    worker_bytes: int
    packed_bytes: int
    on_nodes: bool

    def missing(self, store: str, ranks: int, present: frozenset[str], *, head: bool) -> dict[str, int]:
        """Bytes still to come to a node by where they go, of which ``present`` are there."""
        if not head:
            return {store: ranks * self.rank_bytes + self.worker_bytes + (self.packed_bytes if self.on_nodes else 0)}
        made = ranks if self.on_nodes else self.world
        fetched = sum(size for place, size in self.files.items() if place not in present)
        return {self.cache: fetched, store: made * self.rank_bytes + self.rewritten_bytes}


def read(places: Places, checkout: Path = CHECKOUT) -> Unbuilt | None:
    """What the target's lock says; None where it has none, or pins no checkpoint."""
    folder = checkout / "lockfiles"
    try:
        lock = lockfile.read(folder / f"{places.target}.lock.toml")
        asked = places.world or int(lockfile.read_table(folder / f"{places.target}.toml").get("world", 1))
    except (TwinfoldError, OSError, ValueError):
        return None
    return of(lock, places, asked) if lock.hub("model") else None


def of(lock: Lock, places: Places, world: int) -> Unbuilt:
    """The same, of a lock. Pure but for where the home folder is."""
    named = {pin.name: pin for pin in lock.hubs if places.ablit or pin.name != "overlay"}
    files = {
        str(snapshot_folder(places.hub_cache, named[one.hub].repo, named[one.hub].revision) / one.path): one.size
        for one in lock.files
        if one.hub in named
    }
    model = lock.files_of("model")
    weights = [one for one in model if one.path.endswith(WEIGHTS)]
    packed = _bytes(weights)
    # a worker gets the checkpoint's small files and its last shard, which holds what reads images; its packer reads the others
    last = max(weights, key=lambda one: one.path).size if weights else 0
    return Unbuilt(
        str(places.hub_cache),
        files,
        world,
        packed // world,
        packed if places.ablit else 0,
        _bytes(lock.files_of("engram")) + _bytes(model) - packed + last,
        packed - last,
        places.pack_rank_caches == "node",
    )


def _bytes(files: Iterable[FilePin]) -> int:
    return sum(one.size for one in files)
