"""What the supervisor can be told: serving, memory, probes, restarts, logs, metrics, links and storage.

Each group is a frozen dataclass over :func:`build.settings.setting`. Keys are flat: ``config.toml`` has no tables but
``engine_env``. Only names that the shell recipe had count bare in the environment; every key counts as ``TWINFOLD_<KEY>``.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from build.errors import UsageError
from build.nodes.workers import Workers
from build.settings import (
    ENGINE_PREFIXES,
    LOCK_NAMES,
    Change,
    Parser,
    flag,
    number,
    one_of,
    optional,
    pairs,
    path,
    setting,
    text,
    whole,
    word_or,
)
from build.units import GIB

# An engine switch of the recipe that bears none of the engine's prefixes (its patch 0005).
ENGINE_NAMES = frozenset({"PREFILL_INTERLEAVE_MS"})
# Names with an engine's prefix that are settings of a recipe, never variables of the engine.
NOT_ENGINE = LOCK_NAMES | {"NCCL_RAILS"}
# Terraform's and TensorFlow's own variables share the prefix TF_, and some of Terraform's hold secrets (TF_VAR_*, TF_TOKEN_*):
# in the environment they are taken for theirs. In the table engine_env a name is meant as it stands.
FOREIGN = re.compile(
    r"TF_(VAR|TOKEN|CLI|LOG|CPP|XLA|ENABLE|FORCE|GPU|NUM|DISABLE|DETERMINISTIC|CUDNN)(_\w+)?"
    r"|TF_(DATA_DIR|INPUT|WORKSPACE|IN_AUTOMATION|PLUGIN_CACHE_DIR|PLUGIN_CACHE_MAY_BREAK_DEPENDENCY_LOCK_FILE|IGNORE"
    r"|REGISTRY_DISCOVERY_RETRY|REGISTRY_CLIENT_TIMEOUT|STATE_PERSIST_INTERVAL|USE_LEGACY_KERAS|CONFIG|CONFIG_FILE)"
)
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def _ipv4(raw: object) -> str:
    shown = text.parse(raw)
    try:
        return str(ipaddress.IPv4Address(shown)) if shown else ""
    except ValueError:
        raise ValueError("an IPv4 address (the engine takes no names), or nothing") from None


def _label(raw: object) -> str:
    shown = text.parse(raw)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", shown):
        raise ValueError("letters, digits, '_', '.' and '-', at most 63")
    return shown


def _bind(raw: object) -> str:
    shown = text.parse(raw)
    try:
        return str(ipaddress.ip_address(shown))
    except ValueError:
        raise ValueError("an address of this machine, or 0.0.0.0 for all of them") from None


ipv4 = Parser(_ipv4)
label = Parser(_label)
bind = Parser(_bind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Serve:
    """How the gang is started, and what it serves."""

    runner: str = setting(
        one_of("process", "docker"), "process", "ranks run as processes or in containers", change=Change.RUN, recipe=False
    )
    host: str = setting(bind, "127.0.0.1", "address the API listens on; elsewhere than loopback it needs an API key")
    port: int = setting(whole(1, 65535), 8888, "TCP port of the API")
    served_name: str = setting(text, "", "model id that clients use (empty: the bundle's)")
    context: int | str = setting(
        word_or("auto", whole(1024, 1 << 20)), "auto", "window in tokens, shared by all streams; auto: the largest that fits"
    )
    parallel: int = setting(whole(1, 64), 4, "requests decoded together; more wait in the queue")
    max_tokens: int = setting(whole(1, 1 << 20), 32768, "most tokens of one reply where the request names no bound")
    thinking: bool | None = setting(optional(flag), None, "think before answering by default (empty: as the engine does)")
    reasoning_effort: str | None = setting(
        optional(one_of(*EFFORTS)), None, "default reasoning effort: " + ", ".join(EFFORTS), recipe=False
    )
    thinking_budget: int | None = setting(optional(whole(0, 1 << 20)), None, "most tokens of thinking a reply", recipe=False)
    temperature: float = setting(number(0.0, 2.0), 1.0, "default sampling temperature", recipe=False)
    top_p: float = setting(number(0.0, 1.0), 0.95, "default nucleus of sampling", recipe=False)
    top_k: int = setting(whole(0, 1 << 20), 20, "default number of candidates of sampling; 0: all", recipe=False)
    drafts: bool = setting(flag, True, "speculative decoding with drafted tokens", recipe=False)
    prompt_cache_gib: float | None = setting(
        optional(number(0.0, 1024.0)), None, "GiB for kept prompt state (empty: the engine's own bound)", recipe=False
    )
    api_key_file: Path | None = setting(
        optional(path),
        None,
        "file whose first line is the API key (empty: on loopback none, else one made in the state folder)",
        recipe=False,
    )
    allow_unauthenticated: bool = setting(flag, False, "let the API leave loopback without a key", recipe=False)
    master_addr: str = setting(ipv4, "", "rank 0's IPv4 address on the link (empty: found, or loopback on one host)")
    master_port: int = setting(whole(1024, 65535), 29620, "TCP port on which the ranks meet; unauthenticated, so a private link")
    wait_timeout: int = setting(whole(1, 86400), 1800, "seconds from the first rank's start to READY")
    stop_timeout: int = setting(
        whole(1, 3600), 30, "seconds an orderly stop may take before ranks are killed", change=Change.LIVE
    )
    container_name: str = setting(label, "twinfold", "name of the gang's containers")
    docker_socket: Path | None = setting(
        optional(path), None, "socket of this node's Docker daemon (empty: /var/run/docker.sock)", change=Change.RUN, recipe=False
    )
    orphan_s: int = setting(
        whole(10, 86400), 600, "seconds that ranks go on without a supervisor before they are stopped in order", recipe=False
    )
    engine_env: tuple[tuple[str, str], ...] = setting(
        pairs, (), "a table of TF_*, TENSORFOLD_* and NCCL_* variables for every rank", recipe=False, file_only=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What must stay available on every node, and how that is watched."""

    min_avail_gib: float = setting(
        number(0.0, 1024.0), 4.0, "GiB that must stay available on every node; the hard floor is half of it"
    )
    launch_gate_gib: float = setting(
        number(0.0, 4096.0), 0.0, "GiB that must be available before a launch, if more than the plan's need", recipe=False
    )
    gate_wait_s: float = setting(
        number(0.0, 86400.0), 120.0, "seconds a launch waits for memory before it is refused", recipe=False
    )
    gate_stable_s: float = setting(number(0.0, 600.0), 0.5, "seconds the launch gate must hold without a break", recipe=False)
    floor_grace_s: float = setting(
        number(0.0, 600.0), 5.0, "seconds under the floor before the gang is stopped in order", change=Change.LIVE, recipe=False
    )
    floor_clear_s: float = setting(
        number(0.0, 60.0), 1.0, "seconds the floor must hold again before a breach is forgotten", change=Change.LIVE, recipe=False
    )
    slope_horizon_s: float = setting(
        number(0.0, 10.0), 0.5, "kill when the hard floor is nearer than these seconds", change=Change.RESTART, recipe=False
    )
    gate_on_free: bool | None = setting(
        optional(flag),
        None,
        "the launch gate counts free memory, page cache not among it, after our own pages are dropped (empty: where the target"
        " needs a GPU)",
        recipe=False,
    )
    context_least: int = setting(
        whole(1024, 1 << 20), 8192, "smallest context in tokens to which evictions lower the gang", recipe=False
    )
    ladder_up_s: float = setting(
        number(0.0, 604800.0),
        0.0,
        "seconds of quiet serving after which an evicted gang goes one rung up; 0: only `supervisor restart` does",
        change=Change.LIVE,
        recipe=False,
    )
    sample_period_s: float = setting(number(0.02, 0.5), 0.1, "seconds between memory samples", change=Change.RUN, recipe=False)
    sample_stale_s: float = setting(
        number(4.0, 60.0), 4.0, "age in seconds from which a memory sample counts no more", change=Change.LIVE, recipe=False
    )
    context_bytes_per_token: int = setting(
        whole(0, 1 << 30), 930, "bytes of memory a rank that one token of context takes", recipe=False
    )
    proc_root: Path = setting(path, Path("/proc"), "the proc tree that memory is read from", change=Change.RUN, recipe=False)
    sys_root: Path = setting(
        path, Path("/sys"), "the sys tree that ports and RDMA devices are read from", change=Change.RUN, recipe=False
    )

    @property
    def floor_bytes(self) -> int:
        """What must stay available at all times."""
        return int(self.min_avail_gib * GIB)

    @property
    def hard_floor_bytes(self) -> int:
        """Below this the ranks are killed at once: half the floor."""
        return self.floor_bytes // 2

    @property
    def launch_gate_bytes(self) -> int:
        """What the user wants available before a launch, whatever the plan says."""
        return int(self.launch_gate_gib * GIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """How a gang proves that it lives, from its smoke test on."""

    probe_period_s: float = setting(
        number(0.1, 60.0),
        1.0,
        "seconds between readings of the engine; while nothing is asked of it twice that, if below 5",
        change=Change.LIVE,
        recipe=False,
    )
    probe_deadline_s: float = setting(
        number(0.1, 600.0), 4.0, "seconds a reading of the engine may take", change=Change.LIVE, recipe=False
    )
    probe_misses: int = setting(
        whole(1, 100), 3, "readings or tiny generations missed in a row that count as dead", change=Change.LIVE, recipe=False
    )
    idle_probe_s: float = setting(
        number(1.0, 86400.0),
        60.0,
        "seconds after which a tiny generation is asked for, in idleness or where tokens are counted only at a request's end",
        change=Change.LIVE,
        recipe=False,
    )
    stall_s: float = setting(
        number(1.0, 3600.0),
        10.0,
        "seconds without a token that count as a hang while requests decode, where each is counted as it comes",
        change=Change.LIVE,
        recipe=False,
    )
    prefill_tokens_per_s: float | None = setting(
        optional(number(1.0, 1e6)),
        None,
        "slowest prefill to expect (empty: the target's); a prompt gets three times its expected time",
        change=Change.LIVE,
        recipe=False,
    )
    smoke_deadline_s: float = setting(
        number(1.0, 3600.0),
        120.0,
        "seconds for an answer of the smoke test, and for an engine's first token",
        change=Change.LIVE,
        recipe=False,
    )
    smoke_asks: int = setting(whole(1, 20), 3, "how often the smoke test asks at most", change=Change.LIVE, recipe=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """How often a gang that died comes back."""

    restart_limit: int = setting(
        whole(0, 1000), 5, "restarts in a row before giving up; 0: never restart", change=Change.LIVE, recipe=False
    )
    restart_pause_s: float = setting(
        number(0.0, 3600.0),
        0.5,
        "seconds before the first restart; each further pause is twice as long",
        change=Change.LIVE,
        recipe=False,
    )
    restart_pause_max_s: float = setting(
        number(0.0, 86400.0), 300.0, "longest pause in seconds between restarts", change=Change.LIVE, recipe=False
    )
    restart_reset_s: float = setting(
        number(1.0, 604800.0),
        3600.0,
        "seconds of serving after which earlier restarts are forgotten",
        change=Change.LIVE,
        recipe=False,
    )
    reload: str = setting(
        one_of("live", "restart", "off"),
        "live",
        "a changed config.toml or current generation: live takes at once what can be; restart also restarts for the rest",
        change=Change.LIVE,
        recipe=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """What is kept of the ranks' logs."""

    log_keep: int = setting(whole(1, 10000), 10, "launches whose logs are kept", change=Change.LIVE)
    log_dir: Path | None = setting(optional(path), None, "where ended launches' logs go (default: logs below the state folder)")
    log_format: str = setting(
        one_of("auto", "text", "json"),
        "auto",
        "the supervisor's own log; auto: JSON under systemd, else text",
        change=Change.RUN,
        recipe=False,
    )
    rank_log_max_mib: int = setting(whole(1, 65536), 256, "MiB of one rank's log that are kept", change=Change.RUN, recipe=False)

    def folder(self, state: Path) -> Path:
        """The log folder, absolute; ``state`` is the state folder."""
        return (self.log_dir or state / "logs").absolute()


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Where metrics and the status page are served."""

    metrics_host: str = setting(bind, "127.0.0.1", "address of the metrics and the status page", change=Change.RUN, recipe=False)
    metrics_port: int = setting(
        whole(0, 65535), 9888, "TCP port of the metrics and the status page; 0: any free one", change=Change.RUN, recipe=False
    )
    hardware_period_s: float = setting(
        number(0.2, 3600.0), 30.0, "seconds between readings of each node's GPU, ports and disks", change=Change.RUN, recipe=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """The link between the nodes, and where readers of a node's facts look."""

    rails: int | str = setting(
        word_or("auto", whole(1, 8)),
        2,
        "rails used at most; auto: all, and a bad one that is not the first is left out",
        recipe=False,
    )
    clock_cap_mhz: float = setting(
        number(200.0, 5000.0),
        2200.0,
        "the GPU clock cap in MHz that the doctor advises (`nvidia-smi -lgc 0,<cap>`)",
        recipe=False,
    )
    engine_gid: str = setting(
        one_of("", "one", "each", "fixed"),
        "",
        "what the engine's own RDMA takes of GID indexes. one: a single TF_RDMA_GID_INDEX for all devices of a node; each: it"
        " finds every device's own; fixed: always 5, as early builds (empty: one where the target needs RDMA)",
        recipe=False,
    )
    strict: bool = setting(flag, False, "refuse a launch on the doctor's warnings too", recipe=False)
    lease_port: int = setting(
        whole(1, 65000),
        29777,
        "UDP port on the workers at which their ranks' guards hear the head's: this and the rank's number together",
        recipe=False,
    )
    worker_proc_root: str = setting(
        text, "/proc", "the proc tree on the workers; relative to the ssh user's home", change=Change.RUN, recipe=False
    )
    worker_sys_root: str = setting(
        text, "/sys", "the sysfs tree on the workers; relative to the ssh user's home", change=Change.RUN, recipe=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """How the workers get what their ranks read."""

    storage: str = setting(
        one_of("local", "nfs"),
        "local",
        "local: copied to each worker; nfs: read from the head's store",
        change=Change.RUN,
        recipe=False,
    )
    nfs_server: str = setting(ipv4, "", "the head's IPv4 address as NFS server (empty: its address on the link)", recipe=False)
    nfs_volume: str = setting(
        text,
        "twinfold-store",
        "the Docker volume on the workers, or the path there at which the export is already mounted",
        change=Change.RUN,
    )
    nfs_path: str = setting(text, "", "the path that the head exports (empty: its store)")
    engram_on_network: bool = setting(
        flag, False, "let the Engram tables be read over a network file system, slow as that is", recipe=False
    )


GROUPS: tuple[type, ...] = (Serve, Memory, Probes, Restarts, Logs, Metrics, Workers, Links, Storage)


def engine_environment(engine_env: Iterable[tuple[str, str]], environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The engine's own variables for every rank: the table of the file, then the environment over it, sorted.

    An empty value means not set: the engine would read an empty index as 0. ``UsageError`` for a name of the table that
    is no variable of the engine.
    """
    merged: dict[str, str] = {}
    for name, value in engine_env:
        if not _is_engine_name(name):
            raise UsageError(
                f"engine_env.{name} is no variable of the engine: names begin with "
                + ", ".join(ENGINE_PREFIXES)
                + f", not {name}"
            )
        merged[name] = value.strip()
    merged.update((name, value.strip()) for name, value in environ.items() if is_engine_variable(name))
    for name, value in merged.items():
        if "\n" in value or "\x00" in value:
            raise UsageError(f"{name} holds a line break: engine variables are one line of text")
    return tuple(sorted((name, value) for name, value in merged.items() if value))


def is_engine_variable(name: str) -> bool:
    """Whether a variable of the environment is meant for the engine."""
    return _is_engine_name(name) and not FOREIGN.fullmatch(name)


def _is_engine_name(name: str) -> bool:
    return (name.startswith(ENGINE_PREFIXES) or name in ENGINE_NAMES) and name not in NOT_ENGINE
