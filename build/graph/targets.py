"""Targets: what ``lockfiles/<target>.toml`` wants, and the graph of artefacts that makes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

from build.artefacts import bundles, rank_cache, sources, toolchain
from build.artefacts import images as image_artefacts
from build.errors import PinsMissing, UsageError
from build.graph.builders import PICK, PYTHON
from build.graph.graph import Artefact
from build.locks import lockfile, pins
from build.store.hashing import FileHash

CHECKPOINT = "checkpoint"  # the kind of a target whose file wishes for a published checkpoint
NODE = "build/zig/node"
NODE_TOOL = "twinfold-node"  # its binary, and the start of its artefacts' names
# Binaries by their role in a bundle; names from the engine's contract.
PROGRAMS = {
    "server": "tensorfold-native",
    "follower": "tf-dsv41-lanes",
    "packer": rank_cache.PACKER,
    "checker": rank_cache.CHECKER,
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """A target as its file wants it.

    ``world``: ranks; ``platforms``: of images; ``prefill_tokens_per_s``: the slowest to expect of its engine; ``zig``: the
    toolchain's version; ``text``: what the model learns.
    """

    served_name: str
    world: int
    platforms: list[str]
    window_tokens: int
    prefill_tokens_per_s: int
    zig: str
    engine: str
    text: str
    smoke_question: str
    smoke_answer: str


class Served(Protocol):
    """What a bundle takes from a target's file."""

    @property
    def served_name(self) -> str:
        """The model id."""

    @property
    def window_tokens(self) -> int:
        """The model's context window."""

    @property
    def prefill_tokens_per_s(self) -> int:
        """The slowest prefill to expect of the engine."""

    @property
    def smoke_question(self) -> str:
        """What is asked after a start."""

    @property
    def smoke_answer(self) -> str:
        """A word of the answer."""


@dataclass(frozen=True, slots=True)
class Site:
    """What a graph is made for: the checkout, this machine's platform, and the answers of the settings."""

    checkout: Path
    host: str
    hash_file: FileHash
    variant: str = "base"


def is_checkpoint(checkout: Path, target: str) -> bool:
    """True where the target's file says ``kind = "checkpoint"``; False too where there is none."""
    path = checkout / "lockfiles" / f"{target}.toml"
    return bool(target) and "/" not in target and path.is_file() and lockfile.read_table(path).get("kind") == CHECKPOINT


def read_wanted(checkout: Path, target: str) -> Wanted:
    """The target's file; ``UsageError`` names the nearest target or the key that is wrong."""
    folder = checkout / "lockfiles"
    path = folder / f"{target}.toml"
    if not target or "/" in target or target.endswith(".lock") or not path.is_file():
        raise UsageError(_no_target(folder, target))
    raw = lockfile.read_table(path)
    known = {f.name: f.type for f in fields(Wanted)}
    for key in sorted(known.keys() ^ raw.keys()):
        raise UsageError(f"{path}: {key} is {'missing' if key in known else 'not a key of a target'}")
    for key, kind in known.items():
        if type(raw[key]).__name__ != kind.removesuffix("[str]"):
            raise UsageError(f"{path}: {key} = {raw[key]!r}: wanted {kind}")
    return Wanted(**raw)


def lock_path(checkout: Path, target: str) -> Path:
    """The target's lock."""
    return checkout / "lockfiles" / f"{target}.lock.toml"


def demo(wanted: Wanted, lock: pins.Lock, world: int, target: str, site: Site) -> tuple[Artefact, ...]:
    """The demo's graph; ``PinsMissing`` lists every pin that the lock lacks."""
    pin = lock.toolchain(toolchain.NAME, site.host)
    if pin is None or pin.version != wanted.zig:
        have = "" if pin is None else f" (it has {pin.version})"
        lacks = f"lacks the pin toolchain zig {wanted.zig} for {site.host}{have}"
        raise PinsMissing(f"{lock_path(site.checkout, target)} {lacks}: run `doit lock target={target}`")
    platforms = sorted({site.host, *wanted.platforms})
    return (
        toolchain.artefact(pin),
        *engine(wanted.engine, platforms, site),
        *node_tool(platforms, site),
        *_model(wanted, site),
        *(made for rank in range(world) for made in rank_cache.artefacts(rank, world, *packing(site.host))),
        bundle(wanted, world, target, site),
    )


def program_name(role: str, platform: str) -> str:
    """The artefact that a role's binary for a platform is."""
    return f"{PROGRAMS[role]}-{platform.removeprefix('linux/')}"


def image_name(platform: str) -> str:
    """The artefact that holds the engine's image for a platform."""
    return image_artefacts.artefact(platform, {}).name


def node_tool_name(platform: str) -> str:
    """The artefact that the node tool for a platform is."""
    return f"{NODE_TOOL}-{platform.removeprefix('linux/')}"


def node_image_name(platform: str) -> str:
    """The artefact that holds the node tool's image for a platform."""
    return image_artefacts.node_artefact(platform, NODE_TOOL, "").name


def packing(host: str) -> tuple[str, str]:
    """The artefacts that hold the packer and the checker which run on a host."""
    return program_name("packer", host), program_name("checker", host)


def engine(folder: str, platforms: list[str], site: Site) -> tuple[Artefact, ...]:
    """The engine's binaries, and the images of them all."""
    images = (image_artefacts.artefact(p, {n: program_name(r, p) for r, n in PROGRAMS.items()}) for p in platforms)
    return (*_programs(folder, PROGRAMS.values(), platforms, site), *images)


def node_tool(platforms: list[str], site: Site) -> tuple[Artefact, ...]:
    """The node tool, and an image of its own, so that a change of it does not touch the gang's image."""
    images = (image_artefacts.node_artefact(p, NODE_TOOL, node_tool_name(p)) for p in platforms)
    return (*_programs(NODE, [NODE_TOOL], platforms, site), *images)


def _programs(folder: str, names: Iterable[str], platforms: list[str], site: Site) -> list[Artefact]:
    """Each binary from its own sources only, so that a changed server leaves the packer as it was."""
    table = lockfile.read_table(site.checkout / folder / "parts.toml")
    flags, parts = list(table["flags"]), table["parts"]
    made = []
    for name in names:
        source = sources.artefact(f"{name}-source", site.checkout, f"{folder}/src", parts[name]["sources"], site.hash_file)
        made += [source, *(toolchain.program(name, platform, source.name, parts[name], flags) for platform in platforms)]
    return made


def _model(wanted: Wanted, site: Site) -> tuple[Artefact, ...]:
    """Text -> checkpoint and Engram; checkpoint -> token map; kit."""
    shared = ["build/__init__.py", "build/errors.py"]
    trainer = [f"build/demo/{rel}" for rel in sources.below(site.checkout, "build/demo", ".py")]
    text = sources.below(site.checkout, wanted.text, ".txt")

    def source(name: str, base: str, files: list[str]) -> Artefact:
        return sources.artefact(name, site.checkout, base, files, site.hash_file)

    def python(name: str, code: str, call: str, args: list[object], inputs: Mapping[str, str]) -> Artefact:
        return Artefact(name, *PYTHON, {"call": call, "args": args}, {"code": code, **inputs})

    def pick(name: str, inside: str) -> Artefact:
        return Artefact(name, *PICK, {"inside": inside}, {"from": "trained"})

    train: list[object] = ["in:text", "out:model", "out:engram"]
    return (
        source("text", wanted.text, text),
        source("trainer", "", [*shared, *trainer]),
        source("deriver", "", [*shared, "build/artefacts/inputs.py"]),
        python("trained", "trainer", "build.demo.trainer:train", train, {"text": "text"}),
        pick("checkpoint", "model"),
        pick("engram", "engram"),
        python(
            "token-map",
            "deriver",
            "build.artefacts.inputs:token_map",
            ["in:model", f"out:{bundles.TOKEN_MAP}"],
            {"model": "checkpoint"},
        ),
        python("kit", "deriver", "build.artefacts.inputs:kit", ["out:", wanted.window_tokens], {}),
    )


def bundle(wanted: Served, world: int, target: str, site: Site) -> Artefact:
    """The target's last artefact: it needs all that a launch takes, and a check of every rank's cache."""
    roles = {role: program_name(role, site.host) for role in PROGRAMS}
    ranks = {f"rank{r}": rank_cache.name(r, world) for r in range(world)}
    checks = {f"check{r}": rank_cache.check_name(r, world) for r in range(world)}
    derived = {"model": "checkpoint", "engram": "engram", "token_map": "token-map", "kit": "kit"}
    params: dict[str, Any] = {
        "target": target,
        "variant": site.variant,
        "served_name": wanted.served_name,
        "world_size": world,
        "window_tokens": wanted.window_tokens,
        "prefill_tokens_per_s": wanted.prefill_tokens_per_s,
        "binaries": PROGRAMS,
        "node_tool": NODE_TOOL,
        "smoke": [wanted.smoke_question, wanted.smoke_answer],
    }
    images = {"image": image_name(site.host), "node_image": node_image_name(site.host)}
    inputs = {**images, "node_tool": node_tool_name(site.host), **roles, **ranks, **checks, **derived}
    return Artefact("bundle", bundles.BUILDER, bundles.VERSION, params, inputs, by_place=True, platform=site.host)


def _no_target(folder: Path, target: str) -> str:
    there = sorted(p.stem for p in folder.glob("*.toml") if not p.stem.endswith(".lock"))
    import difflib

    near = difflib.get_close_matches(target, there, n=1)
    return f"no target is called {target!r}: " + (f"did you mean {near[0]}?" if near else f"this checkout has {', '.join(there)}")
