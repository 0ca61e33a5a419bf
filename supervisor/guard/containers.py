"""Guards as containers of a node's daemon, beside ranks that are containers.

A guard runs the node tool's image in the host's PID and network name spaces, as the user that its rank runs as, with no
capability: what it needs beyond (locked memory, a scheduling class) are limits that the daemon gives. The daemon has no part in
what it does afterwards. It is found again by its name and labels, and is no rank: the ranks' labels are not on it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from build.errors import LaunchFailed, Refused
from build.image.docker_api import Answer, Api, DaemonUnreachable
from build.image.recipes import NODE_TOOL_AT
from supervisor.guard import spec
from supervisor.guard.client import GuardClient
from supervisor.guard.host import RankGone
from supervisor.guard.places import Place
from supervisor.guard.processes import NO_SUCH_RANK, SECRET, START_S
from supervisor.guard.spec import GuardSpec
from supervisor.runners.docker_spec import LAUNCH, RANK
from supervisor.runners.protocol import RankHandle

GUARD = "twinfold.guard"  # its value is the rank
OWNER = "twinfold.guard.owner"  # whose guard: the id of the state folder that its launch belongs to
FOLDER = "/guard"  # where the container sees its folder
WATCHED = "/watched"  # where it sees a proc tree that is not its own
PROC = PurePosixPath("/proc")
POLL_S = 0.05
END_S = 2.0
# Given where the daemon may give them; the guard says in its hello what it has.
PROTECTED: Mapping[str, Any] = {
    "OomScoreAdj": -1000,
    "Ulimits": [{"Name": "memlock", "Soft": -1, "Hard": -1}, {"Name": "rtprio", "Soft": 1, "Hard": 1}],
}


class ContainerGuards:
    """A :class:`supervisor.guard.host.GuardHost` over one daemon.

    ``image`` gives the daemon's id of the node tool's image, ``user`` the ``uid:gid`` of the ranks; both are asked at a start.
    ``owner`` tells the guards of one state folder from another's on the same daemon.
    """

    def __init__(
        self,
        api: Api,
        place: Place,
        *,
        image: Callable[[], str],
        user: Callable[[], str],
        proc: PurePosixPath = PROC,
        owner: str = "",
    ) -> None:
        self._owner = owner
        self._api, self._place = api, place
        self._image, self._user, self._proc = image, user, proc
        self._folders: dict[tuple[str, int], str] = {}
        self._protections: tuple[Mapping[str, Any], ...] = (PROTECTED, {})  # what is left to try: a daemon gives them or not

    @property
    def silent_s(self) -> float:
        """See :class:`supervisor.guard.host.GuardHost`, as for all that follows."""
        return self._place.silent_s

    def identity(self, handle: RankHandle) -> tuple[int, int] | None:
        """Of the container's first process. It is asked for twice: between, its number could have been given to another."""
        pid = self._pid(handle.key)
        ticks = self._place.start_ticks(pid) if pid else None
        return (pid, ticks) if ticks is not None and self._pid(handle.key) == pid else None

    def start(self, wanted: GuardSpec, secret: bytes) -> None:
        """Create, start, and wait for its hello line. Nothing stays of one that does not come up."""
        self.remove(wanted.launch_id, wanted.rank)
        folder = self._place.make(wanted.launch_id, secret if wanted.lease else b"")
        self._folders[wanted.launch_id, wanted.rank] = folder
        try:
            self._create(wanted, folder)
            self._until_ready(wanted)
        except BaseException:
            self.remove(wanted.launch_id, wanted.rank)
            raise

    def running(self, launch_id: str, rank: int) -> bool:
        """Yes too where the daemon does not answer: it may well be."""
        try:
            answer = self._inspect(launch_id, rank)
        except DaemonUnreachable:
            return True
        return answer.status == 200 and bool(answer.document["State"]["Running"])

    def connect(self, launch_id: str, rank: int) -> GuardClient | None:
        """Through its place."""
        folder = self._folder(launch_id, rank)
        return self._place.connect(folder, rank) if folder else None

    def kill(self, launch_id: str, rank: int) -> None:
        """SIGKILL, and see it go. ``DaemonUnreachable`` where nobody can be told."""
        self._api.post(f"/containers/{_name(launch_id, rank)}/kill")
        end = time.monotonic() + END_S
        while self.running(launch_id, rank) and time.monotonic() < end:
            time.sleep(POLL_S)

    def log(self, launch_id: str, rank: int) -> bytes:
        """Its file."""
        folder = self._folder(launch_id, rank)
        return self._place.read(folder, f"{spec.name(rank)}.log") if folder else b""

    def remove(self, launch_id: str, rank: int) -> None:
        """Container and files."""
        folder = self._folder(launch_id, rank)
        if folder:
            self._api.delete(f"/containers/{_name(launch_id, rank)}", {"force": "1"})
            self._place.remove(folder, rank)
        self._folders.pop((launch_id, rank), None)

    def launches(self) -> tuple[tuple[str, int], ...]:
        """By the labels. Another gang's are not ours to send away: those of a rank that lives, and of another state folder."""
        return left_behind(self._listed(GUARD), self._listed(RANK), self._owner)

    def _listed(self, label: str) -> list[Mapping[str, Any]]:
        listed = self._api.get("/containers/json", {"all": "1", "filters": json.dumps({"label": [label]})})
        if listed.status != 200:
            raise Refused(f"Docker on {self._api.where} does not list its containers: {listed.message}")
        found: list[Mapping[str, Any]] = listed.document
        return found

    def _pid(self, container: str) -> int:
        answer = self._api.get(f"/containers/{container}/json")
        return int(answer.document["State"]["Pid"]) if answer.status == 200 and answer.document["State"]["Running"] else 0

    def _inspect(self, launch_id: str, rank: int) -> Answer:
        return self._api.get(f"/containers/{_name(launch_id, rank)}/json")

    def _folder(self, launch_id: str, rank: int) -> str:
        """Of one that an earlier supervisor started, from its mount; "" where there is none, or nobody says."""
        known = self._folders.get((launch_id, rank), "")
        if known:
            return known
        try:
            answer = self._inspect(launch_id, rank)
        except DaemonUnreachable:
            return ""
        mounts = answer.document["Mounts"] if answer.status == 200 else []
        found = next((str(one["Source"]) for one in mounts if one["Destination"] == FOLDER), "")
        if found:
            self._folders[launch_id, rank] = found
        return found

    def _create(self, wanted: GuardSpec, folder: str) -> None:
        """With its protections; without, where the daemon may not give them."""
        said = ""
        for protections in self._protections:
            body = create_body(wanted, self._image(), self._user(), folder, watched=self._watched(), protections=protections)
            body["Labels"][OWNER] = self._owner
            name = _name(wanted.launch_id, wanted.rank)
            made = self._api.post("/containers/create", {"name": name}, body)
            started = self._api.post(f"/containers/{name}/start") if made.status == 201 else made
            if started.status in (204, 304):
                self._protections = (protections,)
                return
            said = started.message
            self._api.delete(f"/containers/{name}", {"force": "1"})
        raise LaunchFailed(f"the guard of rank {wanted.rank} cannot be started on {wanted.node}: {said}")

    def _watched(self) -> str:
        """A proc tree of the node that the container does not see by itself."""
        return "" if self._proc == PROC else self._place.absolute(self._proc)

    def _until_ready(self, wanted: GuardSpec) -> None:
        path, end = f"/containers/{_name(wanted.launch_id, wanted.rank)}", time.monotonic() + START_S
        said = ""
        while time.monotonic() < end:
            state = self._api.get(f"{path}/json").document["State"]
            said = self._api.get(f"{path}/logs", {"stdout": "1", "stderr": "1"}).text
            if '"hello"' in said:
                return
            if not state["Running"]:
                if state["ExitCode"] == NO_SUCH_RANK:
                    raise RankGone(f"rank {wanted.rank} ended before its guard could take it")
                break
            time.sleep(POLL_S)
        why = said.rpartition("guard: ")[2].strip() or f"it said nothing for {START_S:g} s"
        raise LaunchFailed(f"the guard of rank {wanted.rank} cannot be started on {wanted.node}: {why}")


def create_body(
    wanted: GuardSpec, image_id: str, user: str, folder: str, *, watched: str = "", protections: Mapping[str, Any] = PROTECTED
) -> dict[str, Any]:
    """The body of ``POST /containers/create``. Pure. ``watched`` is the node's proc tree to mount, "" for the container's own."""
    words = spec.arguments(wanted, SECRET, proc=WATCHED if watched else str(PROC))
    mounts = [{"Type": "bind", "Source": folder, "Target": FOLDER, "ReadOnly": False}]
    mounts += [{"Type": "bind", "Source": watched, "Target": WATCHED, "ReadOnly": True}] if watched else []
    return {
        "Image": image_id,
        "Entrypoint": [NODE_TOOL_AT],
        "Cmd": words,
        "WorkingDir": FOLDER,
        "User": user,
        "Labels": {GUARD: str(wanted.rank), LAUNCH: wanted.launch_id},
        "Tty": False,
        "OpenStdin": False,
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {
            "PidMode": "host",
            "NetworkMode": "host",
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "RestartPolicy": {"Name": "no"},
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "1"}},
            "Mounts": mounts,
            **protections,
        },
    }


def left_behind(
    guards: Sequence[Mapping[str, Any]], ranks: Sequence[Mapping[str, Any]], owner: str
) -> tuple[tuple[str, int], ...]:
    """(launch id, rank) of guards whose ranks have ended, out of Docker's lists of containers. Pure.

    Of another owner's only those that have ended themselves: a guard that lives yet may be heard by its supervisor.
    """
    living = {(one["Labels"].get(LAUNCH), one["Labels"].get(RANK)) for one in ranks if one.get("State") == "running"}
    found = set()
    for one in guards:
        launch, rank = str(one["Labels"].get(LAUNCH, "")), str(one["Labels"].get(GUARD, ""))
        ours = one["Labels"].get(OWNER, owner) == owner or one.get("State") != "running"
        if launch and rank.isdigit() and ours and (launch, rank) not in living:
            found.add((launch, int(rank)))
    return tuple(sorted(found))


def _name(launch_id: str, rank: int) -> str:
    return f"twinfold-{spec.name(rank)}-{launch_id}"
