"""What a launch would do: links, copies, images and every rank's container. For a person and for programs; asks nobody."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from build.errors import Refused
from build.machine import platform_of
from build.nodes.hosts import HEAD
from build.units import MIB
from supervisor.configuration import Configuration
from supervisor.doctor import report
from supervisor.doctor.examine import Examination
from supervisor.doctor.facts import NodeFacts
from supervisor.doctor.inquiry import Inquiry
from supervisor.fleet import shared
from supervisor.fleet.site import Site
from supervisor.gang.launch import Blueprint, Plan
from supervisor.runners.docker_made import MADE
from supervisor.runners.docker_spec import Options, create_body
from supervisor.runners.protocol import RankSpec

LAUNCH_ID = "dry-run"
SECRET = re.compile(r"(API_?KEY|SECRET|PASSWORD|_TOKEN)$")


@dataclass(frozen=True, slots=True)
class Preview:
    """What a launch would do. ``ranks`` are containers as Docker's API takes them, or commands of processes."""

    plan: Plan
    examined: Examination
    copies: Mapping[str, Mapping[str, int]]
    images: Mapping[str, Mapping[str, bool]]
    ranks: tuple[Mapping[str, Any], ...]
    refused: str = ""


def preview(planned: Blueprint, inquiry: Inquiry, examined: Examination) -> Preview:
    """What a launch would be, by what the nodes have said."""
    one = planned.configuration
    facts = {node.name: node for node in examined.nodes}
    plan, refused = _planned(replace(planned, links=examined.links), facts)
    return Preview(
        plan,
        examined,
        {host.name: _missing(inquiry, facts[host.name]) for host in inquiry.hosts if host.target},
        _images(planned, facts.values()),
        tuple(_rank(plan, rank, _site(one, facts[plan.blueprint.nodes[rank]])) for rank in range(planned.bundle.world_size)),
        refused,
    )


def _planned(one: Blueprint, facts: Mapping[str, NodeFacts]) -> tuple[Plan, str]:
    """The plan for the memory that is there now; where that is too little, one at the context asked for, and the refusal.

    A worker whose memory was not read bounds nothing: a finding says why it was not.
    """
    read = {name: node.memory.available_bytes for name, node in facts.items() if node.memory}
    available = {HEAD: read.pop(HEAD, 0), **{name: count for name, count in read.items() if name in one.nodes}}
    try:
        return one.at(available), ""
    except Refused as error:
        asked = one.configuration.serve.context
        return one.running_at(one.bundle.window_tokens if isinstance(asked, str) else asked), str(error)


def _missing(inquiry: Inquiry, node: NodeFacts) -> Mapping[str, int]:
    host = next(host for host in inquiry.hosts if host.name == node.name)
    return {} if inquiry.nfs else {entry: size for entry, size in inquiry.entries(host).items() if entry not in node.present}


def _images(one: Blueprint, nodes: Iterable[NodeFacts]) -> Mapping[str, Mapping[str, bool]]:
    """Of each node its platform's image, and whether it is there."""
    if not one.in_containers:
        return {}
    found: dict[str, Mapping[str, bool]] = {}
    for node in nodes:
        image = one.bundle.image.get(platform_of(node.system.machine))
        found[node.name] = {image.tag: image.diff_ids in node.images} if image else {}
    return found


def _site(one: Configuration, node: NodeFacts) -> Site:
    """What :meth:`supervisor.fleet.site.Nodes.site` would say, from the facts."""
    head = node.name == HEAD
    store = one.state_dir / "store" if head else Path(node.system.store or "/")
    cache = one.state_dir / "cache" / "ranks" if head else store / "cache"
    own = Site(node.name, store, platform_of(node.system.machine), node.system.ids, cache)
    return own if head or one.storage.storage != "nfs" else shared.site(own, one.storage.nfs_volume)


def _rank(plan: Plan, rank: int, site: Site) -> Mapping[str, Any]:
    spec = plan.rank_spec(LAUNCH_ID, rank, site)
    if not plan.blueprint.in_containers:
        return {"rank": rank, "node": spec.node, "argv": list(spec.command.argv), "env": _shown(dict(spec.command.env))}
    body = create_body(spec, spec.image.tag if spec.image else "", Options())
    env = _shown(dict(pair.split("=", 1) for pair in body["Env"]))
    body["Env"] = [f"{name}={value}" for name, value in env.items()]
    del body["Labels"][MADE]  # it would be of what is not shown
    return {"rank": rank, "node": spec.node, "name": _name(spec), "container": body}


def _name(spec: RankSpec) -> str:
    return spec.container_name or f"twinfold-{spec.launch_id}-rank{spec.rank}"


def _shown(env: Mapping[str, str]) -> dict[str, str]:
    """Variables with values that look like secrets by their names left out."""
    return {name: "(not shown)" if SECRET.search(name) else value for name, value in sorted(env.items())}


def as_dict(found: Preview) -> dict[str, Any]:
    """For ``--json``."""
    one = found.plan.blueprint
    return {
        "target": one.configuration.places.target,
        "generation": one.generation,
        "context": found.plan.context_tokens,
        "refused": found.refused,
        **report.as_dict(found.examined),
        "copies": {
            node: [{"entry": entry, "bytes": size} for entry, size in rows.items()] for node, rows in found.copies.items()
        },
        "images": {
            node: [{"image": tag, "present": there} for tag, there in rows.items()] for node, rows in found.images.items()
        },
        "ranks": list(found.ranks),
    }


def as_text(found: Preview) -> Iterator[str]:
    """For a person."""
    one = found.plan.blueprint
    yield (
        f"generation {one.generation} of {one.configuration.places.target}, {one.bundle.world_size} ranks,"
        f" context {found.plan.context_tokens}; nothing was started or written"
    )
    yield report.as_text(found.examined)
    if found.refused:
        yield f"refused: {found.refused}"
    for node, rows in found.copies.items():
        yield f"{node}: {len(rows)} store entries to copy, {sum(rows.values()) / MIB:.1f} MiB"
        yield from (f"    {size / MIB:10.1f} MiB  {entry}" for entry, size in rows.items())
    for node, images in found.images.items():
        yield from (f"{node}: image {tag} {'is there' if there else 'to be loaded'}" for tag, there in images.items())
    for rank in found.ranks:
        yield from _rank_text(rank)


def _rank_text(rank: Mapping[str, Any]) -> Iterator[str]:
    body = rank.get("container")
    if body is None:
        yield f"rank {rank['rank']} on {rank['node']}: {' '.join(rank['argv'])}"
        yield from (f"    {name}={value}" for name, value in rank["env"].items())
        return
    yield f"rank {rank['rank']} on {rank['node']}: container {rank['name']}, image {body['Image']}, user {body['User']}"
    yield f"    {' '.join([*body['Entrypoint'], *body['Cmd']])}"
    yield from (f"    {pair}" for pair in body["Env"])
    host = body["HostConfig"]
    for mount in host["Mounts"]:
        yield f"    mount {mount['Source']} at {mount['Target']}{' read-only' if mount['ReadOnly'] else ''}"
    rest = {key: value for key, value in host.items() if key not in {"Mounts", "LogConfig"} and value not in (None, [], {})}
    yield f"    {json.dumps(rest, sort_keys=True)}"
