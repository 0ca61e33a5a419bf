"""Targets that serve a checkpoint of the hub: what such a target's file wants, and the graph of artefacts that makes it.

``dsv41`` is one: checkpoint, Engram and overlay from the hub, the engine and its kit from git. A target whose engine is a
folder of this repository (the stand-in) and whose kit is derived takes the same way through hub, served folders, variants and
rank caches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from build.artefacts import bundles, engine_source, git_source, hub_files, kits, rank_cache, served, sources, toolchain
from build.errors import PinsMissing, UsageError
from build.graph import targets
from build.graph.builders import PYTHON
from build.graph.graph import Artefact
from build.graph.targets import Site
from build.hub.files import GIT_BLOB, SHA256, HubFile, Proof, Snapshot
from build.locks import lockfile, published
from build.locks.pins import Lock

ABLIT = "ablit"
PATCHES = "patches"
NEEDS = {"gpu": True, "infiniband": True, "memlock": True}  # of a rank's container (engine contract, Containers)


@dataclass(frozen=True, slots=True)
class HubWish:
    """A repository of the hub: ``ref`` a branch, tag or commit that `doit lock` resolves; ``files`` only these ([]: all).

    ``unpacked``: shards of the model that no weight file holds, so that every rank's node needs them.
    """

    repo: str
    ref: str
    files: tuple[str, ...] = ()
    unpacked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineWish:
    """The engine: a ``folder`` of this repository, or a commit of ``repo`` built by ``build``, where OUT is its prefix."""

    folder: str = ""
    repo: str = ""
    ref: str = ""
    build: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PatchWish:
    """The engine's patch series: the ``folder`` of a commit of ``repo``, its files applied in the order of their names."""

    repo: str
    ref: str
    folder: str


@dataclass(frozen=True, slots=True)
class ImageWish:
    """A registry's image: ``reference`` with its tag, and the platform that it is needed for."""

    reference: str
    platform: str


@dataclass(frozen=True, slots=True)
class KitWish:
    """The kit: the ``folder`` of a commit of ``repo``, or "" to derive it here. ``not_in_git``: files that its MANIFEST names and
    that its own tools make."""

    repo: str = ""
    ref: str = ""
    folder: str = ""
    not_in_git: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """A target as its file wants it; see :class:`build.graph.targets.Wanted` for the plain values."""

    served_name: str
    world: int
    platforms: tuple[str, ...]
    window_tokens: int
    prefill_tokens_per_s: int
    zig: str
    smoke_question: str
    smoke_answer: str
    model: HubWish
    engram: HubWish
    engine: EngineWish
    kit: KitWish
    overlay: HubWish | None = None
    patches: PatchWish | None = None
    base_image: ImageWish | None = None

    @property
    def hubs(self) -> dict[str, HubWish]:
        """Hub wishes by the name of their pin."""
        named = {"model": self.model, "engram": self.engram}
        return named | ({"overlay": self.overlay} if self.overlay else {})

    @property
    def gits(self) -> dict[str, tuple[str, str]]:
        """Git wishes by the name of their pin: repository and ref."""
        wishes = {"engine": (self.engine.repo, self.engine.ref), "kit": (self.kit.repo, self.kit.ref)}
        if self.patches:
            wishes[PATCHES] = (self.patches.repo, self.patches.ref)
        return {name: wish for name, wish in wishes.items() if wish[0]}


def read_wanted(checkout: Path, target: str) -> Wanted:
    """The target's file; ``UsageError`` names the key that is wrong."""
    path = checkout / "lockfiles" / f"{target}.toml"
    raw = lockfile.read_table(path)
    raw.pop("kind")
    published.figures(raw.pop("published", []), str(path))
    made: dict[str, type] = {
        "model": HubWish, "engram": HubWish, "overlay": HubWish, "engine": EngineWish, "base_image": ImageWish, "kit": KitWish,
        PATCHES: PatchWish,
    }  # fmt: skip
    for table, kind in made.items():
        if table in raw:
            raw[table] = _filled(kind, raw[table], f"{path}: [{table}]")
    wanted: Wanted = _filled(Wanted, raw, str(path))
    return wanted


def _filled(kind: type, raw: object, where: str) -> Any:
    if not isinstance(raw, dict):
        raise UsageError(f"{where} is no table")
    unknown = sorted(raw.keys() - {f.name for f in fields(kind)})
    if unknown:
        raise UsageError(f"{where}: {unknown[0]} is not a key of it")
    for f in fields(kind):
        value = raw.get(f.name)
        plain = {"str": str, "int": int, "tuple[str, ...]": list}.get(str(f.type))
        if f.name in raw and plain is not None and type(value) is not plain:
            raise UsageError(f"{where}: {f.name} = {value!r}: wanted {str(f.type).replace('tuple[str, ...]', 'list[str]')}")
    try:
        return kind(**{n: tuple(v) if isinstance(v, list) else v for n, v in raw.items()})
    except TypeError as error:
        raise UsageError(f"{where}: {str(error).partition('() ')[2]}") from None


def missing_pins(wanted: Wanted, lock: Lock, host: str) -> tuple[str, ...]:
    """Every pin that the lock lacks, a line each."""
    lacks = []
    pin = lock.toolchain(toolchain.NAME, host)
    if pin is None or pin.version != wanted.zig:
        lacks.append(f"toolchain zig {wanted.zig} for {host}" + (f" (it has {pin.version})" if pin else ""))
    for name, hub in wanted.hubs.items():
        there = {f.path for f in lock.files_of(name)}
        if lock.hub(name) is None or not there:
            lacks.append(f"hub {name}: commit and files of {hub.repo} at {hub.ref}")
        else:
            lacks += [f"file {name}: {path} of {hub.repo}" for path in hub.files if path not in there]
    for name, (repo, ref) in wanted.gits.items():
        if lock.git(name) is None:
            lacks.append(f"git {name}: commit of {repo} at {ref}")
    base = wanted.base_image
    if base and lock.image("base_image", base.platform) is None:
        lacks.append(f"image base_image: digest of {base.reference} for {base.platform}")
    if wanted.patches and not lock.series(PATCHES):
        lacks.append(f"patch {PATCHES}: names and sha256 of {wanted.patches.repo}, {wanted.patches.folder}")
    return tuple(lacks)


def artefacts(wanted: Wanted, lock: Lock, world: int, target: str, site: Site) -> tuple[Artefact, ...]:
    """The graph; ``PinsMissing`` lists every pin that the lock lacks."""
    lacks = missing_pins(wanted, lock, site.host)
    if lacks:
        path = targets.lock_path(site.checkout, target)
        raise PinsMissing(
            f"{path} lacks {len(lacks)} pins: {'; '.join(lacks)}: run `doit lock target={target}` on a machine that reaches them"
        )
    if site.variant == ABLIT and wanted.overlay is None:
        raise UsageError(f"ablit = true: target {target} has no abliterated variant")
    pin = lock.toolchain(toolchain.NAME, site.host)
    assert pin is not None
    platforms = sorted({site.host, *wanted.platforms})
    return (
        toolchain.artefact(pin),
        *(targets.engine(wanted.engine.folder, platforms, site) if wanted.engine.folder else _engine(wanted, lock, site.host)),
        *targets.node_tool(platforms, site),
        *_model(wanted, lock, site.variant),
        *_derived(wanted, lock, site),
        *(made for rank in range(world) for made in rank_cache.artefacts(rank, world, *targets.packing(site.host))),
        _bundle(wanted, lock, world, target, site),
    )


def _bundle(wanted: Wanted, lock: Lock, world: int, target: str, site: Site) -> Artefact:
    """The bundle; an engine from source asks for the node's GPU and ports, the stand-in for nothing."""
    made = targets.bundle(wanted, world, target, site)
    model = lock.hub("model")
    more: dict[str, object] = {"model_revision": model.revision} if model else {}
    if not wanted.engine.folder:
        more["needs"] = NEEDS
    return replace(made, params={**made.params, **more})


def _engine(wanted: Wanted, lock: Lock, host: str) -> tuple[Artefact, ...]:
    """The engine from its commit and patches, compiled in the base; then its programs one by one, and the image of them."""
    source, base = lock.git("engine"), wanted.base_image
    if base is None:
        raise UsageError("an engine that is built from source needs a [base_image]")
    image, series = lock.image("base_image", base.platform), lock.git(PATCHES)
    assert source is not None
    assert image is not None
    patched = wanted.patches is not None and series is not None
    made = [git_source.artefact("patch-series", series)] if patched and series else []
    patches = lock.series(PATCHES) if patched else ()
    folder = wanted.patches.folder if wanted.patches else ""
    tree = git_source.artefact("engine-source", source, patches, "patch-series", folder)
    engine = engine_source.artefact("engine", tree.name, image, wanted.engine.build, base.platform)
    below = engine_source.base_artefact("base-image", image)
    names = {binary: targets.program_name(role, host) for role, binary in targets.PROGRAMS.items()}
    programs = [engine_source.program(name, binary, engine.name, base.platform) for binary, name in names.items()]
    return (*made, tree, engine, below, *programs, engine_source.image_artefact(host, below.name, names))


def _model(wanted: Wanted, lock: Lock, variant: str) -> tuple[Artefact, ...]:
    """The hub's files, and the folders over them that the engine is given."""
    model = hub_files.artefact("model-files", snapshot(lock, "model"))
    engram = hub_files.artefact("engram-files", snapshot(lock, "engram"))
    made = [model, engram, served.artefact("engram", engram, wanted.engram.files)]
    if variant != ABLIT:
        return (*made, served.artefact("checkpoint", model, unpacked=wanted.model.unpacked))
    from build.artefacts import overlay

    over = hub_files.artefact("overlay-files", snapshot(lock, "overlay"))
    shards = overlay.artefact("overlay-shards", model.name, over.name)
    return (*made, over, shards, served.artefact("checkpoint", model, replaced=shards.name, unpacked=wanted.model.unpacked))


def snapshot(lock: Lock, name: str) -> Snapshot:
    """What a hub pin and its files say. ``PinsMissing`` for a file without a hash."""
    pin = lock.hub(name)
    assert pin is not None
    files = []
    for f in lock.files_of(name):
        if bool(f.sha256) == bool(f.git_blob):
            raise PinsMissing(f"the lock's file {f.path} of {name} needs one of sha256 and git_blob: run `doit lock`")
        files.append(HubFile(f.path, f.size, Proof(SHA256, f.sha256) if f.sha256 else Proof(GIT_BLOB, f.git_blob)))
    return Snapshot(pin.repo, pin.revision, tuple(files))


def _derived(wanted: Wanted, lock: Lock, site: Site) -> tuple[Artefact, ...]:
    """Token map by the stored deriver; the kit of its commit, or derived too."""
    code = ["build/__init__.py", "build/errors.py", "build/artefacts/inputs.py"]
    token_map: list[object] = ["in:model", f"out:{bundles.TOKEN_MAP}"]
    deriver = sources.artefact("deriver", site.checkout, "", code, site.hash_file)
    mapped = _python("token-map", "token_map", token_map, {"model": "checkpoint"})
    pin = lock.git("kit")
    if not wanted.kit.repo or pin is None:
        return (deriver, mapped, _python("kit", "kit", ["out:", wanted.window_tokens], {}))
    tree = git_source.artefact("kit-source", pin)
    return (
        deriver, mapped, tree,
        kits.artefact("kit", tree.name, wanted.kit.folder, wanted.kit.not_in_git, wanted.window_tokens),
    )  # fmt: skip


def _python(name: str, call: str, args: list[object], inputs: Mapping[str, str]) -> Artefact:
    params = {"call": f"build.artefacts.inputs:{call}", "args": args}
    return Artefact(name, *PYTHON, params, {"code": "deriver", **inputs})
