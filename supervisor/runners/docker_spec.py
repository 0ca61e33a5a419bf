"""One rank as a container: the body of ``POST /containers/create``, its labels, and reading them back. Pure.

A container has no restart policy: a rank alone is no use, and the gang decides. Mounts are of the kind that fails where the
source is missing, never the one that makes an empty folder as root.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from build.bundle import Needs
from supervisor.runners import docker_made
from supervisor.runners.labels import FOLDER, OWNER, PROJECT
from supervisor.runners.protocol import MARKER, Leftover, Mount, Owner, RankHandle, RankSpec

LAUNCH = "twinfold.launch"
RANK = "twinfold.rank"
SPEC = "twinfold.spec"
WORLD = "twinfold.world"
BUNDLE = "twinfold.bundle"
CONTEXT = "twinfold.context"
NODE = "twinfold.node"

STACK_BYTES = 64 << 20  # the engine's recipes run it with this stack
INFINIBAND = "/dev/infiniband"


@dataclass(frozen=True, slots=True)
class LogLimits:
    """Rotation of a container's log: ``files`` files of ``file_mib`` MiB at most."""

    file_mib: int = 16
    files: int = 4


@dataclass(frozen=True, slots=True)
class Options:
    """What is the same for every rank of a runner.

    ``project`` tells our containers from all others of the daemon; gangs that share it are told apart by each rank's owner.
    """

    project: str = "twinfold"
    log: LogLimits = LogLimits()
    init: bool = True


def labels(spec: RankSpec, project: str) -> dict[str, str]:
    """By these a rank is found again by whoever comes later."""
    owner = {OWNER: spec.owner.id, FOLDER: spec.owner.folder} if spec.owner else {}
    return {
        PROJECT: project,
        LAUNCH: spec.launch_id,
        RANK: str(spec.rank),
        SPEC: spec.spec_hash,
        WORLD: str(spec.world_size),
        BUNDLE: spec.bundle_entry,
        CONTEXT: str(spec.context_tokens),
        NODE: spec.node,
        **owner,
    }


def owner_of(found: Mapping[str, str]) -> Owner | None:
    """Whose a container is, by its labels."""
    return Owner(found[OWNER], found.get(FOLDER, "")) if found.get(OWNER) else None


def create_body(spec: RankSpec, image_id: str, options: Options) -> dict[str, Any]:
    """The API's container config, host config included. The command replaces the image's entry point and its arguments."""
    variables = {**dict(spec.command.env), MARKER: f"{spec.launch_id}/{spec.rank}"}
    body: dict[str, Any] = {
        "Image": image_id,
        "Entrypoint": [spec.command.argv[0]],
        "Cmd": list(spec.command.argv[1:]),
        "Env": [f"{name}={value}" for name, value in sorted(variables.items())],
        "User": spec.user,
        "Labels": labels(spec, options.project),
        "Tty": False,
        "OpenStdin": False,
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": _host_config(spec, options),
    }
    body["Labels"][docker_made.MADE] = docker_made.made(body)
    return body


def leftover(inspected: Mapping[str, Any], node: str, image_env: Sequence[str] | None = None) -> Leftover | None:
    """A container of ours as what it was started as; None where its labels are not those of a rank."""
    found = (inspected.get("Config") or {}).get("Labels") or {}
    launch, rank = found.get(LAUNCH, ""), found.get(RANK, "")
    if not launch or not rank.isdigit():
        return None
    handle = RankHandle(launch, int(rank), node, inspected["Id"], found.get(SPEC, ""))
    state = inspected.get("State") or {}
    detail = {"container": str(inspected.get("Name", "")).lstrip("/"), "status": str(state.get("Status", ""))}
    changed = docker_made.difference(inspected, image_env)
    alive, world, context = bool(state.get("Running")), _count(found.get(WORLD, "")), _count(found.get(CONTEXT, ""))
    return Leftover(handle, alive, world, found.get(BUNDLE, ""), context, detail, changed, owner_of(found))


def _count(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _host_config(spec: RankSpec, options: Options) -> dict[str, Any]:
    return {
        "NetworkMode": "host",
        "IpcMode": "host",
        "OomScoreAdj": spec.oom_score_adj,
        "RestartPolicy": {"Name": "no"},
        "Init": options.init,
        "LogConfig": {
            "Type": "json-file",
            "Config": {"max-size": f"{options.log.file_mib}m", "max-file": str(options.log.files)},
        },
        "Mounts": [_mount(one) for one in spec.mounts],
        **_asked(spec.needs or Needs()),
    }


def _mount(one: Mount) -> dict[str, Any]:
    kind, more = ("volume", {"VolumeOptions": {"NoCopy": True}}) if one.volume else ("bind", {})
    return {"Type": kind, "Source": str(one.source), "Target": one.target, "ReadOnly": one.read_only, **more}


def _asked(needs: Needs) -> dict[str, Any]:
    """What only a real target's containers ask for; nothing of it where there is nothing to ask."""
    asked: dict[str, Any] = {}
    if needs.gpu:
        asked["DeviceRequests"] = [{"Count": -1, "Capabilities": [["gpu"]]}]
    if needs.infiniband:
        asked["Devices"] = [{"PathOnHost": INFINIBAND, "PathInContainer": INFINIBAND, "CgroupPermissions": "rwm"}]
    if needs.infiniband or needs.memlock:
        asked["CapAdd"] = ["IPC_LOCK"]
    if needs.memlock:
        asked["Ulimits"] = [
            {"Name": "memlock", "Soft": -1, "Hard": -1},
            {"Name": "stack", "Soft": STACK_BYTES, "Hard": STACK_BYTES},
        ]
    return asked
