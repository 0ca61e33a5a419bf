"""The bundle: everything one launch needs, as one JSON file in the store.

It is the last artefact of a target and the only thing the supervisor reads of the build. Places are store-relative
(:class:`StoreRef`), so one bundle means the same on every node however its store is called there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from build.errors import Refused, StoreDamaged

FORMAT = 3
OTHER_VARIANT = "the abliterated variant: figures measured on the original checkpoint do not validate it"


@dataclass(frozen=True, slots=True)
class StoreRef:
    """A file or folder in the store: ``entry`` is ``<key>-<name>``, ``inside`` a path below it ("": the entry itself)."""

    entry: str
    inside: str = ""

    def under(self, store: Path) -> Path:
        """Where it lies in a given store."""
        return store / self.entry / self.inside if self.inside else store / self.entry


@dataclass(frozen=True, slots=True)
class ImageRef:
    """An image by what it is: config digest and rootfs diff ids, never ``.Id``. ``archive`` is the tar that loads it."""

    tag: str
    config_digest: str
    diff_ids: tuple[str, ...]
    archive: StoreRef


@dataclass(frozen=True, slots=True)
class Engine:
    """The engine's binaries in the store, for ranks that run as processes and for checks on the head."""

    server: StoreRef
    follower: StoreRef
    packer: StoreRef
    checker: StoreRef


@dataclass(frozen=True, slots=True)
class NodeTool:
    """The node tool for one platform: its static binary in the store, and the image that holds that binary alone."""

    program: StoreRef
    image: ImageRef


@dataclass(frozen=True, slots=True)
class Needs:
    """What a rank's container asks of its node."""

    gpu: bool = False
    infiniband: bool = False
    memlock: bool = False


@dataclass(frozen=True, slots=True)
class Bundle:
    """One launch of one variant of one target. ``rank_caches[r]`` is the folder that holds rank r's weight file.

    ``window_tokens`` is the model's context window, ``prefill_tokens_per_s`` the slowest to expect of the engine; ``env``
    goes to every rank; ``smoke`` is a question and a word of its answer.
    """

    target: str
    variant: str
    served_name: str
    world_size: int
    window_tokens: int
    prefill_tokens_per_s: int
    engine: Engine
    model: StoreRef
    rank_caches: tuple[StoreRef, ...]
    rank_cache_bytes: tuple[int, ...]
    kit: StoreRef
    token_map: StoreRef
    engram: StoreRef | None = None
    image: Mapping[str, ImageRef] = field(default_factory=dict)  # by platform, e.g. linux/amd64
    node_tool: Mapping[str, NodeTool] = field(default_factory=dict)  # by platform too
    env: tuple[tuple[str, str], ...] = ()
    needs: Needs = Needs()
    smoke: tuple[str, str] = ("What is 6 times 7? Answer with the number alone.", "42")
    model_revision: str = ""


def needed(bundle: Bundle, rank: int, *, processes: bool = False) -> tuple[str, ...]:
    """Store entries that a node needs to run this rank: its own weight file and no other's, and what every rank reads.

    ``processes``: ranks run as plain processes, so the binaries are needed; containers have them in their image.
    """
    refs: list[StoreRef | None] = [bundle.model, bundle.kit, bundle.token_map, bundle.engram, bundle.rank_caches[rank]]
    if processes:
        refs.append(bundle.engine.server if rank == 0 else bundle.engine.follower)
    return tuple(sorted({ref.entry for ref in refs if ref is not None}))


def to_json(bundle: Bundle) -> str:
    """Canonical text: the same bundle gives the same bytes."""
    import dataclasses

    return json.dumps({"format": FORMAT, **dataclasses.asdict(bundle)}, sort_keys=True, indent=1) + "\n"


def from_json(content: str, where: str) -> Bundle:
    """Read a bundle; ``Refused`` where another version of twinfold wrote it, ``StoreDamaged`` where it is none.

    ``where`` names the file in the error.
    """
    try:
        raw: dict[str, Any] = json.loads(content)
        found = raw.pop("format")
        if found != FORMAT:
            raise Refused(f"{where} is a bundle of format {found}, this version of twinfold reads format {FORMAT}: run `doit`")
        return _bundle(raw)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreDamaged(f"{where} is no readable bundle ({error}): run `doit repair`") from None


def _bundle(raw: dict[str, Any]) -> Bundle:
    ref = _ref
    return Bundle(
        **{
            **raw,
            "engine": Engine(**{name: ref(value) for name, value in raw["engine"].items()}),
            "model": ref(raw["model"]),
            "rank_caches": tuple(ref(r) for r in raw["rank_caches"]),
            "rank_cache_bytes": tuple(raw["rank_cache_bytes"]),
            "kit": ref(raw["kit"]),
            "token_map": ref(raw["token_map"]),
            "engram": ref(raw["engram"]) if raw["engram"] else None,
            "image": {platform: _image(value) for platform, value in raw["image"].items()},
            "node_tool": {platform: _node_tool(value) for platform, value in raw["node_tool"].items()},
            "env": tuple((k, v) for k, v in raw["env"]),
            "needs": Needs(**raw["needs"]),
            "smoke": tuple(raw["smoke"]),
        }
    )


def _ref(raw: dict[str, str]) -> StoreRef:
    return StoreRef(**raw)


def _image(raw: dict[str, Any]) -> ImageRef:
    return ImageRef(raw["tag"], raw["config_digest"], tuple(raw["diff_ids"]), _ref(raw["archive"]))


def _node_tool(raw: dict[str, Any]) -> NodeTool:
    return NodeTool(_ref(raw["program"]), _image(raw["image"]))
