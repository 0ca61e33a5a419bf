"""Compose files, one a node, whose containers are those that the Docker runner would start. Pure.

A plain document of dicts and lists out; the words are the Compose Specification's. What a compose file cannot say is said in
its first lines: nothing keeps the gang rule and nothing guards memory there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Document = Mapping[str, Any]
NOTE = "Without the supervisor: no rank is stopped because another died, and nothing keeps memory above the floor."


def documents(bodies: Mapping[int, Document], nodes: Mapping[int, str], project: str) -> dict[str, Document]:
    """One compose document a node. ``bodies`` are container configs of Docker's API by rank, ``nodes`` the rank's node."""
    return {
        node: {
            "name": project,
            "services": {f"rank{rank}": service(bodies[rank]) for rank in sorted(bodies) if nodes[rank] == node},
        }
        for node in sorted(set(nodes.values()))
    }


def service(body: Document) -> dict[str, Any]:
    """One container config of Docker's API as a service."""
    host = body["HostConfig"]
    found = {
        "image": body["Image"],
        "entrypoint": [_literal(word) for word in body["Entrypoint"]],
        "command": [_literal(word) for word in body["Cmd"]],
        "environment": {name: _literal(value) for name, value in (pair.split("=", 1) for pair in body["Env"])},
        "user": body["User"],
        "labels": dict(body["Labels"]),
        "network_mode": host["NetworkMode"],
        "ipc": host["IpcMode"],
        "oom_score_adj": host["OomScoreAdj"],
        "restart": host["RestartPolicy"]["Name"],
        "init": host["Init"],
        "healthcheck": {"disable": True},
        "logging": {"driver": host["LogConfig"]["Type"], "options": dict(host["LogConfig"]["Config"])},
        "volumes": [_volume(mount) for mount in host["Mounts"]],
        "devices": [_device_file(one) for one in host.get("Devices", ())],
        "cap_add": list(host.get("CapAdd", ())),
        "ulimits": {one["Name"]: {"soft": one["Soft"], "hard": one["Hard"]} for one in host.get("Ulimits", ())},
    }
    if host.get("DeviceRequests"):
        found["deploy"] = {"resources": {"reservations": {"devices": [_gpu_request(one) for one in host["DeviceRequests"]]}}}
    return {name: value for name, value in found.items() if value not in ("", [], {})}


def _volume(mount: Document) -> dict[str, Any]:
    """A mount that fails where its source is missing, as the runner's do."""
    return {
        "type": mount["Type"],
        "source": _literal(mount["Source"]),
        "target": _literal(mount["Target"]),
        "read_only": mount["ReadOnly"],
        **({"bind": {"create_host_path": False}} if mount["Type"] == "bind" else {}),
    }


def _device_file(one: Document) -> str:
    return f"{one['PathOnHost']}:{one['PathInContainer']}:{one['CgroupPermissions']}"


def _gpu_request(request: Document) -> dict[str, Any]:
    count = "all" if request["Count"] == -1 else request["Count"]
    return {"driver": "nvidia", "count": count, "capabilities": list(request["Capabilities"][0])}


def _literal(text: str) -> str:
    """``$`` begins a variable in a compose file."""
    return text.replace("$", "$$")
