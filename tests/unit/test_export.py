"""Exports: the systemd unit before systemd itself, compose and LeaderWorkerSet as documents of the same containers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from build.bundle import Needs
from build.errors import UsageError
from build.settings import Sources
from supervisor.configuration import configure
from supervisor.engine.contract import RankCommand
from supervisor.export import compose, lws, systemd
from supervisor.runners.docker_spec import Options, create_body
from supervisor.runners.protocol import Mount, RankSpec


def unit(tmp_path: Path, environ: dict[str, str] | None = None, flags: dict[str, object] | None = None) -> str:
    sources = Sources(None, environ or {}, {"state_dir": str(tmp_path / "st%te dir"), **(flags or {})})
    program = tmp_path / "check out" / "supervisor"
    program.parent.mkdir(exist_ok=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tmp_path / "st%te dir").mkdir(exist_ok=True)
    return systemd.unit(
        configure(sources), systemd.Where(program.parent, program, "root", Path("/root"), (("TF_DS_X", 'a "b" 50%'),))
    )


def directives(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if "=" in line:
            found.setdefault(line.split("=", 1)[0], []).append(line.split("=", 1)[1])
    return found


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    file = tmp_path / "twinfold.service"
    file.write_text(unit(tmp_path, {"TWINFOLD_SERVED_NAME": "a $HOME; 'b' %i"}, {"parallel": 2}))
    done = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_only_the_supervisor_is_signalled_and_it_has_the_time_it_may_take(tmp_path: Path) -> None:
    found = directives(unit(tmp_path, flags={"stop_timeout": 100}))
    assert found["KillMode"] == ["process"]
    assert int(found["TimeoutStopSec"][0]) > 100
    assert found["Type"] == ["notify"]
    assert int(found["WatchdogSec"][0]) > 10


def test_ends_that_a_start_would_only_repeat_are_left_alone(tmp_path: Path) -> None:
    assert directives(unit(tmp_path))["RestartPreventExitStatus"] == ["2 5 7"]


def test_settings_of_flags_and_environment_go_into_the_command_and_those_of_files_do_not(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("parallel = 3\n")
    one = configure(Sources(file, {"TWINFOLD_CONTEXT": "2048"}, {"drafts": "false", "state_dir": str(tmp_path)}))
    assert systemd.given(one) == ("--set=context=2048", "--set=drafts=false")


def test_a_service_keeps_its_guards_from_the_kernels_choice(tmp_path: Path) -> None:
    assert "OOMScoreAdjust=-1000\n" in unit(tmp_path)


def test_what_systemd_would_read_otherwise_is_escaped(tmp_path: Path) -> None:
    found = directives(unit(tmp_path, {"TWINFOLD_SERVED_NAME": "a $HOME %i"}))
    assert '"--set=served_name=a $$HOME %%i"' in found["ExecStart"][0]
    assert "st%%te dir" in found["ExecStart"][0]
    assert '"TF_DS_X=a \\"b\\" 50%%"' in found["Environment"]


def body(rank: int, needs: Needs | None = None) -> Any:
    spec = RankSpec(
        launch_id="l",
        rank=rank,
        world_size=2,
        node="head",
        command=RankCommand(rank, ("/bin/rank", f"--rank={rank}", "$(X) $Y"), (("TF_A", "$b"),)),
        spec_hash="s",
        bundle_entry="b",
        context_tokens=1024,
        mounts=(Mount(Path("/st/a"), "/store/a"), Mount(Path("/c"), "/cache", read_only=False)),
        needs=needs,
        user="1000:1001",
    )
    return create_body(spec, "localhost/img:1", Options())


REAL = Needs(gpu=True, infiniband=True, memlock=True)


def test_a_node_has_a_compose_file_of_its_own_ranks() -> None:
    made = compose.documents({0: body(0), 1: body(1)}, {0: "head", 1: "worker"}, "twinfold")
    assert {node: list(document["services"]) for node, document in made.items()} == {"head": ["rank0"], "worker": ["rank1"]}
    both = compose.documents({0: body(0), 1: body(1)}, {0: "head", 1: "head"}, "twinfold")
    assert list(both["head"]["services"]) == ["rank0", "rank1"]


def test_a_service_is_the_runners_container() -> None:
    service = compose.service(body(1, REAL))
    assert service["entrypoint"] == ["/bin/rank"]
    assert service["command"] == ["--rank=1", "$$(X) $$Y"]
    assert service["environment"]["TF_A"] == "$$b"
    assert (service["restart"], service["network_mode"], service["user"]) == ("no", "host", "1000:1001")
    assert service["volumes"][0] == {
        "type": "bind",
        "source": "/st/a",
        "target": "/store/a",
        "read_only": True,
        "bind": {"create_host_path": False},
    }
    assert service["devices"] == ["/dev/infiniband:/dev/infiniband:rwm"]
    assert service["ulimits"]["memlock"] == {"soft": -1, "hard": -1}
    assert service["deploy"]["resources"]["reservations"]["devices"][0]["capabilities"] == ["gpu"]


def test_a_service_asks_for_no_hardware_that_the_target_does_not() -> None:
    assert not {"devices", "cap_add", "ulimits", "deploy"} & set(compose.service(body(0)))


def test_a_leader_worker_set_is_rank_0_and_rank_1() -> None:
    made = lws.document({0: body(0, REAL), 1: body(1, REAL)}, "twinfold", 8888)
    template = made["spec"]["leaderWorkerTemplate"]
    leader, worker = (template[name]["spec"]["containers"][0] for name in ("leaderTemplate", "workerTemplate"))
    assert (template["size"], leader["args"][0], worker["args"][0]) == (2, "--rank=0", "--rank=1")
    assert leader["args"][1] == "$$(X) $Y"
    assert leader["readinessProbe"]["httpGet"]["port"] == 8888
    assert "readinessProbe" not in worker
    assert worker["securityContext"] == {
        "runAsUser": 1000,
        "runAsGroup": 1001,
        "capabilities": {"add": ["IPC_LOCK"]},
        "allowPrivilegeEscalation": False,
    }
    volumes = {one["name"] for one in template["workerTemplate"]["spec"]["volumes"]}
    assert {one["name"] for one in worker["volumeMounts"]} == volumes


def test_a_leader_worker_set_of_another_world_is_refused() -> None:
    with pytest.raises(UsageError, match="has 4"):
        lws.document({rank: body(rank) for rank in range(4)}, "twinfold", 8888)
