"""All settings of one supervisor, loaded once, with where each came from; and what a restart with other ones would change."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from build.nodes.workers import Workers
from build.settings import AMBIENT, PREFIX, Origin, Places, Sources, ambient_seen, load, names
from supervisor.api_key import with_key_file
from supervisor.settings import (
    GROUPS,
    Links,
    Logs,
    Memory,
    Metrics,
    Probes,
    Restarts,
    Serve,
    Storage,
    engine_environment,
    is_engine_variable,
)


@dataclass(frozen=True, slots=True)
class Configuration:
    """Every group's values; ``state_dir`` is absolute; ``engine_env`` are the engine's own variables for every rank."""

    places: Places
    serve: Serve
    memory: Memory
    probes: Probes
    restarts: Restarts
    logs: Logs
    metrics: Metrics
    workers: Workers
    links: Links
    storage: Storage
    state_dir: Path
    engine_env: tuple[tuple[str, str], ...]
    origins: Mapping[str, Origin]
    ignored: tuple[str, ...]  # names of the environment that were seen and do not count

    @property
    def run_dir(self) -> Path:
        """Control socket, lock, rank records, logs of running ranks."""
        return self.state_dir / "run"


@dataclass(frozen=True, slots=True)
class Changed:
    """A setting that a restart would change, as shown to a person."""

    name: str
    before: str
    after: str
    origin: str

    def __str__(self) -> str:
        return f"{self.name}: {self.before} -> {self.after} ({self.origin})"


def configure(sources: Sources) -> Configuration:
    """Load every group. ``UsageError`` names the key, the value and the place of what cannot be taken."""
    loaded = load((Places, *GROUPS), sources)
    value: dict[type, Any] = {group: one.value for group, one in loaded.items()}
    origins = {name: origin for one in loaded.values() for name, origin in one.origins.items()}
    places, serve = value[Places], value[Serve]
    state_dir = places.state(sources.environ)
    return Configuration(
        places=places,
        serve=with_key_file(serve, state_dir),
        memory=value[Memory],
        probes=value[Probes],
        restarts=value[Restarts],
        logs=value[Logs],
        metrics=value[Metrics],
        workers=value[Workers],
        links=value[Links],
        storage=value[Storage],
        state_dir=state_dir,
        engine_env=engine_environment(serve.engine_env, sources.environ),
        origins=origins,
        ignored=ambient_seen(sources.environ),
    )


def without_file(sources: Sources) -> Sources:
    """The same sources but for ``config.toml``, for a command that makes a new one."""
    return Sources(None, sources.environ, sources.flags)


def overlaid(sources: Sources, environ: Mapping[str, str], flags: Mapping[str, object]) -> Sources:
    """The sources of a running supervisor with a caller's own settings over them."""
    return Sources(sources.file, {**sources.environ, **environ}, {**sources.flags, **flags})


def settings_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Only those variables that can be settings: nothing else of an environment leaves the process that has it."""
    bare = {name.upper() for name in names(Places, *GROUPS)} - AMBIENT
    return {name: value for name, value in environ.items() if name.startswith(PREFIX) or name in bare or is_engine_variable(name)}


def values(one: Configuration) -> dict[str, object]:
    """Every setting's value by name."""
    return {item.name: getattr(group, item.name) for group in _groups(one) for item in dataclasses.fields(group)}


def changes(before: Configuration, after: Configuration) -> tuple[Changed, ...]:
    """What differs, by name; engine variables one by one."""
    wanted = values(after)
    found = [
        Changed(name, _shown(old), _shown(new), after.origins[name].where)
        for name, old in sorted(values(before).items())
        if old != (new := wanted[name]) and name != "engine_env"
    ]
    old_env, new_env = dict(before.engine_env), dict(after.engine_env)
    return (
        *found,
        *(
            Changed(name, old_env.get(name, "not set"), new_env.get(name, "not set"), "engine variable")
            for name in sorted(old_env.keys() | new_env.keys())
            if old_env.get(name) != new_env.get(name)
        ),
    )


def _groups(one: Configuration) -> tuple[Any, ...]:
    return (
        one.places,
        one.serve,
        one.memory,
        one.probes,
        one.restarts,
        one.logs,
        one.metrics,
        one.workers,
        one.links,
        one.storage,
    )


def _shown(value: object) -> str:
    return "not set" if value is None else str(value)
