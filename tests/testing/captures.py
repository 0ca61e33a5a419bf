"""A healthy pair of Sparks as `supervisor doctor --save` keeps it, changed, and nodes that print what such a folder holds."""

from __future__ import annotations

import base64
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from build.bundle import Bundle, Engine, Needs, StoreRef, to_json
from build.nodes import ssh_errors
from build.nodes.node import Result
from build.store import generations
from build.store.hashing import Entry
from build.store.record import Record
from build.store.store import Store
from build.units import GIB
from supervisor.doctor import folder
from supervisor.doctor.collect import Raw
from supervisor.doctor.probe import PING
from supervisor.doctor.script import SCRIPT

PAIR = Path(__file__).resolve().parents[1] / "captures/pair"
STORE = "/home/ops/.local/share/twinfold/store"
REAL = Needs(gpu=True, infiniband=True, memlock=True)
SIZES = {"engram": 189 * GIB, "kit": 1 << 20, "map": 1 << 20, "model": GIB, "rank0": 60 * GIB, "rank1": 60 * GIB}
ENTRIES = {name: f"{number:032x}-{name}" for number, name in enumerate(SIZES, 1)}


def built(state: Path, needs: Needs = REAL, target: str = "dsv41") -> None:
    """A generation of a target in a state folder: records with sizes, and no bytes."""
    store = Store(state / "store")
    for name, entry in ENTRIES.items():
        (state / "store" / entry).mkdir(parents=True)
        files = (Entry("data", "file", SIZES[name], "0" * 64),)
        store.write_record(Record(entry[:32], name, "test", 1, {}, {}, files, "0" * 64))
    ref = {name: StoreRef(entry) for name, entry in ENTRIES.items()}
    bundle = Bundle(
        target=target,
        variant="base",
        served_name="test",
        world_size=2,
        window_tokens=65536,
        prefill_tokens_per_s=400,
        engine=Engine(*[ref["kit"]] * 4),
        model=ref["model"],
        rank_caches=(ref["rank0"], ref["rank1"]),
        rank_cache_bytes=(SIZES["rank0"], SIZES["rank1"]),
        kit=ref["kit"],
        token_map=ref["map"],
        engram=ref["engram"],
        needs=needs,
    )
    entry = state / "store" / f"{'f' * 32}-bundle"
    entry.mkdir()
    (entry / generations.BUNDLE_FILE).write_text(to_json(bundle))
    generations.make(state, target, entry.name)


def copied(where: Path, *edits: tuple[str, str, str]) -> Path:
    """The healthy pair's folder with edits: a file, what stands there ("" for all of it), and what is to stand there.

    What stands there must be there.
    """
    shutil.copytree(PAIR, where)
    for name, old, new in edits:
        content = (where / name).read_text()
        assert old in content, f"{name} has no {old!r}"
        (where / name).write_text(content.replace(old, new) if old else new)
    return where


def troubled(where: Path, kind: str, message: str, target: str = "ops@spark-b") -> None:
    """Make the folder's worker one that could not be read."""
    index = json.loads((where / folder.INDEX).read_text())
    index["worker"] = {"trouble": [kind, message, target]}
    (where / folder.INDEX).write_text(json.dumps(index))
    shutil.rmtree(where / "worker")


class Played:
    """A node that prints what a folder holds of it, as of now; ``ran`` has every other command that it was given."""

    def __init__(self, name: str, raw: Raw, outcomes: Mapping[str, str]) -> None:
        self.name, self._raw, self._outcomes = name, raw, outcomes
        self.store = PurePosixPath(STORE)
        self.ran: list[Sequence[str]] = []

    def run(self, argv: Sequence[str], deadline_s: float, *, stdin: bytes | None = None, check: bool = True) -> Result:
        """See :class:`build.nodes.node.Node`."""
        del deadline_s, check
        if self._raw.trouble:
            error: type[ssh_errors.NodeError] = getattr(ssh_errors, self._raw.trouble.kind)
            raise error(self.name, self._raw.trouble.message.removeprefix(f"{self.name}: "))
        if argv[:2] == ["sh", "-c"] and argv[2].endswith(SCRIPT):
            return Result(self._printed().encode(), b"", 0, 0.0)
        if argv[:2] == ["sh", "-c"] and argv[2] == PING:
            keys = [line.split()[0] for line in (stdin or b"").decode().splitlines()]
            answers = "".join(f"{key} {0 if self._outcomes.get(key, 'ok') == 'ok' else 1}\n" for key in keys)
            return Result(answers.encode(), b"", 0, 0.0)
        self.ran.append(argv)
        return Result(b"", b"", 0, 0.0)

    def docker_socket(self) -> Path:
        """See :class:`build.nodes.node.Node`."""
        raise AssertionError("nobody connects to a folder's daemon")

    def close(self) -> None:
        """See :class:`build.nodes.node.Node`."""

    def _printed(self) -> str:
        """The sections as the script prints them; its clock is as far from this one as the folder says."""
        texts = {name: (one.text, one.status) for name, one in self._raw.sections.items()}
        skew_s = float(texts["end.txt"][0]) - (self._raw.read_at_s or 0.0)
        texts["end.txt"] = (f"{time.time() + skew_s:.9f}\n", 0)
        coded = {name: base64.b64encode(f"{text}\n@@{status}".encode()).decode() for name, (text, status) in texts.items()}
        return "".join(f"{name} {code}\n" for name, code in coded.items())


def played(where: Path) -> dict[str, Played]:
    """A node for each of a folder's."""
    outcomes = {f"{one.rail}/{one.node}": one.outcome for one in folder.load_probed(where)}
    return {name: Played(name, raw, outcomes) for name, raw in folder.load(where).items()}
