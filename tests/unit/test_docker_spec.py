"""One rank as a container: what is asked for, what is not, and reading it back from the labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from build.bundle import Needs
from supervisor.engine.contract import RankCommand
from supervisor.runners.docker_spec import LogLimits, Options, create_body, labels, leftover
from supervisor.runners.protocol import Mount, RankSpec

SPEC = RankSpec(
    "20260101-l1", 1, 2, "head", RankCommand(1, ("/bin/lanes", "MODEL", "1"), (("B", "2"), ("A", "1"))), "hash", "entry", 4096
)
ASKS = ("DeviceRequests", "Devices", "CapAdd", "Ulimits", "Privileged")


def test_the_command_replaces_the_images_own() -> None:
    body = create_body(SPEC, "sha256:1", Options())
    assert (body["Image"], body["Entrypoint"], body["Cmd"]) == ("sha256:1", ["/bin/lanes"], ["MODEL", "1"])
    assert body["Env"] == ["A=1", "B=2", "TWINFOLD_RANK=20260101-l1/1"]


def test_a_target_without_needs_asks_for_no_device_and_no_right() -> None:
    for needs in (None, Needs()):
        host = create_body(replace(SPEC, needs=needs), "x", Options())["HostConfig"]
        assert not [ask for ask in ASKS if ask in host]


@pytest.mark.parametrize(
    ("needs", "asks"),
    [
        (Needs(gpu=True), {"DeviceRequests": [{"Count": -1, "Capabilities": [["gpu"]]}]}),
        (
            Needs(infiniband=True),
            {
                "Devices": [{"PathOnHost": "/dev/infiniband", "PathInContainer": "/dev/infiniband", "CgroupPermissions": "rwm"}],
                "CapAdd": ["IPC_LOCK"],
            },
        ),
        (
            Needs(memlock=True),
            {
                "CapAdd": ["IPC_LOCK"],
                "Ulimits": [{"Name": "memlock", "Soft": -1, "Hard": -1}, {"Name": "stack", "Soft": 67108864, "Hard": 67108864}],
            },
        ),
    ],
)
def test_each_need_asks_for_its_own_and_no_more(needs: Needs, asks: dict[str, object]) -> None:
    host = create_body(replace(SPEC, needs=needs), "x", Options())["HostConfig"]
    assert {ask: host[ask] for ask in ASKS if ask in host} == asks


def test_the_host_side_is_the_contracts() -> None:
    options = Options(log=LogLimits(2, 3), init=False)
    mounts = (Mount(Path("/s/model"), "/store/model"), Mount(Path("/var/cache/x"), "/cache", read_only=False))
    body = create_body(replace(SPEC, mounts=mounts, user="1000:1000"), "x", options)
    assert body["User"] == "1000:1000"
    assert body["HostConfig"] == {
        "NetworkMode": "host",
        "IpcMode": "host",
        "OomScoreAdj": 1000,
        "RestartPolicy": {"Name": "no"},
        "Init": False,
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "2m", "max-file": "3"}},
        "Mounts": [
            {"Type": "bind", "Source": "/s/model", "Target": "/store/model", "ReadOnly": True},
            {"Type": "bind", "Source": "/var/cache/x", "Target": "/cache", "ReadOnly": False},
        ],
    }


@given(st.integers(0, 7), st.integers(1, 8), st.integers(0, 1 << 20), st.booleans())
def test_what_a_container_is_can_be_read_back_from_its_labels(rank: int, world: int, context: int, alive: bool) -> None:
    spec = replace(SPEC, rank=rank, world_size=world, context_tokens=context)
    state = {"Running": alive, "Status": "running" if alive else "exited"}
    found = leftover({"Id": "abc", "Name": "/n", "Config": {"Labels": labels(spec, "p")}, "State": state}, "head")
    assert found is not None
    assert (found.handle.launch_id, found.handle.rank, found.handle.key, found.handle.spec_hash) == (
        "20260101-l1",
        rank,
        "abc",
        "hash",
    )
    assert (found.alive, found.world_size, found.bundle_entry, found.context_tokens) == (alive, world, "entry", context)
    assert found.detail["container"] == "n"


@pytest.mark.parametrize("broken", [{}, {"twinfold.launch": "x"}, {"twinfold.launch": "x", "twinfold.rank": "one"}, None])
def test_a_container_without_a_ranks_labels_is_no_leftover(broken: dict[str, str] | None) -> None:
    assert leftover({"Id": "abc", "Config": {"Labels": broken}, "State": {}}, "head") is None
