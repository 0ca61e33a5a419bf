"""An examination for a person and for a program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from build.units import GIB
from supervisor.doctor.examine import Examination
from supervisor.doctor.facts import NodeFacts
from supervisor.doctor.findings import Finding, Level
from supervisor.doctor.rails import End, Rail


def as_text(found: Examination) -> str:
    """About ten lines for a healthy pair; each finding adds what was found, what it means, and what to do."""
    lines = [line for node in found.nodes if node.trouble is None for line in _node(node)]
    lines += [_rail(rail, found) for rail in found.links.rails]
    lines += [line for one in found.findings for line in _finding(one)]
    return "\n".join([*lines, _last(found)])


def as_dict(found: Examination) -> dict[str, Any]:
    """For ``--json``."""
    return {
        "verdict": found.verdict,
        "nodes": {node.name: _facts(node) for node in found.nodes},
        "rails": [_rail_dict(rail, found) for rail in found.links.rails],
        "findings": [finding_dict(one) for one in found.findings],
    }


def finding_dict(one: Finding) -> dict[str, str]:
    """One finding as words."""
    return {
        "reason": one.reason,
        "level": one.level.value,
        "node": one.node,
        "found": one.found,
        "means": one.means,
        "do": one.advice,
        "command": one.command,
        "run": one.action.value,
    }


def _finding(one: Finding) -> list[str]:
    """A note takes one line; what must or should be mended says each thing on its own."""
    if one.level is Level.NOTE:
        return [f"{'note':<18} {one.line}"]
    command = [f"{'':<18} {one.command}"] if one.command else []
    rows = (("means", one.means), ("do", one.advice))
    told = [f"{name:>17}: {words}" for name, words in rows]
    return [f"{one.level.value:<18} {one.found}", *told, *command, f"{'run':>17}: {one.action.value}"]


def _last(found: Examination) -> str:
    counts = {level.value: sum(one.level is level for one in found.findings) for level in Level}
    said = ", ".join(f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items())
    return f"a launch is refused: {said}" if found.forbidden else f"nothing forbids a launch: {said}"


def _node(node: NodeFacts) -> Iterator[str]:
    gpu = f"{node.gpus[0].name}, driver {node.gpus[0].driver}" if node.gpus else "no GPU"
    docker = f"Docker {node.docker.version} ({node.docker.driver})" if node.docker else node.docker_said or "Docker not asked"
    skew = "" if node.skew_s is None or node.name == "head" else f", clock {node.skew_s:+.2f} s"
    yield f"{node.label:<18} {gpu}; {docker}; kernel {node.system.kernel} {node.system.machine}{skew}"
    yield f"{'':<18} {_memory(node)}{_disks(node)}"


def _memory(node: NodeFacts) -> str:
    one = node.memory
    if one is None:
        return "memory unknown"
    return (
        f"{one.available_bytes / GIB:.1f} of {one.total_bytes / GIB:.1f} GiB available,"
        f" {one.free_bytes / GIB:.1f} free, {one.page_cache_bytes / GIB:.1f} page cache"
    )


def _disks(node: NodeFacts) -> str:
    """The store's file system: the first that was asked about."""
    return "".join(f"; {one.file_system.available_bytes / GIB:.1f} GiB free at {one.path}" for one in node.places[:1])


def _rail(rail: Rail, found: Examination) -> str:
    ends = " <-> ".join(map(str, rail.ends))
    mtus = sorted({end.netdev.mtu for end in rail.ends})
    return f"{rail.name:<18} {ends}; MTU {'/'.join(map(str, mtus))}{_probed(rail, found)}"


def _probed(rail: Rail, found: Examination) -> str:
    outcomes = [one.outcome for one in found.probed if one.rail == rail.number]
    if not outcomes:
        return ""
    return ", full-size packets pass" if all(one == "ok" for one in outcomes) else f", full-size packets: {', '.join(outcomes)}"


def _rail_dict(rail: Rail, found: Examination) -> dict[str, Any]:
    probed = {one.node: one.outcome for one in found.probed if one.rail == rail.number}
    return {"rail": rail.number, "ends": [_end(end) for end in rail.ends], "full_size": probed or None}


def _end(end: End) -> dict[str, Any]:
    return {
        "node": end.node,
        "netdev": end.netdev.name,
        "address": end.address,
        "mtu": end.netdev.mtu,
        "up": end.up,
        "rdma": end.rdma.name if end.rdma else None,
        "gid_index": end.gid.index if end.gid else None,
        "roce_mtu": end.active_mtu,
        "rate": end.rdma.rate if end.rdma else None,
    }


def _facts(node: NodeFacts) -> dict[str, Any]:
    if node.trouble:
        return {"trouble": node.trouble.kind, "message": node.trouble.message}
    memory = node.memory
    return {
        "hostname": node.system.hostname,
        "kernel": node.system.kernel,
        "machine": node.system.machine,
        "skew_s": None if node.skew_s is None else round(node.skew_s, 3),
        "gpus": [{"name": one.name, "driver": one.driver, "sm_mhz": one.sm_mhz, "power_w": one.power_w} for one in node.gpus],
        "docker": {"version": node.docker.version, "driver": node.docker.driver, "nvidia": node.docker.nvidia}
        if node.docker
        else None,
        "memory": {
            "total_bytes": memory.total_bytes,
            "available_bytes": memory.available_bytes,
            "free_bytes": memory.free_bytes,
            "page_cache_bytes": memory.page_cache_bytes,
        }
        if memory
        else None,
        "places": [
            {"path": one.path, "kind": one.kind, "available_bytes": one.file_system.available_bytes} for one in node.places
        ],
    }
