"""The engine's contract as data: one table from the gang's settings to every rank's arguments and environment.

Rank 0 (``tensorfold-native serve``) takes flags for serving and environment for the model; the other ranks
(``tf-dsv41-lanes``) take positionals and flags. The engine compares nothing between ranks, and ranks that differ hang, so
both sides come from here, and :func:`parity` compares what the ranks log with what was asked. Pure: no files, no clock.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from build.bundle import Bundle
from build.errors import UsageError
from supervisor.settings import Serve

# Variables that the launch itself decides; a user's value would part the ranks or point at other files.
MANAGED = frozenset(
    {"TF_TP_MASTER", "TF_TP_PORT", "TF_TP_WORLD", "TF_DS_RANK_CACHE", "TF_DS_KIT", "TF_DS_ENGRAM", "TF_DS_TOKEN_MAP"}
    | {"TENSORFOLD_CUDA_KERNELS"}
)
# Environment of rank 0 whose twin on the other ranks is a flag: the gang-wide half of the contract. Every rank gets the
# variable, the followers get the flag as well. Switches are "1" or "0" on both sides.
TWINS: Mapping[str, str] = {
    "TF_RDMA_DEVICES": "--rdma",
    "TF_DS_GRAPHS": "--graphs",
    "TF_DS_HC_SIDE": "--side",
    "TF_DS_L2_PREFETCH": "--prefetch",
    "TF_DS_ENGRAM_AIO": "--aio",
    "TF_DS_ARENA_GIB": "--arena-gib",
    "TF_DS_RDMA_KERNELS": "--rdma-kernels",
    "TF_DS_ROUND_ROWS": "--round-rows",
    "TF_DS_STREAMS": "--streams",
}


@dataclass(frozen=True, slots=True)
class RankPaths:
    """A rank's inputs as the rank itself sees them: store paths for a process, mount points in a container."""

    model: str
    rank_cache: str
    kit: str
    token_map: str
    engram: str | None = None
    api_key_file: str | None = None


@dataclass(frozen=True, slots=True)
class NodeLocal:
    """What only the rank's own node knows, resolved anew at every launch. Empty where ranks meet over plain TCP.

    ``gid_index`` is None where no single index fits every device: NCCL then gets the RoCE version and the address range.
    """

    rdma_devices: tuple[str, ...] = ()
    gid_index: int | None = None
    address_range: str = ""
    socket_ifname: str = ""

    def environment(self) -> dict[str, str]:
        """NCCL's and the engine's variables for this node."""
        found: dict[str, str] = {}
        if self.rdma_devices:
            found["NCCL_IB_HCA"] = found["TF_RDMA_DEVICES"] = ",".join(self.rdma_devices)
        if self.gid_index is not None:
            found["NCCL_IB_GID_INDEX"] = found["TF_RDMA_GID_INDEX"] = str(self.gid_index)
        elif self.address_range:
            found["NCCL_IB_ROCE_VERSION_NUM"] = "2"
            found["NCCL_IB_ADDR_RANGE"] = self.address_range
        if self.socket_ifname:
            found["NCCL_SOCKET_IFNAME"] = self.socket_ifname
        return found


@dataclass(frozen=True, slots=True)
class RankCommand:
    """One rank's command line and the engine's part of its environment. ``argv[0]`` is the binary as the rank sees it.

    ``local`` names the variables that were resolved for this launch on this node; the launch spec's hash leaves them out.
    """

    rank: int
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    local: frozenset[str] = field(default=frozenset())


@dataclass(frozen=True, slots=True)
class _Gang:
    """All that goes into the commands of one launch beside the bundle and the serve settings."""

    context_tokens: int
    paths: Sequence[RankPaths]
    binaries: tuple[str, str]
    master: str
    node_locals: Sequence[NodeLocal]
    engine_env: Mapping[str, str]
    reserve_gib: float | None


@dataclass(frozen=True, slots=True)
class Difference:
    """A rank that says something else than what was asked of the gang."""

    rank: int
    what: str
    asked: str
    found: str

    def __str__(self) -> str:
        return f"rank {self.rank} has {self.what} {self.found}, the gang was asked for {self.asked}"


@dataclass(frozen=True, slots=True)
class Logged:
    """What a rank says of itself when loaded; None where its build does not say."""

    rank: int
    pool_tokens: int | None = None
    context_tokens: int | None = None
    drafts: bool | None = None


def gang_commands(
    bundle: Bundle,
    serve: Serve,
    context_tokens: int,
    paths: Sequence[RankPaths],
    *,
    binaries: tuple[str, str],
    master: str,
    node_locals: Sequence[NodeLocal] = (),
    engine_env: Iterable[tuple[str, str]] = (),
    reserve_gib: float | None = None,
) -> tuple[RankCommand, ...]:
    """The command of every rank of the bundle, rank 0 first. ``UsageError`` where a setting cannot be given to the engine.

    ``binaries`` are the server and the follower as the ranks see them; ``master`` is rank 0's IPv4 address on the link;
    ``engine_env`` comes from :func:`supervisor.settings.engine_environment`; ``reserve_gib`` is the engine's own start-up
    reserve, which has to agree with the floor. No ``node_locals`` means plain TCP between the ranks.
    """
    gang = _Gang(context_tokens, paths, binaries, master, node_locals, dict(engine_env), reserve_gib)
    _check(bundle, serve, gang)
    return tuple(_rank(rank, bundle, serve, gang) for rank in range(bundle.world_size))


def spec_hash(commands: Iterable[RankCommand], *extra: object) -> str:
    """sha256 of the canonical launch spec, without values that are resolved per launch and node.

    ``extra`` is whatever else makes two launches differ (the bundle's entry, the image identity), as JSON values.
    """
    rows = [[c.rank, _without_local(c), [[k, v] for k, v in c.env if k not in c.local]] for c in commands]
    canonical = json.dumps([rows, list(extra)], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


def parity(asked_context: int, asked_drafts: bool, logged: Iterable[Logged]) -> tuple[Difference, ...]:
    """Where what the ranks logged is not what was asked. A value that a build does not log is no difference.

    The pool holds the context's positions for all streams together, so it is the same number.
    """
    found: list[Difference] = []
    for one in logged:
        rows: tuple[tuple[str, object, object], ...] = (
            ("pool", asked_context, one.pool_tokens),
            ("context", asked_context, one.context_tokens),
            ("drafts", _on(asked_drafts), None if one.drafts is None else _on(one.drafts)),
        )
        found += [Difference(one.rank, what, str(want), str(got)) for what, want, got in rows if got is not None and got != want]
    return tuple(found)


def _check(bundle: Bundle, serve: Serve, gang: _Gang) -> None:
    world = bundle.world_size
    if len(gang.paths) != world or len(gang.node_locals or gang.paths) != world:
        raise UsageError(f"the bundle has {world} ranks, but places for {len(gang.paths)} were given: run `doit` again")
    for name in sorted(MANAGED & gang.engine_env.keys()):
        raise UsageError(f"{name} = {gang.engine_env[name]}: the launch sets this variable itself on every rank: unset it")
    try:
        ipaddress.IPv4Address(gang.master)
    except ValueError:
        raise UsageError(f"master_addr = {gang.master}: the engine takes an IPv4 address only, no name") from None
    loopback = ipaddress.ip_address(serve.host).is_loopback
    if not (loopback or serve.allow_unauthenticated or all(p.api_key_file for p in gang.paths[:1])):
        raise UsageError(
            f"host = {serve.host} opens the API to others without a key: set api_key_file, or allow_unauthenticated = true"
        )
    if not 0 < gang.context_tokens <= bundle.window_tokens:
        raise UsageError(f"context = {gang.context_tokens}: the model's window is {bundle.window_tokens} tokens")


def _rank(rank: int, bundle: Bundle, serve: Serve, gang: _Gang) -> RankCommand:
    common = _common_environment(bundle, gang)
    local = gang.node_locals[rank].environment() if gang.node_locals else {}
    env = {**local, **common}  # what a user sets by hand wins over what was found
    here = gang.paths[rank]
    if rank == 0:
        env |= _rank0_environment(bundle, serve, gang, here)
        argv = (gang.binaries[0], "serve", here.model, *_serve_flags(bundle, serve, gang.context_tokens, here))
    else:
        head = (here.model, here.rank_cache, str(rank), str(bundle.world_size), gang.master, str(serve.master_port), here.kit)
        argv = (gang.binaries[1], *head, *_follower_flags(serve, gang.context_tokens, here, env))
    return RankCommand(rank, argv, tuple(sorted(env.items())), frozenset(local) - frozenset(common))


def _common_environment(bundle: Bundle, gang: _Gang) -> dict[str, str]:
    """Variables that are the same on every rank."""
    reserve = {} if gang.reserve_gib is None else {"TENSORFOLD_MEMORY_RESERVE_GIB": f"{gang.reserve_gib:g}"}
    return {**reserve, **dict(bundle.env), **gang.engine_env}


def _rank0_environment(bundle: Bundle, serve: Serve, gang: _Gang, here: RankPaths) -> dict[str, str]:
    env = {
        "TF_TP_WORLD": str(bundle.world_size),
        "TF_TP_MASTER": gang.master,
        "TF_TP_PORT": str(serve.master_port),
        "TF_DS_RANK_CACHE": here.rank_cache,
        "TF_DS_KIT": here.kit,
        "TENSORFOLD_CUDA_KERNELS": f"{here.kit}/aot",
        "TF_DS_TOKEN_MAP": here.token_map,
    }
    return env | ({"TF_DS_ENGRAM": here.engram} if here.engram else {})


def _serve_flags(bundle: Bundle, serve: Serve, context_tokens: int, here: RankPaths) -> list[str]:
    flags: list[tuple[str, object]] = [
        ("--host", serve.host),
        ("--port", serve.port),
        ("--name", serve.served_name or bundle.served_name),
        ("--api-key-file", here.api_key_file),
        ("--context", context_tokens),
        ("--parallel", serve.parallel),
        ("--max-tokens", serve.max_tokens),
        ("--temperature", float(serve.temperature)),
        ("--top-p", float(serve.top_p)),
        ("--top-k", serve.top_k),
        ("--reasoning-effort", serve.reasoning_effort),
        ("--thinking-budget", serve.thinking_budget),
        ("--prompt-cache-gib", None if serve.prompt_cache_gib is None else f"{serve.prompt_cache_gib:g}"),
        ("--backend", "cuda"),
    ]
    words = [] if serve.thinking is None else ["--thinking" if serve.thinking else "--no-thinking"]
    return [*_flat(flags), *words, *([] if serve.drafts else ["--no-drafts"])]


def _follower_flags(serve: Serve, context_tokens: int, here: RankPaths, env: Mapping[str, str]) -> list[str]:
    flags: list[tuple[str, object]] = [
        ("--pool", context_tokens),
        ("--context", context_tokens),
        ("--engram", here.engram),
        ("--token-map", here.token_map),
        ("--drafts", None if serve.drafts else 0),  # on is every build's default, but some count drafts and others switch them
        *((twin, env.get(name)) for name, twin in TWINS.items()),
    ]
    return _flat(flags)


def _flat(flags: Iterable[tuple[str, object]]) -> list[str]:
    return [word for name, value in flags if value is not None for word in (name, str(value))]


def _without_local(command: RankCommand) -> list[str]:
    """The arguments without flags whose value was resolved per launch."""
    twins = {TWINS[name] for name in command.local if name in TWINS}
    argv = command.argv
    return [word for at, word in enumerate(argv) if word not in twins and (at == 0 or argv[at - 1] not in twins)]


def _on(value: bool) -> str:
    return "on" if value else "off"
