"""The rules over facts as files hold them: cases of the field, sums per file system, what a folder keeps."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from build.bundle import Needs
from build.errors import UsageError
from build.units import GIB
from supervisor.doctor import folder
from supervisor.doctor.collect import Raw
from supervisor.doctor.facts import NodeFacts, Trouble, read
from supervisor.doctor.findings import Level
from supervisor.doctor.rules import NodeWish, Wanted, judge
from supervisor.doctor.script import Query, Section, command, sections
from tests.testing.cases import case

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
    assert folder.load_owner(tmp_path / "out") is None
    folder.save(tmp_path / "out", raws, owner="0123456789abcdef")
    again = folder.load(tmp_path / "out")
    assert folder.load_owner(tmp_path / "out") == "0123456789abcdef"
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
