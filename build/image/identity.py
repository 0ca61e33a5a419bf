"""Which image this is: config digest and rootfs diff ids, and what an inspected one differs in.

``Id``, ``RepoDigests``, ``Size`` and ``Created`` depend on the store that keeps the image (graph driver or containerd) and are
never compared. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from build.image.oci import Platform

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ImageIdentity:
    """An image wherever it is kept.

    ``manifest_digest`` is the Id that a containerd store gives it; ``tag`` holds the beginning of the config digest.
    """

    platform: Platform
    config_digest: str
    diff_ids: tuple[str, ...]
    manifest_digest: str
    tag: str


def differences(wanted: Json, found: Json) -> tuple[str, ...]:
    """What two inspected images differ in: ``RootFS.Layers``, ``Config.Env``, ... ; nothing for the same image in two stores."""
    return (*_config(wanted.get("Config") or {}, found.get("Config") or {}), *_rest(wanted, found))


def as_inspected(config: Json) -> Json:
    """An image's own config document in the shape that ``inspect`` answers with."""
    return {
        "Architecture": config.get("architecture"),
        "Os": config.get("os"),
        "Variant": config.get("variant"),
        "Config": config.get("config") or {},
        "RootFS": {"Type": "layers", "Layers": list(config["rootfs"]["diff_ids"])},
    }


def _config(wanted: Json, found: Json) -> tuple[str, ...]:
    keys = sorted({*wanted, *found})
    return tuple(f"Config.{key}" for key in keys if _plain(wanted.get(key)) != _plain(found.get(key)))


def _rest(wanted: Json, found: Json) -> tuple[str, ...]:
    layers = [(image.get("RootFS") or {}).get("Layers") or [] for image in (wanted, found)]
    changed = ["RootFS.Layers"] if layers[0] != layers[1] or not layers[0] else []
    changed += [key for key in ("Architecture", "Os", "Variant") if _plain(wanted.get(key)) != _plain(found.get(key))]
    return tuple(changed)


def _plain(value: object) -> object:
    """A classic store spells out what a containerd store leaves out: null, "", [], {}, false and 0 all say "not set"."""
    return value or None
