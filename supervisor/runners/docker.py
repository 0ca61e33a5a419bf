"""Ranks as containers of one Docker daemon, found again by their labels and nothing else.

State comes from ``inspect`` alone: at once when the API's ``wait`` says that something happened, and now and then, since a
``wait`` over a connection that has died says nothing. Ranks belong to the daemon, so a supervisor's end ends none of them. While
the daemon does not answer, a rank counts as running: it may well be.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from build.bundle import ImageRef
from build.errors import LaunchFailed, Refused, StoreDamaged
from build.facts import container_end
from build.image.assemble import Archive, read_archive
from build.image.docker_api import Answer, Api, DaemonUnreachable
from build.image.load import Daemon, load
from supervisor.runners.docker_ends import DockerEnds
from supervisor.runners.docker_log import CHUNK_BYTES, Cursor, Follower, LogStream, messages, parse_cursor, take, texts, unread
from supervisor.runners.docker_spec import LAUNCH, Options, create_body, leftover, owner_of
from supervisor.runners.labels import PROJECT
from supervisor.runners.protocol import Leftover, LogChunk, Owner, RankExit, RankHandle, RankSpec, StartRefused

ENDS_KEPT = 64  # how the newest ranks ended, also once they are removed
LOOK_EVERY_S = 10.0  # at a rank of which nothing is told: each look is a question to the daemon
READERS = 4  # of one running rank's log at a time, each at its own place
NOT_FOUND = 404
READ_S = 30.0  # silence after which a read of what is already written counts as broken

NO_INIT = "docker-init"  # named by the daemon when it is missing: Debian's package only recommends it
# What the daemon says when a container cannot start, and what helps. The first that fits counts.
START_ADVICE: tuple[tuple[str, str], ...] = (
    ("could not select device driver", "install the NVIDIA Container Toolkit and run `sudo nvidia-ctk runtime configure`"),
    ("nvidia-container-cli", "`nvidia-smi` on that node says whether its driver works"),
    ("/dev/infiniband", "the node has no RDMA devices: `ls /dev/infiniband`, `rdma link`"),
    ("error setting rlimit", "the daemon may not lift limits: `LimitMEMLOCK=infinity` in docker.service"),
    ("bind source path does not exist", "the node lacks a file of the bundle: `doit replicate`"),
    ("no such file or directory", "the image lacks the rank's program: `doit check`"),
    ("permission denied", "the rank's program or a mount is not for this user"),
)


def image_archive(image: ImageRef, store: Path) -> Archive:
    """A bundle's image out of a store; ``StoreDamaged`` where it is another one."""
    archive = read_archive(image.archive.under(store))
    if (archive.identity.config_digest, archive.identity.diff_ids) != (image.config_digest, image.diff_ids):
        raise StoreDamaged(f"{archive.path} is not the bundle's image {image.tag} ({image.config_digest}): run `doit repair`")
    return archive


class StoreImages:
    """Images out of the store: loaded into the daemon where it lacks one, proven there, and named by the daemon's own id."""

    def __init__(self, daemon: Daemon, store: Path, note: Callable[[str], None] = lambda _line: None) -> None:
        self._daemon, self._store, self._note = daemon, store, note

    def __call__(self, image: ImageRef) -> str:
        return load(image_archive(image, self._store), self._daemon, self._note).image_id


class DockerRunner:
    """A :class:`supervisor.runners.protocol.Runner` over one daemon. ``images`` gives the daemon's id of a bundle's image."""

    def __init__(self, api: Api, images: Callable[[ImageRef], str], node: str = "head", options: Options | None = None) -> None:
        self._api, self._images, self._node = api, images, node
        self._options = options or Options()
        self._ended: dict[str, RankExit] = {}
        self._followers: dict[str, list[Follower]] = {}
        self._looked_s: dict[str, float] = {}
        self._ends = DockerEnds(api)
        self._lock = threading.Lock()

    def start(self, spec: RankSpec) -> RankHandle:
        """Create and start the rank's container. One that never ran leaves nothing behind."""
        try:
            image_id = self._image(spec)
            key = self._create(spec, image_id)
            if not self._start(spec, key):
                key = self._create(spec, image_id)
                self._start(spec, key)
        except DaemonUnreachable as error:
            raise LaunchFailed(f"rank {spec.rank} cannot be started: {error}") from None
        return RankHandle(spec.launch_id, spec.rank, self._node, key, spec.spec_hash)

    def poll(self, handle: RankHandle) -> RankExit | None:
        """How it ended; a removed container's end is unknown."""
        with self._lock:
            if handle.key in self._ended:
                return self._ended[handle.key]
        try:
            answer = self._api.get(f"/containers/{handle.key}/json")
        except Refused:
            return None
        ended = _ended(handle, answer)
        if ended is not None:
            with self._lock:
                self._ended[handle.key] = ended
                while len(self._ended) > ENDS_KEPT:
                    self._looked_s.pop(oldest := next(iter(self._ended)), None)
                    del self._ended[oldest]
        return ended

    def wait(self, handles: Sequence[RankHandle], timeout_s: float) -> tuple[RankExit, ...]:
        """Those that ended. An end is told by the daemon; each rank is looked at now and then all the same."""
        end = time.monotonic() + timeout_s
        while True:
            ended = tuple(found for found in map(self._look, handles) if found)
            left_s = end - time.monotonic()
            if ended or left_s <= 0:
                return ended
            self._ends.wait([handle.key for handle in handles], min(left_s, LOOK_EVERY_S))

    def _look(self, handle: RankHandle) -> RankExit | None:
        """As :meth:`poll`, but only where there may be news."""
        now_s, told = time.monotonic(), handle.key in self._ends.told()
        with self._lock:
            known = self._ended.get(handle.key)
            if known is None and not told and now_s - self._looked_s.get(handle.key, -LOOK_EVERY_S) < LOOK_EVERY_S:
                return None
            self._looked_s[handle.key] = now_s
        found = known or self.poll(handle)
        if told and found is None:
            self._ends.again(handle.key)  # the daemon told of an end and does not know of it now
        return found

    def terminate(self, handle: RankHandle) -> None:
        """SIGTERM to the container's first process."""
        self._signal(handle, "SIGTERM")

    def kill(self, handle: RankHandle) -> None:
        """SIGKILL to all of the container."""
        self._signal(handle, "SIGKILL")

    def read_log(self, handle: RankHandle, cursor: str = "") -> LogChunk:
        """From a followed stream while the rank runs, from the files when it has ended."""
        at = parse_cursor(cursor)
        with self._lock:
            ended = handle.key in self._ended
        if not ended:
            return self._follower(handle, at).read()
        self._unfollow(handle.key)
        return take(self._written(handle, at), at)

    def pass_log(self, handle: RankHandle, cursor: str) -> str:
        """The daemon bounds its files by itself: only a follower that stands there is let go."""
        at = parse_cursor(cursor)
        with self._lock:
            standing = self._followers.get(handle.key, [])
            passed = [one for one in standing if one.cursor == at]
            standing[:] = [one for one in standing if one.cursor != at]
        for one in passed:
            one.close()
        return cursor

    def whole_log(self, handle: RankHandle) -> Iterator[bytes]:
        """All that rotation has left; nothing of a container that is gone. A daemon that does not answer raises.

        Without time stamps: nobody reads on from the middle, and a flood is read fast.
        """
        if self._api.get(f"/containers/{handle.key}/json").status == NOT_FOUND:
            return
        stream = self._open_log(handle, Cursor(), follow=False, stamps=False)
        try:
            for text in texts(stream):
                yield from (text[start : start + CHUNK_BYTES] for start in range(0, len(text), CHUNK_BYTES))
        finally:
            stream.close()

    def leftovers(self) -> tuple[Leftover, ...]:
        """Every container with this project's labels."""
        filters = json.dumps({"label": [f"{PROJECT}={self._options.project}"]})
        listed = self._api.get("/containers/json", {"all": "1", "filters": filters})
        if listed.status != 200:
            raise Refused(f"Docker on {self._node} does not list its containers: {listed.message}: see `docker ps -a` there")
        answers = (self._api.get(f"/containers/{one['Id']}/json") for one in listed.document)
        documents = [answer.document for answer in answers if answer.status == 200]
        found = [leftover(document, self._node, self._image_env(document.get("Image", ""))) for document in documents]
        return tuple(sorted((one for one in found if one), key=lambda one: (one.handle.launch_id, one.handle.rank)))

    def remove(self, handle: RankHandle) -> None:
        """Remove the ended rank's container, its log with it."""
        if self.poll(handle) is None:
            raise LaunchFailed(f"{handle} still runs: it must end before it is removed")
        self._unfollow(handle.key)
        self._remove(handle.key)
        self._ends.forget(handle.key)
        with self._lock:
            self._looked_s.pop(handle.key, None)

    def close(self) -> None:
        """Stop following and watching; the ranks go on."""
        self._ends.close()
        with self._lock:
            keys = list(self._followers)
        for key in keys:
            self._unfollow(key)

    def _image(self, spec: RankSpec) -> str:
        if spec.image is None:
            raise StartRefused(
                f"rank {spec.rank} cannot be started in a container: the bundle has no image for this node's platform"
            )
        try:
            return self._images(spec.image)
        except DaemonUnreachable:
            raise
        except (Refused, StoreDamaged) as error:
            raise StartRefused(f"rank {spec.rank} cannot be started: {error}") from None

    def _image_env(self, image_id: str) -> tuple[str, ...] | None:
        """The variables that an image brings; None where it is gone."""
        answer = self._api.get(f"/images/{image_id}/json")
        return tuple((answer.document.get("Config") or {}).get("Env") or ()) if answer.status == 200 else None

    def _create(self, spec: RankSpec, image_id: str) -> str:
        name = spec.container_name or f"twinfold-{spec.launch_id}-rank{spec.rank}"
        body = create_body(spec, image_id, self._options)
        answer = self._api.post("/containers/create", {"name": name}, body)
        if answer.status == 409 and self._free_name(name, spec.owner):
            answer = self._api.post("/containers/create", {"name": name}, body)
        if answer.status == 201:
            return str(answer.document["Id"])
        if answer.status == 404:
            raise StartRefused(f"image {body['Image']} is not on {self._node}: run `doit` to load it ({answer.message})")
        raise self._start_error(spec, answer)

    def _free_name(self, name: str, owner: Owner | None) -> bool:
        """Whether the name is free now. One of ours that never ran goes; others are named, and stay."""
        answer = self._api.get(f"/containers/{name}/json")
        if answer.status == 404:
            return True
        holder: Mapping[str, Any] = answer.document
        found = (holder.get("Config") or {}).get("Labels") or {}
        if found.get(PROJECT) != self._options.project:
            raise StartRefused(
                f"container name {name} on {self._node} belongs to a container that is not ours "
                f"(image {holder['Config']['Image']}, {holder['State']['Status']}, made {holder['Created'][:19]}): "
                f"rename or remove it, or set container_name"
            )
        theirs = owner_of(found)
        if owner and theirs and theirs.id != owner.id:
            raise StartRefused(
                f"container name {name} on {self._node} belongs to another gang, of {theirs.folder}:"
                f" `supervisor stop` there ends it, or set container_name"
            )
        if holder["State"]["Status"] != "created":
            launch = found.get(LAUNCH, "unknown")
            raise LaunchFailed(f"container {name} of launch {launch} is still on {self._node}: `supervisor stop` ends it")
        self._remove(holder["Id"])
        return True

    def _start(self, spec: RankSpec, key: str) -> bool:
        """False where this daemon has no init and another try goes without. Then the rank is the container's first process."""
        answer = self._api.post(f"/containers/{key}/start")
        if answer.status in (204, 304):
            return True
        self._remove(key)
        if NO_INIT in answer.message and self._options.init:
            self._options = replace(self._options, init=False)
            return False
        raise self._start_error(spec, answer)

    def _start_error(self, spec: RankSpec, answer: Answer) -> LaunchFailed:
        advice = next((helps for says, helps in START_ADVICE if says in answer.message), "")
        line = f"rank {spec.rank} cannot be started on {self._node}: {answer.message}" + (f": {advice}" if advice else "")
        return (StartRefused if advice or answer.status == 400 else LaunchFailed)(line)

    def _remove(self, key: str) -> None:
        """404: gone already; 409: somebody else is removing it."""
        answer = self._api.delete(f"/containers/{key}", {"force": "1", "v": "1"})
        if answer.status not in (204, 404, 409):
            raise LaunchFailed(
                f"container {key[:12]} on {self._node} cannot be removed: {answer.message}: `docker rm -f {key[:12]}`"
            )

    def _signal(self, handle: RankHandle, name: str) -> None:
        """404 and 409: it has ended."""
        try:
            answer = self._api.post(f"/containers/{handle.key}/kill", {"signal": name})
        except Refused as error:
            raise LaunchFailed(f"{handle} cannot be sent {name}: {error}") from None
        if answer.status not in (204, 404, 409):
            raise LaunchFailed(
                f"{handle} cannot be sent {name}: {answer.message}: `docker kill {handle.key[:12]}` on {self._node}"
            )

    def _follower(self, handle: RankHandle, cursor: Cursor) -> Follower:
        """The one that stands at the cursor, or a new one. Readers that stand elsewhere have theirs, the newest few of them."""
        with self._lock:
            standing = self._followers.setdefault(handle.key, [])
            found = next((one for one in standing if one.cursor == cursor), None)
            if found is None:
                found = Follower(cursor, lambda at: self._open_log(handle, at, follow=True), lambda: self.poll(handle) is None)
                standing.append(found)
            surplus = [standing.pop(0)] if len(standing) > READERS else []
        for one in surplus:
            one.close()
        return found

    def _unfollow(self, key: str) -> None:
        with self._lock:
            followers = self._followers.pop(key, [])
        for one in followers:
            one.close()

    def _written(self, handle: RankHandle, cursor: Cursor) -> Iterator[Any]:
        """Messages that are there by now, with the cursor after each; none of a container that is gone."""
        try:
            stream = self._open_log(handle, cursor, follow=False)
        except (LaunchFailed, Refused):
            return
        try:
            yield from unread(messages(stream), cursor)
        finally:
            stream.close()

    def _open_log(self, handle: RankHandle, cursor: Cursor, follow: bool, *, stamps: bool = True) -> LogStream:
        params = {
            "stdout": "1",
            "stderr": "1",
            "timestamps": "1" if stamps else "0",
            "follow": "1" if follow else "0",
            "since": cursor.since,
        }
        stream = self._api.stream(f"/containers/{handle.key}/logs", params, None if follow else READ_S)
        if stream.status != 200:
            stream.close()
            raise LaunchFailed(f"{handle}: its log cannot be read (status {stream.status})")
        return stream


def _ended(handle: RankHandle, answer: Answer) -> RankExit | None:
    """The end that ``inspect`` tells of. An answer that tells nothing (a daemon in trouble) is no end."""
    if answer.status == 404:
        return RankExit(handle.launch_id, handle.rank, None)
    if answer.status != 200:
        return None
    state = answer.document["State"]
    end = container_end(state)
    if end.kind == "running":
        return None
    code = None if state.get("Status") == "created" else end.exit_code
    return RankExit(handle.launch_id, handle.rank, code, end.signal, end.out_of_memory)
