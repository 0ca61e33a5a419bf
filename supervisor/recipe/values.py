"""What a shell recipe's values mean here, and which of them are known to end badly. Pure.

Each key gets one judgement: ok, warn (taken, or meant as something else, or left out, with the reason) or fail.
"""

from __future__ import annotations

import dataclasses
import difflib
import ipaddress
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from build.settings import ENGINE_PREFIXES, LOCK_NAMES, Places
from build.units import GIB
from supervisor.settings import ENGINE_NAMES, GROUPS, NOT_ENGINE

WHOLE_WINDOW = 1 << 20
KNOWN_GOOD_CONTEXT = 524288  # suits a head with 6 GiB in use by other software
SHARED_HEAD_BYTES = 5 * GIB  # more than this in use on an idle head is other software's
SHORTEST_WAIT_S = 300  # a rank alone looks for its peer for about as long
RECIPE_RANK_BYTES = int(98.7 * GIB)  # the rank file of the recipe's model, of which each machine loads one
RENAMED = {"rails": "NCCL_RAILS"}  # our name -> the recipe's, where they differ
# Never imported, and why.
LEFT_OUT = {
    **dict.fromkeys(("HF_TOKEN", "API_KEY"), "a secret: keep it in the environment or in a file of its own"),
    **dict.fromkeys(LOCK_NAMES, "belongs to the lock: give it to `doit lock`"),
    "DRY_RUN": "a flag of one command, no setting: `supervisor run --dry-run`",
}
SECRETS = frozenset({"HF_TOKEN", "API_KEY"})


@dataclass(frozen=True, slots=True)
class Machine:
    """What is known of the head when values are judged; None where it is not."""

    total_bytes: int | None = None
    available_idle_bytes: int | None = None
    rank_needs_bytes: int | None = None
    has_api_key: bool = False


def rank_needs(total_bytes: int) -> int | None:
    """What the recipe's rank needs on a machine that could hold one; None where the recipe never served."""
    return RECIPE_RANK_BYTES if total_bytes > RECIPE_RANK_BYTES else None


@dataclass(frozen=True, slots=True)
class Judgement:
    """One value judged. ``settings`` are the keys of config.toml that it becomes, none where it has no effect."""

    key: str
    value: str
    verdict: str
    why: str = ""
    settings: tuple[tuple[str, Any], ...] = ()
    engine_env: tuple[tuple[str, str], ...] = ()


def judge(values: Mapping[str, str], machine: Machine, known: frozenset[str]) -> tuple[Judgement, ...]:
    """Judge every value, in the order given. ``known`` are the keys that config.toml may hold; no other is proposed."""
    return tuple(_only_known(_one(key, value, machine), known) for key, value in values.items())


def _only_known(found: Judgement, known: frozenset[str]) -> Judgement:
    missing = [key for key, _ in found.settings if key not in known]
    if not missing:
        return found
    kept = tuple((key, value) for key, value in found.settings if key in known)
    return dataclasses.replace(found, verdict="warn", why=f"there is no setting {', '.join(missing)} here", settings=kept)


def _one(key: str, value: str, machine: Machine) -> Judgement:
    special = _SPECIAL.get(key)
    if special is not None:
        return special(key, value, machine)
    if key in LEFT_OUT:
        return Judgement(key, "" if key in SECRETS else value, "warn", LEFT_OUT[key])
    if (key.startswith(ENGINE_PREFIXES) or key in ENGINE_NAMES) and key not in NOT_ENGINE:
        return _engine(key, value)
    item = _fields().get(key)
    return _unknown(key, value) if item is None else _setting(item, key, value)


def _engine(key: str, value: str) -> Judgement:
    if not value:
        return Judgement(key, value, "ok", "empty: not set, and never read as 0")
    return Judgement(key, value, "ok", "an engine switch for every rank", engine_env=((key, value),))


def _setting(item: dataclasses.Field[Any], key: str, value: str) -> Judgement:
    try:
        parsed = item.metadata["parser"].parse(value)
    except ValueError as error:
        return Judgement(key, value, "fail", f"wanted {error}")
    shown = parsed if isinstance(parsed, (bool, int, float, str)) else str(parsed)
    return Judgement(key, value, "ok", settings=() if parsed is None else ((item.name, shown),))


def _unknown(key: str, value: str) -> Judgement:
    near = difflib.get_close_matches(key, [*_fields(), *_SPECIAL], n=1, cutoff=0.75)
    return Judgement(key, value, "warn", f"unknown; {near[0]} is meant" if near else "unknown setting")


def _context(key: str, value: str, machine: Machine) -> Judgement:
    found = _setting(_fields()[key], key, value)
    total, idle = machine.total_bytes, machine.available_idle_bytes
    if found.verdict != "ok" or value == "auto" or int(value) <= KNOWN_GOOD_CONTEXT or total is None or idle is None:
        return found
    if total - idle < SHARED_HEAD_BYTES:
        return found
    used = f"{(total - idle) / GIB:.0f} GiB used by others on the head"
    size = "the whole window of the model" if int(value) == WHOLE_WINDOW else f"{value} tokens"
    return dataclasses.replace(found, verdict="warn", why=f"{size}; with {used} {KNOWN_GOOD_CONTEXT} is the known good value")


def _min_avail(key: str, value: str, machine: Machine) -> Judgement:
    """The recipe asked for it before a launch only; a floor that could never hold beside the weights was meant so."""
    found = _setting(_fields()[key], key, value)
    if found.verdict != "ok" or machine.total_bytes is None or machine.rank_needs_bytes is None:
        return found
    need, total = machine.rank_needs_bytes, machine.total_bytes
    if float(value) * GIB + need <= total:
        return found
    why = f"{float(value):g} + {need / GIB:.1f} GiB is more than the machine has: it was a gate before launch"
    return Judgement(key, value, "warn", why, (("launch_gate_gib", float(value)),))


def _host(key: str, value: str, machine: Machine) -> Judgement:
    found = _setting(_fields()[key], key, value)
    if found.verdict != "ok" or machine.has_api_key or ipaddress.ip_address(value).is_loopback:
        return found
    reach = "open to every network" if ipaddress.ip_address(value).is_unspecified else "open to others"
    return dataclasses.replace(
        found, verdict="warn", why=f"{reach} without an API key", settings=(*found.settings, ("allow_unauthenticated", True))
    )


def _wait(key: str, value: str, _: Machine) -> Judgement:
    found = _setting(_fields()[key], key, value)
    if found.verdict != "ok" or int(value) >= SHORTEST_WAIT_S:
        return found
    why = f"a healthy start takes longer; a rank alone waits for its peer for about {SHORTEST_WAIT_S} s"
    return dataclasses.replace(found, verdict="warn", why=why)


def _nfs_server(key: str, value: str, _: Machine) -> Judgement:
    if not value:
        return Judgement(key, value, "ok", "NFS off", (("storage", "local"),))
    return Judgement(key, value, "ok", "NFS on", (("storage", "nfs"), ("nfs_server", value)))


def _offline(key: str, value: str, _: Machine) -> Judgement:
    word = value.strip().lower()
    if word in {"1", "true", "yes", "on"}:
        return Judgement(key, "1", "ok", settings=(("hf_hub_offline", True),))
    if word in {"", "0", "false", "no", "off"}:
        return Judgement(key, "0", "ok", settings=(("hf_hub_offline", False),))
    return Judgement(key, value, "fail", "wanted true or false")


def _fields() -> dict[str, dataclasses.Field[Any]]:
    """Settings that a recipe can name, by their name there."""
    groups: Iterable[type] = (Places, *GROUPS)
    items = [item for group in groups for item in dataclasses.fields(group)]
    named = {item.name.upper(): item for item in items if item.metadata["recipe"]}
    return named | {RENAMED[item.name]: item for item in items if item.name in RENAMED}


_SPECIAL: Mapping[str, Callable[[str, str, Machine], Judgement]] = {
    "CONTEXT": _context,
    "MIN_AVAIL_GIB": _min_avail,
    "HOST": _host,
    "WAIT_TIMEOUT": _wait,
    "HEAD_NFS_SERVER": _nfs_server,
    "HF_HUB_OFFLINE": _offline,
}
