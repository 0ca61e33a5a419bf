"""A LeaderWorkerSet (leaderworkerset.x-k8s.io/v1) of the same containers: rank 0 leads, the other rank is its worker. Pure.

A set gives every worker the same template, and the engine takes its rank as an argument, so only a gang of two fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from build.errors import UsageError

Document = Mapping[str, Any]
WORLD = 2
NOTE = "Without the supervisor: nothing keeps memory above the floor. InfiniBand needs the device plugin of your cluster."


def document(bodies: Mapping[int, Document], name: str, port: int) -> dict[str, Any]:
    """The manifest. ``bodies`` are container configs of Docker's API by rank; ``port`` is the API's. ``UsageError`` for
    another world than two ranks.
    """
    if len(bodies) != WORLD:
        raise UsageError(f"a LeaderWorkerSet holds a gang of {WORLD} ranks, and this bundle has {len(bodies)}: use compose")
    ready = {"httpGet": {"path": "/health", "port": port}, "periodSeconds": 5, "failureThreshold": 3}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "leaderWorkerTemplate": {
                "size": WORLD,
                "restartPolicy": "RecreateGroupOnPodRestart",  # the gang rule, as far as a cluster knows it
                "leaderTemplate": {"spec": _pod(bodies[0], name, {"readinessProbe": ready})},
                "workerTemplate": {"spec": _pod(bodies[1], name, {})},
            },
        },
    }


def _pod(body: Document, name: str, more: Document) -> dict[str, Any]:
    host = body["HostConfig"]
    mounts = host["Mounts"]
    return {
        "hostNetwork": host["NetworkMode"] == "host",
        "hostIPC": host["IpcMode"] == "host",
        # two ranks share no machine: each takes its port, its GPU and its half of the memory
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_apart(name)]}},
        "containers": [
            {
                "name": "rank",
                "image": body["Image"],
                "imagePullPolicy": "Never",
                "command": [_literal(word) for word in body["Entrypoint"]],
                "args": [_literal(word) for word in body["Cmd"]],
                "env": [{"name": key, "value": _literal(value)} for key, value in (pair.split("=", 1) for pair in body["Env"])],
                "securityContext": _security(body),
                **({"resources": {"limits": {"nvidia.com/gpu": 1}}} if host.get("DeviceRequests") else {}),
                "volumeMounts": [
                    {"name": f"v{number}", "mountPath": one["Target"], "readOnly": one["ReadOnly"]}
                    for number, one in enumerate(mounts)
                ]
                + [{"name": f"d{number}", "mountPath": one["PathInContainer"]} for number, one in _devices(host)],
                **more,
            }
        ],
        "volumes": [{"name": f"v{number}", "hostPath": {"path": one["Source"]}} for number, one in enumerate(mounts)]
        + [{"name": f"d{number}", "hostPath": {"path": one["PathOnHost"]}} for number, one in _devices(host)],
    }


def _devices(host: Document) -> list[tuple[int, Document]]:
    return list(enumerate(host.get("Devices", ())))


def _security(body: Document) -> dict[str, Any]:
    user, _, group = body["User"].partition(":")
    ids = {key: int(value) for key, value in (("runAsUser", user), ("runAsGroup", group)) if value.isdigit()}
    added = list(body["HostConfig"].get("CapAdd", ()))
    return {**ids, **({"capabilities": {"add": added}} if added else {}), "allowPrivilegeEscalation": False}


def _apart(name: str) -> dict[str, Any]:
    label = {"leaderworkerset.sigs.k8s.io/name": name}
    return {"labelSelector": {"matchLabels": label}, "topologyKey": "kubernetes.io/hostname"}


def _literal(text: str) -> str:
    """``$(NAME)`` is replaced in a pod's command."""
    return text.replace("$(", "$$(")
