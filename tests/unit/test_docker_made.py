"""A container that is not what it was made as is told from its own inspection, whatever its labels say."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.engine.contract import RankCommand
from supervisor.runners.docker_made import MADE
from supervisor.runners.docker_spec import Options, create_body, leftover
from supervisor.runners.protocol import Mount, RankSpec

COMMAND = RankCommand(1, ("/bin/lanes", "MODEL", "--pool", "8192", "--verify"), (("TF_TP_PORT", "1"), ("A", "x=y")))
MOUNTS = (
    Mount(Path("/s/model"), "/store/model"),
    Mount(Path("/c"), "/cache", read_only=False),
    Mount(Path("vol"), "/v", volume=True),
)
SPEC = RankSpec("20260101-l1", 1, 2, "worker", COMMAND, "hash", "entry", 4096, mounts=MOUNTS, user="1:1")
IMAGE_ENV = ("PATH=/bin", "LANG=C")


def inspected(spec: RankSpec = SPEC) -> dict[str, Any]:
    """As a daemon tells of a container that was asked for with the spec's body."""
    body = create_body(spec, "sha256:1", Options())
    host = body.pop("HostConfig")
    body["Env"] = [*body["Env"], *IMAGE_ENV]
    mounts = [
        {
            "Type": one["Type"],
            "Name": one["Source"] if one["Type"] == "volume" else "",
            "Source": "/var/lib/docker/volumes/vol/_data" if one["Type"] == "volume" else one["Source"],
            "Destination": one["Target"],
            "RW": not one["ReadOnly"],
        }
        for one in reversed(host["Mounts"])
    ]
    return {"Id": "i", "Name": "/n", "State": {"Running": True}, "Config": body, "HostConfig": host, "Mounts": mounts}


def changed(found: dict[str, Any], image_env: tuple[str, ...] | None = IMAGE_ENV) -> str:
    one = leftover(found, "worker", image_env)
    assert one is not None
    return one.changed


def test_what_is_as_it_was_made_is_not_changed_whether_its_image_is_there_or_gone() -> None:
    assert changed(inspected()) == ""
    assert changed(inspected(), None) == ""
    assert changed(inspected(replace(SPEC, mounts=(), user=""))) == ""


Edit = Callable[[dict[str, Any]], object]
EDITS: tuple[tuple[Edit, str], ...] = (
    (lambda c: c["Config"]["Cmd"].__setitem__(2, "4096"), "argument 3 (--pool) is '4096'"),
    (lambda c: c["Config"]["Cmd"].pop(), "argument 4 is missing"),
    (lambda c: c["Config"]["Cmd"].append("--fast"), "argument 5 is '--fast', which it was made without"),
    (lambda c: c["Config"].__setitem__("Entrypoint", ["/bin/sh"]), "argument 0 is '/bin/sh'"),
    (lambda c: c["Config"]["Env"].__setitem__(0, "A=z"), "variable A is 'z'"),
    (lambda c: c["Config"]["Env"].remove("TF_TP_PORT=1"), "variable TF_TP_PORT is missing"),
    (lambda c: c["Config"]["Env"].append("TF_X=1"), "variable TF_X is '1', which it was made without"),
    (lambda c: c["Mounts"][-1].__setitem__("Source", "/other"), "mount /store/model is 'bind /other read-only'"),
    (lambda c: c["Mounts"][-1].__setitem__("RW", True), "mount /store/model is 'bind /s/model writable'"),
    (lambda c: c["Mounts"].pop(), "mount /store/model is missing"),
    (lambda c: c["Config"].__setitem__("Image", "other:latest"), "image is 'other:latest'"),
    (lambda c: c["Config"].__setitem__("User", "0:0"), "user is '0:0'"),
    (lambda c: c["HostConfig"].__setitem__("NetworkMode", "bridge"), "NetworkMode is 'bridge'"),
    (lambda c: c["Config"]["Labels"].pop(MADE), "it does not say what it was made as"),
)


@pytest.mark.parametrize(("edit", "said"), EDITS, ids=[said for _, said in EDITS])
def test_each_edit_by_hand_is_named(edit: Edit, said: str) -> None:
    found = copy.deepcopy(inspected())
    edit(found)
    assert changed(found) == said


def test_a_word_replaced_everywhere_is_not_replaced_in_the_label() -> None:
    found = json.loads(json.dumps(inspected()).replace("8192", "4096"))
    assert changed(found) == "argument 3 (--pool) is '4096'"
