"""``supervisor export``: what the exports are made of, read here, and handed to the pure writers."""

from __future__ import annotations

import os
import platform
import pwd
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from build.errors import UsageError
from build.nodes.hosts import HEAD, Host
from build.settings import Sources
from supervisor import control
from supervisor.configuration import Configuration, configure
from supervisor.export import compose, lws, systemd
from supervisor.fleet.site import Site, head_site, local_site
from supervisor.gang import gate
from supervisor.gang.launch import Blueprint, Plan, blueprint
from supervisor.runners.docker_spec import BUNDLE, Options, create_body
from supervisor.runners.protocol import MARKER


def systemd_unit(sources: Sources, checkout: Path) -> str:
    """The unit that runs the supervisor as this user, with these settings."""
    one = configure(sources)
    who = pwd.getpwuid(os.getuid())
    program = checkout / ".venv" / "bin" / "supervisor"
    if not program.exists():
        program = Path(sys.argv[0]).absolute()
    given = tuple((name, value) for name, value in one.engine_env if name in sources.environ)
    return systemd.unit(one, systemd.Where(checkout, program, who.pw_name, Path(who.pw_dir), given))


def compose_files(sources: Sources) -> dict[str, str]:
    """Compose files by name: one a node, or one alone where there is one node."""
    one = blueprint(_in_containers(sources))
    nodes = dict(enumerate(one.nodes))
    made = compose.documents(_bodies(one), nodes, one.configuration.serve.container_name)
    names = {node: "compose.yaml" if len(made) == 1 else f"compose.{node}.yaml" for node in made}
    return {names[node]: _yaml(document, compose.NOTE) for node, document in made.items()}


def lws_manifest(sources: Sources) -> str:
    """The LeaderWorkerSet's manifest. ``UsageError`` where ranks share a node or are not two."""
    one = blueprint(_in_containers(sources))
    serve = one.configuration.serve
    return _yaml(lws.document(_bodies(one), serve.container_name, serve.port), lws.NOTE)


def _in_containers(sources: Sources) -> Configuration:
    return configure(Sources(sources.file, sources.environ, {**sources.flags, "runner": "docker"}))


def _bodies(one: Blueprint) -> dict[int, Mapping[str, Any]]:
    """Each rank's container, without the marks of a launch: a supervisor would clear it away as a leftover."""
    plan = _plan(one)
    sites = {rank: _site(one.configuration, host) for host in one.hosts for rank in host.ranks}
    return {rank: _unmarked(plan, rank, sites[rank]) for rank in range(one.bundle.world_size)}


def _site(one: Configuration, host: Host) -> Site:
    """A node as it can be told without asking it: of a worker, the same machine and user as here."""
    here = local_site(one.state_dir)
    if not host.target:
        return here
    if not host.store.startswith("/"):
        raise UsageError(f"worker_store = {host.store}: an export asks no node, so it needs an absolute path")
    return head_site(host.name, Path(host.store), here.user, Path(host.store) / "cache")


def _unmarked(plan: Plan, rank: int, site: Site) -> Mapping[str, Any]:
    spec = plan.rank_spec("", rank, site)
    if spec.image is None:
        raise UsageError(f"the bundle has no image for {platform.machine()}: `doit` makes one where the target names it")
    body = create_body(spec, spec.image.tag, Options())
    env = [pair for pair in body["Env"] if not pair.startswith(f"{MARKER}=")]
    return {**body, "Env": env, "Labels": {BUNDLE: spec.bundle_entry}}


def _plan(one: Blueprint) -> Plan:
    """At the context asked for; ``auto`` is the running gang's, else what fits the memory that is free now."""
    running = _running_context(one.configuration)
    if isinstance(one.configuration.serve.context, str) and running:
        return one.running_at(running)
    return one.at({HEAD: gate.available_bytes(one.configuration.memory)})


def _running_context(one: Configuration) -> int:
    answers = control.ask(one.run_dir, {"do": "status"}) if one.run_dir.is_dir() else None
    shown = [answer["status"] for answer in answers or () if "status" in answer]
    return int((shown[0].get("serving") or {}).get("context_tokens") or 0) if shown else 0


def _yaml(document: Mapping[str, Any], note: str) -> str:
    import yaml

    text: str = yaml.safe_dump(document, sort_keys=False, width=120)
    return f"# {note}\n{text}"
