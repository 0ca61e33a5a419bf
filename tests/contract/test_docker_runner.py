"""One suite for all ways to run ranks, as processes, as containers and over nodes; then what only containers can do wrong."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from build.bundle import ImageRef, Needs
from build.errors import LaunchFailed
from build.image.daemon import DockerDaemon
from build.image.docker_api import DockerApi, connect
from supervisor.engine.contract import RankCommand
from supervisor.runners.docker import DockerRunner, StoreImages
from supervisor.runners.docker_made import MADE
from supervisor.runners.docker_spec import LogLimits, Options
from supervisor.runners.fleet import FleetRunner
from supervisor.runners.process import ProcessRunner
from supervisor.runners.protocol import MARKER, Mount, Owner, RankExit, RankHandle, RankSpec, Runner, StartRefused
from tests.testing import dockerd as daemons
from tests.testing.busybox import SHELL, busybox_image
from tests.testing.folders import let_others_in

PATIENCE_S = 60.0
UP = "echo up; while :; do sleep 0.05; done"
ORDERLY = "trap 'echo bye; exit 0' TERM; " + UP

Start = Callable[..., RankHandle]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def image(store: Path) -> ImageRef:
    return busybox_image(store)


@pytest.fixture
def project() -> str:
    return f"test-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def again(request: pytest.FixtureRequest, project: str, tmp_path: Path) -> Callable[[], Runner]:
    """Makes a runner that knows no more than what is recorded: what a new supervisor has."""
    if request.param == "process":
        return lambda: ProcessRunner(tmp_path / "run")
    if request.param == "fleet":
        return lambda: FleetRunner({"head": ProcessRunner(tmp_path / "run")})
    api, store = request.getfixturevalue("api"), request.getfixturevalue("store")
    return lambda: DockerRunner(api, StoreImages(DockerDaemon(api), store), options=Options(project))


@pytest.fixture
def runner(again: Callable[[], Runner]) -> Iterator[Runner]:
    found = again()
    yield found
    _clear(found)


def _clear(runner: Runner) -> None:
    for left in runner.leftovers():
        runner.kill(left.handle)
        assert runner.wait([left.handle], PATIENCE_S)
        runner.remove(left.handle)
    if isinstance(runner, DockerRunner | FleetRunner):
        runner.close()


@pytest.fixture
def spec(request: pytest.FixtureRequest) -> RankSpec:
    image = request.getfixturevalue("image")
    command = RankCommand(0, (*SHELL, UP), (("GIVEN", "a b"), ("TF_X", "1")))
    return RankSpec("20260101-l1", 0, 2, "head", command, "hash", "entry-bundle", 4096, image=image)


def _script(spec: RankSpec, text: str, **changed: Any) -> RankSpec:
    return replace(spec, command=replace(spec.command, argv=(*SHELL, text)), **changed)


def _until(ready: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.02)


def _ended(runner: Runner, handle: RankHandle) -> RankExit:
    (found,) = runner.wait([handle], PATIENCE_S)
    return found


def _log(runner: Runner, handle: RankHandle) -> bytes:
    return b"".join(runner.whole_log(handle))


def _wait_for_log(runner: Runner, handle: RankHandle, word: bytes, cursor: str = "") -> str:
    """Reads on until the word has come, and says where that is."""
    seen, end = b"", time.monotonic() + PATIENCE_S
    while word not in seen:
        assert time.monotonic() < end, seen
        chunk = runner.read_log(handle, cursor)
        seen, cursor = seen + chunk.data, chunk.cursor
        time.sleep(0.01)
    return cursor


both = pytest.mark.parametrize("again", ["process", "docker", "fleet"], indirect=True)
docker_only = pytest.mark.parametrize("again", ["docker"], indirect=True)


@both
def test_a_rank_runs_until_it_exits_and_its_status_is_told(runner: Runner, spec: RankSpec) -> None:
    handle = runner.start(_script(spec, "echo out; echo err >&2; sleep 0.3; exit 3"))
    assert runner.poll(handle) is None
    assert _ended(runner, handle) == RankExit(spec.launch_id, 0, 3, 0, "unknown")
    assert runner.poll(handle) == RankExit(spec.launch_id, 0, 3, 0, "unknown")
    assert sorted(_log(runner, handle).split()) == [b"err", b"out"]


@both
def test_waiting_ends_in_time_when_nothing_does(runner: Runner, spec: RankSpec) -> None:
    handle = runner.start(spec)
    began = time.monotonic()
    assert runner.wait([handle], 0.3) == ()
    assert 0.25 < time.monotonic() - began < 3.0


@both
def test_an_orderly_end_is_asked_for(runner: Runner, spec: RankSpec) -> None:
    handle = runner.start(_script(spec, ORDERLY))
    _wait_for_log(runner, handle, b"up")
    runner.terminate(handle)
    assert _ended(runner, handle) == RankExit(spec.launch_id, 0, 0, 0, "no")
    assert b"bye" in _log(runner, handle)
    runner.terminate(handle)
    runner.kill(handle)


@both
def test_a_rank_without_a_handler_ends_by_the_signal(runner: Runner, spec: RankSpec) -> None:
    handle = runner.start(_script(spec, "echo up; exec sleep 1000"))
    _wait_for_log(runner, handle, b"up")
    runner.terminate(handle)
    assert _ended(runner, handle) == RankExit(spec.launch_id, 0, 143, 15, "no")


@both
def test_a_killed_rank_ends_by_signal_9_and_nothing_is_claimed_of_memory(runner: Runner, spec: RankSpec) -> None:
    handle = runner.start(_script(spec, "trap '' TERM; " + UP))
    _wait_for_log(runner, handle, b"up")
    runner.kill(handle)
    assert _ended(runner, handle) == RankExit(spec.launch_id, 0, 137, 9, "unknown")


@both
def test_the_log_is_read_on_from_a_cursor_by_anybody(runner: Runner, again: Callable[[], Runner], spec: RankSpec) -> None:
    handle = runner.start(_script(spec, "echo one; sleep 0.3; echo two; sleep 0.3; echo three; sleep 1000"))
    cursor = _wait_for_log(runner, handle, b"one\n")
    other = again()
    _wait_for_log(other, handle, b"two\nthree\n", cursor)
    _wait_for_log(runner, handle, b"one\ntwo\nthree\n")
    last = _wait_for_log(runner, handle, b"three\n", cursor)
    assert runner.read_log(handle, last).data == b""
    if isinstance(other, DockerRunner):
        other.close()


@both
def test_the_log_of_an_ended_rank_is_complete_at_once(runner: Runner, spec: RankSpec) -> None:
    handle = runner.start(_script(spec, "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; printf last"))
    _ended(runner, handle)
    chunk = runner.read_log(handle)
    assert chunk.data == _log(runner, handle)
    assert chunk.data.splitlines() == [b"line %d" % i for i in range(2000)] + [b"last"]
    assert runner.read_log(handle, chunk.cursor).data == b""


@both
def test_a_flood_comes_in_bounded_pieces_and_whole(runner: Runner, spec: RankSpec) -> None:
    # Lines longer than the 16 KiB that Docker cuts messages at.
    line = "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy" * 512
    handle = runner.start(_script(spec, f"i=0; while [ $i -lt 150 ]; do echo {line}; i=$((i+1)); done"))
    found, cursor, sizes = b"", "", []
    end = time.monotonic() + PATIENCE_S
    while len(found) < 150 * (len(line) + 1):
        assert time.monotonic() < end
        chunk = runner.read_log(handle, cursor)
        cursor, found = chunk.cursor, found + chunk.data
        sizes.append(len(chunk.data))
    assert max(sizes) <= (1 << 20) + 16384
    assert found == (line.encode() + b"\n") * 150
    assert b"".join(runner.whole_log(handle)) == found
    assert max(map(len, runner.whole_log(handle))) <= 1 << 20


@both
def test_a_log_that_goes_by_unread_is_still_whole_at_the_end_and_can_be_read_from_its_beginning(
    runner: Runner, spec: RankSpec
) -> None:
    handle = runner.start(_script(spec, "for i in 1 2 3; do echo line $i; sleep 0.2; done"))
    cursor, end = runner.read_log(handle).cursor, time.monotonic() + PATIENCE_S
    while runner.poll(handle) is None:
        assert time.monotonic() < end
        cursor = runner.pass_log(handle, cursor)
        time.sleep(0.05)
    wanted = b"line 1\nline 2\nline 3\n"
    assert b"".join(runner.whole_log(handle)) == wanted
    assert runner.read_log(handle).data == wanted


@both
def test_a_new_supervisor_finds_a_running_rank_and_can_end_it(
    runner: Runner, again: Callable[[], Runner], spec: RankSpec
) -> None:
    handle = runner.start(spec)
    other = again()
    (left,) = other.leftovers()
    assert (left.handle, left.alive, left.world_size) == (handle, True, 2)
    assert (left.bundle_entry, left.context_tokens) == ("entry-bundle", 4096)
    assert other.poll(left.handle) is None
    other.kill(left.handle)
    assert other.wait([left.handle], PATIENCE_S)
    assert [one.alive for one in other.leftovers()] == [False]
    other.remove(left.handle)
    assert other.leftovers() == ()
    ended = runner.poll(handle)
    assert ended is not None


@both
def test_leftovers_come_oldest_launch_first(runner: Runner, spec: RankSpec) -> None:
    started = [
        runner.start(replace(spec, launch_id=launch, rank=rank)) for launch in ("20260102-b", "20260101-a") for rank in (1, 0)
    ]
    found = [(one.handle.launch_id, one.handle.rank) for one in runner.leftovers()]
    assert found == [("20260101-a", 0), ("20260101-a", 1), ("20260102-b", 0), ("20260102-b", 1)]
    assert len(started) == 4


@both
def test_a_running_rank_is_not_removed(runner: Runner, spec: RankSpec) -> None:
    handle = runner.start(spec)
    with pytest.raises(LaunchFailed, match="still runs"):
        runner.remove(handle)
    runner.kill(handle)
    _ended(runner, handle)
    runner.remove(handle)
    assert runner.leftovers() == ()
    assert runner.read_log(handle).data == b""
    assert list(runner.whole_log(handle)) == []


@both
def test_a_program_that_is_not_there_is_named_and_never_mistaken_for_a_crash(runner: Runner, spec: RankSpec) -> None:
    """A process is refused at once. A container's init starts, finds nothing to run, and ends with the shell's status for it."""
    missing = replace(spec, command=replace(spec.command, argv=("/no/such/program", "x")))
    if isinstance(runner, ProcessRunner | FleetRunner):  # this fleet is one of processes
        with pytest.raises(StartRefused, match="/no/such/program"):
            runner.start(missing)
        assert runner.leftovers() == ()
        return
    handle = runner.start(missing)
    assert _ended(runner, handle).code == 127
    assert b"/no/such/program" in _log(runner, handle)


@docker_only
def test_without_an_init_a_missing_program_is_refused_and_leaves_nothing(
    runner: Runner, api: DockerApi, store: Path, spec: RankSpec, project: str
) -> None:
    bare = DockerRunner(api, StoreImages(DockerDaemon(api), store), options=Options(project, init=False))
    with pytest.raises(StartRefused, match=r"/no/such/program.*the image lacks the rank's program") as refused:
        bare.start(replace(spec, command=replace(spec.command, argv=("/no/such/program", "x"))))
    assert "\n" not in str(refused.value)
    assert runner.leftovers() == ()


@both
def test_the_environment_is_the_commands_own_and_the_marker(
    runner: Runner, spec: RankSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    handle = runner.start(_script(spec, "/bin/busybox env; cat /proc/self/oom_score_adj"))
    _ended(runner, handle)
    said = _log(runner, handle).decode().splitlines()
    assert {"GIVEN=a b", "TF_X=1", f"{MARKER}=20260101-l1/0", "1000"} <= set(said)
    assert not [line for line in said if "secret" in line]


@both
def test_an_unknown_rank_has_ended(runner: Runner) -> None:
    stray = RankHandle("20260101-none", 0, "head", "999999999", "hash")
    assert runner.poll(stray) == RankExit("20260101-none", 0, None)
    runner.terminate(stray)
    runner.kill(stray)


def _inspect(api: DockerApi, handle: RankHandle) -> Any:
    return api.get(f"/containers/{handle.key}/json").document


def _all(api: DockerApi) -> set[str]:
    return {one["Id"] for one in api.get("/containers/json", {"all": "1"}).document}


@docker_only
def test_a_container_is_made_as_the_engine_needs_it(runner: Runner, api: DockerApi, spec: RankSpec, project: str) -> None:
    handle = runner.start(replace(spec, container_name=f"{project}-rank0"))
    found = _inspect(api, handle)
    host = found["HostConfig"]
    assert found["Name"] == f"/{project}-rank0"
    assert (host["NetworkMode"], host["IpcMode"], host["OomScoreAdj"]) == ("host", "host", 1000)
    assert host["RestartPolicy"]["Name"] in ("no", "")
    assert host["LogConfig"] == {"Type": "json-file", "Config": {"max-file": "4", "max-size": "16m"}}
    assert (host["Privileged"], host["DeviceRequests"], host["Devices"], host["CapAdd"], host["Ulimits"]) == (
        False,
        None,
        None,
        None,
        None,
    )
    labels = {key: value for key, value in found["Config"]["Labels"].items() if key.startswith("twinfold.")}
    assert MADE in labels
    assert {key: value for key, value in labels.items() if key != MADE} == {
        "twinfold.project": project,
        "twinfold.launch": "20260101-l1",
        "twinfold.rank": "0",
        "twinfold.spec": "hash",
        "twinfold.world": "2",
        "twinfold.bundle": "entry-bundle",
        "twinfold.context": "4096",
        "twinfold.node": "head",
    }
    assert spec.image is not None
    assert found["Image"] == spec.image.config_digest


@docker_only
def test_a_container_made_anew_with_other_words_under_the_same_labels_is_told(
    runner: Runner, api: DockerApi, spec: RankSpec, tmp_path: Path
) -> None:
    handle = runner.start(replace(spec, mounts=(Mount(tmp_path, "/store/m"),), user="1000:1000"))
    assert [left.changed for left in runner.leftovers()] == [""]
    found = _inspect(api, handle)
    body = {**found["Config"], "HostConfig": found["HostConfig"]}
    for key, word, said in (
        ("Cmd", [*body["Cmd"][:-1], UP + " "], f"argument 3 is {UP + ' '!r}"),
        ("Env", [*body["Env"], "OTHER=c"], "variable OTHER is 'c', which it was made without"),
    ):
        runner.kill(handle)
        _ended(runner, handle)
        runner.remove(handle)
        made = api.post("/containers/create", {"name": f"hand-{key.lower()}"}, {**body, key: word})
        assert made.status == 201, made.message
        assert api.post(f"/containers/{made.document['Id']}/start").status == 204
        (left,) = runner.leftovers()
        assert left.alive
        assert left.changed == said
        handle = left.handle


def test_mounts_are_read_only_but_the_cache_which_belongs_to_the_user(
    api: DockerApi, store: Path, spec: RankSpec, project: str, tmp_path: Path
) -> None:
    (tmp_path / "cache").mkdir()
    os.chown(tmp_path / "cache", 65534, 65534)
    let_others_in(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model/file").write_text("content")
    runner = DockerRunner(api, StoreImages(DockerDaemon(api), store), options=Options(project))
    script = "cat /store/m/file; echo x > /store/m/new || echo read-only; echo x > /cache/made && echo written"
    mounts = (Mount(tmp_path / "model", "/store/m"), Mount(tmp_path / "cache", "/cache", read_only=False))
    handle = runner.start(_script(spec, script, mounts=mounts, user="65534:65534"))
    assert _ended(runner, handle).code == 0
    said = _log(runner, handle)
    assert b"content" in said
    assert b"Read-only file system" in said
    assert b"written" in said
    assert (tmp_path / "cache/made").stat().st_uid == 65534
    assert not (tmp_path / "model/new").exists()
    _clear(runner)


@docker_only
def test_memlock_is_lifted_where_it_is_needed(runner: Runner, spec: RankSpec) -> None:
    locked = _script(spec, "ulimit -l; ulimit -s", needs=Needs(memlock=True))
    if subprocess.run(["prlimit", "--memlock=unlimited:unlimited", "true"], capture_output=True, check=False).returncode != 0:
        with pytest.raises(StartRefused, match="LimitMEMLOCK"):
            runner.start(locked)
        return
    handle = runner.start(locked)
    _ended(runner, handle)
    assert _log(runner, handle).split() == [b"unlimited", b"65536"]


@docker_only
@pytest.mark.parametrize(
    ("needs", "says"),
    [(Needs(gpu=True), "NVIDIA Container Toolkit"), (Needs(infiniband=True), "no RDMA devices")],
)
def test_devices_that_the_node_lacks_are_named_with_what_helps(
    runner: Runner, api: DockerApi, spec: RankSpec, needs: Needs, says: str
) -> None:
    if needs.infiniband and Path("/dev/infiniband").exists():
        pytest.skip("this node has RDMA devices")
    before = _all(api)
    with pytest.raises(StartRefused, match=says) as refused:
        runner.start(replace(spec, needs=needs))
    assert "\n" not in str(refused.value)
    assert _all(api) == before


@docker_only
def test_a_missing_mount_is_named_and_nothing_is_made_in_its_place(runner: Runner, spec: RankSpec, tmp_path: Path) -> None:
    with pytest.raises(StartRefused, match=r"bind source path does not exist: .*gone.*doit replicate"):
        runner.start(replace(spec, mounts=(Mount(tmp_path / "gone", "/store/x"),)))
    assert runner.leftovers() == ()
    assert not (tmp_path / "gone").exists()


@docker_only
def test_a_strangers_container_of_our_name_is_refused_by_name_and_stays(
    runner: Runner, api: DockerApi, spec: RankSpec, project: str
) -> None:
    assert spec.image is not None
    made = api.post("/containers/create", {"name": project}, {"Image": spec.image.config_digest, "Cmd": ["/bin/busybox"]})
    with pytest.raises(StartRefused, match=f"container name {project} .* belongs to a container that is not ours"):
        runner.start(replace(spec, container_name=project))
    assert made.document["Id"] in _all(api)
    api.delete(f"/containers/{made.document['Id']}")


@docker_only
def test_our_own_container_of_the_name_is_replaced_only_where_it_never_ran(
    runner: Runner, api: DockerApi, spec: RankSpec, project: str
) -> None:
    assert spec.image is not None
    body = {"Image": spec.image.config_digest, "Cmd": ["/bin/busybox"], "Labels": {"twinfold.project": project}}
    made = api.post("/containers/create", {"name": project}, body)
    handle = runner.start(replace(spec, container_name=project))
    assert made.document["Id"] not in _all(api)
    with pytest.raises(LaunchFailed, match=f"container {project} of launch 20260101-l1 is still on head"):
        runner.start(replace(spec, launch_id="20260102-l2", container_name=project))
    assert runner.poll(handle) is None


@docker_only
def test_whose_a_rank_is_can_be_read_from_it_and_its_name_is_nobody_elses(
    runner: Runner, again: Callable[[], Runner], spec: RankSpec, project: str
) -> None:
    first, second = Owner("a" * 16, "here:/first"), Owner("b" * 16, "here:/second")
    runner.start(replace(spec, container_name=project, owner=first))
    assert [one.owner for one in again().leftovers()] == [first]
    with pytest.raises(StartRefused, match=f"container name {project} .* belongs to another gang, of here:/first"):
        runner.start(replace(spec, launch_id="20260102-l2", container_name=project, owner=second))
    assert [one.alive for one in again().leftovers()] == [True]


@docker_only
def test_a_bundle_without_an_image_for_this_platform_is_refused(runner: Runner, spec: RankSpec) -> None:
    with pytest.raises(StartRefused, match="no image for this node's platform"):
        runner.start(replace(spec, image=None))


@docker_only
def test_a_missing_image_archive_is_named(runner: Runner, spec: RankSpec) -> None:
    assert spec.image is not None
    gone = replace(spec.image, archive=replace(spec.image.archive, entry="gone"))
    with pytest.raises(StartRefused, match=r"gone/image\.tar is no readable image archive"):
        runner.start(replace(spec, image=gone))


@docker_only
def test_an_archive_of_another_image_is_not_started(runner: Runner, spec: RankSpec) -> None:
    assert spec.image is not None
    with pytest.raises(StartRefused, match="is not the bundle's image"):
        runner.start(replace(spec, image=replace(spec.image, config_digest="sha256:" + "0" * 64)))


@docker_only
def test_an_image_removed_meanwhile_is_loaded_again(runner: Runner, api: DockerApi, spec: RankSpec) -> None:
    assert spec.image is not None
    handle = runner.start(_script(spec, "exit 0"))
    _ended(runner, handle)
    runner.remove(handle)
    assert api.delete(f"/images/{spec.image.tag}", {"force": "1"}).status == 200
    again = runner.start(_script(spec, "exit 0"))
    assert _ended(runner, again).code == 0


@docker_only
def test_a_container_removed_by_somebody_has_ended_and_how_is_unknown(runner: Runner, api: DockerApi, spec: RankSpec) -> None:
    handle = runner.start(spec)
    api.delete(f"/containers/{handle.key}", {"force": "1"})
    assert _ended(runner, handle) == RankExit(spec.launch_id, 0, None)


def test_rotation_keeps_the_newest_of_a_flood(api: DockerApi, store: Path, spec: RankSpec, project: str) -> None:
    options = Options(project, log=LogLimits(file_mib=1, files=2))
    runner = DockerRunner(api, StoreImages(DockerDaemon(api), store), options=options)
    line = "z" * 1000
    handle = runner.start(_script(spec, f"i=0; while [ $i -lt 5000 ]; do echo {line} $i; i=$((i+1)); done"))
    _ended(runner, handle)
    kept = _log(runner, handle)
    assert len(kept) < 2_200_000
    assert kept.endswith(b" 4999\n")
    _clear(runner)


def test_a_daemon_without_an_init_starts_ranks_too(tmp_path_factory: pytest.TempPathFactory, spec: RankSpec, store: Path) -> None:
    folder, helpers = tmp_path_factory.mktemp("i"), tmp_path_factory.mktemp("helpers")
    for name in ("containerd", "containerd-shim", "containerd-shim-runc-v2", "ctr", "runc"):
        found = shutil.which(name, path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        if found:
            (helpers / name).symlink_to(found)
    with daemons.dockerd(folder, path=str(helpers)) as running:
        api = connect(running.socket, "the test's Docker")
        runner = DockerRunner(api, StoreImages(DockerDaemon(api), store))
        handle = runner.start(_script(spec, ORDERLY))
        assert _inspect(api, handle)["HostConfig"]["Init"] is False
        _wait_for_log(runner, handle, b"up")
        runner.terminate(handle)
        assert _ended(runner, handle).code == 0
        _clear(runner)
        api.close()


# The SDK leaves the socket of a refused connection to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_daemon_that_dies_leaves_ranks_unknown_until_it_is_back(
    tmp_path_factory: pytest.TempPathFactory, spec: RankSpec, store: Path
) -> None:
    _outlive_the_daemon(tmp_path_factory.mktemp("k"), spec, store)
    gc.collect()


def _outlive_the_daemon(folder: Path, spec: RankSpec, store: Path) -> None:
    with daemons.dockerd(folder, keep=True) as running:
        api = connect(running.socket, "the test's Docker")
        runner = DockerRunner(api, StoreImages(DockerDaemon(api), store))
        handle = runner.start(spec)
        cursor = _wait_for_log(runner, handle, b"up")
        running.kill()
        assert runner.poll(handle) is None
        assert runner.wait([handle], 0.2) == ()
        runner.read_log(handle, cursor)
        with pytest.raises(LaunchFailed, match="cannot be sent SIGKILL"):
            runner.kill(handle)
        with pytest.raises(LaunchFailed, match=r"rank 0 cannot be started: Docker (is not running on|on) the test's Docker"):
            runner.start(spec)
    with daemons.dockerd(folder):
        ended = _ended(runner, handle)
        assert ended.code != 0
        assert b"up" in _log(runner, handle)
        _clear(runner)
        api.close()
