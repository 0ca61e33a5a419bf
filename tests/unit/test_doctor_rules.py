"""Every row of what a finding does, from facts as files hold them: its finding, its action by a run, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from build.bundle import Needs
from build.errors import UsageError
from supervisor.doctor import folder
from supervisor.doctor.collect import Raw
from supervisor.doctor.facts import NodeFacts, Trouble, read
from supervisor.doctor.findings import Action, Level
from supervisor.doctor.rules import NodeWish, Wanted, judge
from supervisor.doctor.script import Query, Section, command, sections
from tests.testing.cases import case

GIB = 1 << 30
CSV = case("gpu-csv-memory-na")
CLOCK = case("gpu-clock-cap-one-node")
CMA = case("memory-cma-free-exceeds-total")
STORE = "/srv/store"
REAL = Wanted(needs=Needs(gpu=True, infiniband=True, memlock=True), docker=True, gate_wait_s=5.0)
INFO = {"ServerVersion": "29.2.1", "Driver": "overlay2", "DriverStatus": [], "Runtimes": {"nvidia": {}, "runc": {}}}
SYSTEM = {"hostname": "spark-x", "kernel": "6.14.0", "machine": "aarch64", "user": "ops", "memlock": "64", "cmdline": "quiet"}


def sections_of(number: int = 1, **changed: str) -> dict[str, Section]:
    """What a healthy node prints; a section is replaced by its name with underscores for dots and dashes."""
    gpu = CSV.text("input-head.csv").replace("000000000001", f"{number:012d}")
    healthy = {
        "system.txt": "".join(f"{key} {value}\n" for key, value in SYSTEM.items()).replace("spark-x", f"spark-{number}"),
        "meminfo": CSV.text("input-head-meminfo"),
        "nvidia-smi.csv": gpu,
        "nvidia-smi-apps.csv": "gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n",
        "docker-info.json": json.dumps(INFO),
        "docker-ps.jsonl": "",
        "df.txt": f"@ {STORE}\n/dev/nvme0n1p2 ext4 4000000000000 0 2000000000000 0% /\n",
    }
    names = {name.replace(".", "_").replace("-", "_"): name for name in healthy}
    healthy.update({names.get(key, key): text for key, text in changed.items()})
    return {name: Section(text) for name, text in healthy.items()}


def node(name: str, number: int = 1, **changed: str) -> NodeFacts:
    return read(name, sections_of(number, **changed))


def pair(head: NodeFacts | None = None, worker: NodeFacts | None = None) -> list[NodeFacts]:
    return [head or node("head"), worker or node("worker", 2)]


def container(**more: str) -> str:
    labels = more.pop("labels", "")
    row = {"Names": "x", "Image": "busybox", "Command": '"sleep"', "State": "running", "Labels": labels, **more}
    return json.dumps(row) + "\n"


def test_a_healthy_pair_has_no_findings() -> None:
    assert judge(pair(), REAL) == ()


ENGRAM = f"{STORE}/engram"
NFS_DF = f"@ {ENGRAM}\n192.0.2.1:/srv nfs4 4000000000000 0 2000000000000 0% /mnt\n"
ON_NFS = Wanted(nodes={"worker": NodeWish(engram=ENGRAM)})
ROWS: dict[str, tuple[list[NodeFacts], Wanted, str, Level, Action, str]] = {
    "clock stuck low": (
        pair(worker=node("worker", 2, nvidia_smi_csv=CSV.text("input-head.csv").replace(" 0 %", " 95 %"))),
        REAL,
        "clock_stuck_low",
        Level.WARNING,
        Action.GO_ON,
        "208 MHz",
    ),
    "disk": (
        pair(),
        replace(REAL, nodes={"worker": NodeWish(missing={STORE: 3_000_000_000_000})}),
        "disk_too_small",
        Level.ERROR,
        Action.REFUSE,
        STORE,
    ),
    "docker group": (
        pair(worker=node("worker", 2, docker_info_json="permission denied while trying to connect to the Docker daemon socket")),
        REAL,
        "docker_unreachable",
        Level.ERROR,
        Action.REFUSE,
        "usermod -aG docker ops",
    ),
    "docker stopped": (
        pair(node("head", docker_info_json="Cannot connect to the Docker daemon at unix:///x. Is it running?")),
        REAL,
        "docker_unreachable",
        Level.ERROR,
        Action.REFUSE,
        "systemctl start docker",
    ),
    "no runtime": (
        pair(worker=node("worker", 2, docker_info_json=json.dumps(INFO | {"Runtimes": {"runc": {}}}))),
        REAL,
        "no_nvidia_runtime",
        Level.ERROR,
        Action.REFUSE,
        "nvidia-ctk",
    ),
    "no gpu": (pair(worker=node("worker", 2, nvidia_smi_csv="")), REAL, "no_gpu", Level.ERROR, Action.REFUSE, "nvidia-smi"),
    "ssh refused": (
        pair(worker=NodeFacts("worker", Trouble("KeyRefused", "worker: it takes none of our ssh keys", "ops@spark-b"))),
        REAL,
        "ssh_refused",
        Level.ERROR,
        Action.REFUSE,
        "ssh-copy-id ops@spark-b",
    ),
    "host key changed": (
        pair(worker=NodeFacts("worker", Trouble("HostKeyChanged", "worker: another key", "spark-b"))),
        REAL,
        "host_key_changed",
        Level.ERROR,
        Action.REFUSE,
        "ssh-keygen -R spark-b",
    ),
    "unreachable": (
        pair(worker=NodeFacts("worker", Trouble("Unreachable", "worker: nothing answers", "spark-b"))),
        REAL,
        "worker_unreachable",
        Level.ERROR,
        Action.REFUSE,
        "ssh spark-b true",
    ),
    "memory": (
        pair(),
        replace(REAL, nodes={"head": NodeWish(need_bytes=120 * GIB)}),
        "memory_under_gate",
        Level.ERROR,
        Action.WAIT,
        "120.0 GiB",
    ),
    "page cache": (
        pair(),
        replace(REAL, nodes={"head": NodeWish(need_bytes=90 * GIB)}),
        "memory_in_page_cache",
        Level.NOTE,
        Action.GO_ON,
        "drop_caches",
    ),
    "leftovers": (
        pair(worker=node("worker", 2, docker_ps_jsonl=container(Names="twinfold", labels="twinfold.project=twinfold"))),
        REAL,
        "leftovers",
        Level.NOTE,
        Action.TAKE_OVER,
        "twinfold (running)",
    ),
    "gpu user": (
        pair(node("head", nvidia_smi_apps_csv=CSV.text("input-head-apps.csv"))),
        REAL,
        "gpu_in_use",
        Level.ERROR,
        Action.REFUSE,
        "114687",
    ),
    "another gang": (
        pair(worker=node("worker", 2, docker_ps_jsonl=container(Names="dsv41-1017-exl3-tf", Command='"tf-dsv41-lanes /m"'))),
        REAL,
        "other_gang",
        Level.ERROR,
        Action.REFUSE,
        "dsv41-1017-exl3-tf",
    ),
    "engram on nfs": (
        pair(worker=node("worker", 2, df_txt=NFS_DF)),
        replace(REAL, nodes=ON_NFS.nodes),
        "engram_on_network",
        Level.ERROR,
        Action.REFUSE,
        "engram_on_network = true",
    ),
    "engram on nfs, allowed": (
        pair(worker=node("worker", 2, df_txt=NFS_DF)),
        replace(REAL, nodes=ON_NFS.nodes, engram_on_network=True),
        "engram_on_network",
        Level.WARNING,
        Action.GO_ON,
        "nfs4",
    ),
    "time skew": (
        pair(worker=replace(node("worker", 2), skew_s=-3.4)),
        REAL,
        "time_skew",
        Level.WARNING,
        Action.GO_ON,
        "3.4 s behind",
    ),
    "drivers": (
        pair(worker=node("worker", 2, nvidia_smi_csv=CSV.text("input-worker.csv"))),
        REAL,
        "drivers_differ",
        Level.WARNING,
        Action.GO_ON,
        "580.95.05",
    ),
    "kernels": (
        pair(worker=node("worker", 2, system_txt="hostname spark-2\nkernel 6.17.1\n")),
        REAL,
        "kernels_differ",
        Level.WARNING,
        Action.GO_ON,
        "6.17.1",
    ),
    "cma": (
        pair(
            node(
                "head",
                meminfo=CMA.text("input-before-meminfo"),
                system_txt=f"hostname spark-1\nkernel 6.14.0\ncmdline {CMA.text('input-before-cmdline')}\n",
            )
        ),
        REAL,
        "cma_free_exceeds_total",
        Level.WARNING,
        Action.GO_ON,
        "kho=off",
    ),
    "memlock": (pair(), replace(REAL, docker=False), "memlock_limited", Level.WARNING, Action.GO_ON, "ulimit -l"),
    "open api": (pair(), replace(REAL, api_open="0.0.0.0:8888"), "api_without_key", Level.WARNING, Action.GO_ON, "api_key_file"),
}


@pytest.mark.parametrize("row", ROWS)
def test_each_row_gives_its_finding_its_action_and_nothing_else(row: str) -> None:
    nodes, wanted, reason, level, action, words = ROWS[row]
    found = judge(nodes, wanted)
    assert {(one.reason, one.level, one.action) for one in found} == {(reason, level, action)}
    assert len(found) == (2 if row == "memlock" else 1)
    assert words in found[0].line
    assert all(found[0].found and found[0].means and found[0].advice for one in found)


def test_the_ranks_of_the_running_gang_are_no_strangers() -> None:
    apps = CSV.text("input-head-apps.csv") + "@owner 114687 - 01JX/0\n"
    ours = container(Names="twinfold", labels="twinfold.project=twinfold")
    head = node("head", nvidia_smi_apps_csv=apps, docker_ps_jsonl=ours)
    wish = {"head": NodeWish(need_bytes=120 * GIB)}
    assert judge([head], replace(REAL, serving=True, nodes=wish)) == ()


def test_two_paths_on_one_file_system_are_counted_together() -> None:
    df = (
        "".join(f"@ {path}\n/dev/nvme0n1p2 ext4 400 0 100 0% /\n" for path in ("/a", "/b"))
        + "@ /c\n/dev/sdb1 ext4 400 0 100 0% /c\n"
    )
    one = node("head", df_txt=df)
    for missing, count in (({"/a": 60, "/b": 60}, 1), ({"/a": 60, "/c": 60}, 0), ({"/a": 101, "/c": 101}, 2)):
        found = judge([one], replace(REAL, nodes={"head": NodeWish(missing=missing)}))
        assert [f.reason for f in found] == ["disk_too_small"] * count


def test_the_case_of_a_gpu_without_memory_figures() -> None:
    head = node("head", nvidia_smi_csv=CSV.text("input-head.csv"), nvidia_smi_apps_csv=CSV.text("input-head-apps.csv"))
    worker = node("worker", 2, nvidia_smi_csv=CSV.text("input-worker.csv"))
    found = judge([head, worker], Wanted())
    assert sorted(one.reason for one in found) == sorted(CSV.expect["reasons"])
    assert {one.level for one in found} == {Level.WARNING}
    assert head.memory is not None
    assert head.memory.total_bytes == CSV.expect["head"]["memory_total_kib"] * 1024


def test_the_case_of_a_cap_that_one_node_lost() -> None:
    names, rows = CSV.text("input-head.csv").splitlines()
    busy = f"{names}\n{rows.replace(' 0 %', ' 95 %')}\n"

    def loaded(name: str, number: int) -> NodeFacts:
        text = CLOCK.text(f"input-{name}.txt")
        return read(name, {**sections_of(number, nvidia_smi_csv=busy), "nvidia-smi-clock.txt": Section(text)})

    (found,) = judge([loaded("head", 1), loaded("worker", 2)], Wanted(clock_cap_mhz=CLOCK.given["wanted_cap_mhz"]))
    assert (found.reason, found.level) == (CLOCK.expect["reason"], Level.WARNING)
    assert all(word in found.line for word in CLOCK.expect["message_must_name"])
    assert "3003" not in found.line
    assert judge([loaded("head", 1), replace(loaded("head", 2), name="worker")], Wanted()) == ()


def test_idle_gpus_say_nothing_of_their_caps() -> None:
    other = CSV.text("input-head.csv").replace("208 MHz", "900 MHz")
    assert judge(pair(worker=node("worker", 2, nvidia_smi_csv=other)), REAL) == ()


def test_a_saved_folder_reads_as_what_was_saved(tmp_path: Path) -> None:
    raws: dict[str, Raw] = {
        "head": Raw(sections_of(1) | {"docker-info.json": Section("", 124)}, 1000.0),
        "worker": Raw(trouble=Trouble("Unreachable", "worker: nothing answers", "spark-b")),
    }
    folder.save(tmp_path / "out", raws)
    again = folder.load(tmp_path / "out")
    assert list(again) == ["head", "worker"]
    assert {name: raw.facts(name) for name, raw in again.items()} == {name: raw.facts(name) for name, raw in raws.items()}
    assert again["head"].facts("head").docker_said == "it takes the connection and does not answer"


def test_a_folder_made_by_hand_needs_no_index(tmp_path: Path) -> None:
    for name in ("worker", "head"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meminfo").write_text(CSV.text("input-head-meminfo"))
    assert list(folder.load(tmp_path)) == ["head", "worker"]
    with pytest.raises(UsageError, match="holds no folder"):
        folder.load(tmp_path / "head")
    with pytest.raises(UsageError, match="cannot be read"):
        folder.load(tmp_path / "nowhere")
    (tmp_path / "nodes.json").write_text("[1]")
    with pytest.raises(UsageError, match="no table"):
        folder.load(tmp_path)


def test_sections_are_put_together_whatever_stands_between_their_lines() -> None:
    import base64

    one, two = (base64.b64encode(text.encode()).decode() for text in ("one\n\n@@0", "two\n@@124"))
    printed = (
        f"noise of a login shell\nmeminfo {one[:4]}\ndocker-info.json {two[:8]}\nmeminfo {one[4:]}\ndocker-info.json {two[8:]}\n"
    )
    assert sections(printed) | {} == sections(printed)
    found: dict[str, Any] = dict(sections(printed))
    assert found["meminfo"] == Section("one\n", 0)
    assert found["docker-info.json"] == Section("two", 124)


def test_names_that_the_shell_would_split_are_refused() -> None:
    with pytest.raises(UsageError, match="white space"):
        command(Query("/store", paths=("/my store",)))
