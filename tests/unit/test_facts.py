from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from build.facts import (
    clock_sections,
    cma_finding,
    compute_apps,
    container_end,
    file_systems,
    gpus,
    meminfo,
    pressure,
    read_meminfo,
    read_pressure,
)
from build.facts.containers import exit_kind
from build.units import GIB
from tests.testing.cases import case

CMA = case("memory-cma-free-exceeds-total")
CSV = case("gpu-csv-memory-na")
CLOCK = case("gpu-clock-cap-one-node")
STATES = case("docker-exit-states")


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_cma_account_is_found_and_a_kernel_without_cma_is_fine(when: str) -> None:
    want = CMA.expect[when]
    seen = meminfo(CMA.text(f"input-{when}-meminfo"))
    finding = cma_finding(seen, CMA.text(f"input-{when}-cmdline"))
    assert round(seen.available_bytes / GIB, 1) == want["available_gib"]
    assert round(seen.free_bytes / GIB, 1) == want["free_gib"]
    need_bytes = (CMA.given["rank_needs_gib"] + CMA.given["floor_gib"]) * GIB
    assert (seen.available_bytes >= need_bytes and seen.free_bytes >= need_bytes) == want["enough_memory"]
    assert (finding is not None) == (want["verdict"] == "fail")
    if finding is not None:
        assert finding.reason == want["reason"]
        assert all(name in finding.message for name in want["message_must_name"])
        assert str(want["cma_free_kib"]) in finding.message
        assert not any(word in finding.message for word in ("page cache", "memlock", "stop program"))


def test_meminfo_keeps_what_was_said_and_refuses_a_torso() -> None:
    seen = meminfo(CSV.text("input-head-meminfo"))
    assert seen.total_bytes == CSV.expect["head"]["memory_total_kib"] * 1024
    assert (seen.swap_total_bytes, seen.swap_free_bytes) == (16777212 * 1024, 16777212 * 1024)
    assert seen.page_cache_bytes == (10240000 + 214532) * 1024
    assert meminfo("MemTotal: 2 kB\nMemFree: 1 kB\nMemAvailable: 1 kB\n").cma_total_bytes is None
    with pytest.raises(ValueError, match="MemAvailable"):
        meminfo("MemTotal: 2 kB\nMemFree: 1 kB\n")


def test_a_proc_tree_is_read_where_it_lies(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text(CSV.text("input-head-meminfo"))
    assert read_meminfo(tmp_path).free_bytes == 88221696 * 1024
    assert read_pressure(tmp_path) is None
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure" / "memory").write_text(
        "some avg10=1.50 avg60=0.20 avg300=0.00 total=123\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=45\n"
    )
    stalled = read_pressure(tmp_path)
    assert stalled is not None
    assert (stalled.some_avg10, stalled.some_total_us, stalled.full_avg10, stalled.full_total_us) == (1.5, 123, 0.5, 45)


def test_this_machines_own_tree_is_read() -> None:
    seen = read_meminfo(Path("/proc"))
    assert 0 < seen.free_bytes <= seen.total_bytes
    assert 0 < seen.available_bytes <= seen.total_bytes
    assert pressure("") is None


@pytest.mark.parametrize("node", ["head", "worker"])
def test_a_gpu_without_memory_figures_is_still_read(node: str) -> None:
    want = CSV.expect[node]
    found = gpus(CSV.text(f"input-{node}.csv"))
    assert len(found) == want["gpus"]
    gpu = found[0]
    assert (gpu.name, gpu.driver, gpu.pci_bus_id) == (want["name"], want["driver"], want["pci_bus_id"])
    assert gpu.power_w == want["power_w"]
    assert gpu.utilization_percent == want.get("utilization_percent", gpu.utilization_percent)
    assert (gpu.sm_mhz, gpu.sm_max_mhz) == (want.get("sm_mhz", gpu.sm_mhz), want.get("sm_max_mhz", gpu.sm_max_mhz))
    assert (gpu.memory_total_bytes is None) is want["unified_memory"]
    assert gpu.memory_total_bytes is gpu.memory_used_bytes is gpu.memory_free_bytes is None


def test_differing_drivers_and_a_foreign_process_can_be_told() -> None:
    head, worker = gpus(CSV.text("input-head.csv"))[0], gpus(CSV.text("input-worker.csv"))[0]
    assert (head.driver == worker.driver) is CSV.expect["drivers_equal"]
    apps = compute_apps(CSV.text("input-head-apps.csv"))
    assert [app.pid for app in apps] == CSV.expect["other_gpu_processes"]["head"]
    assert apps[0].used_bytes == 19135 << 20  # a process's memory, never the GPU's


def test_a_gpu_with_memory_of_its_own_is_read_in_bytes() -> None:
    text = (
        "name, memory.total [MiB], memory.used [MiB], power.draw [W], pci.bus_id\n"
        "NVIDIA H200, 143771 MiB, 0 MiB, 127.56 W, 00000000:00:06.0\n"
    )
    gpu = gpus(text)[0]
    assert (gpu.memory_total_bytes, gpu.memory_used_bytes) == (143771 << 20, 0)
    assert gpu.pci_bus_id == "0000:00:06.0"
    assert gpus("") == gpus("no devices were found\n") == ()


@pytest.mark.parametrize("placeholder", ["[N/A]", "N/A", "[Not Supported]", "Not Found", "[Unknown Error]", "ERR!", ""])
def test_no_placeholder_is_read_as_a_number(placeholder: str) -> None:
    gpu = gpus(f"name, power.draw [W], memory.total [MiB]\nX, {placeholder}, {placeholder}\n")[0]
    assert gpu.power_w is None
    assert gpu.memory_total_bytes is None


def test_a_lost_clock_cap_shows_in_the_clock_in_use_and_not_in_the_maximum() -> None:
    cap, tolerance = CLOCK.given["wanted_cap_mhz"], CLOCK.given["tolerance_mhz"]
    for node in ("head", "worker"):
        want = CLOCK.expect[node]
        section = clock_sections(CLOCK.text(f"input-{node}.txt"))[0]
        assert (section.sm_mhz, section.sm_max_mhz) == (want["sm_mhz"], want["sm_max_mhz"])
        assert section.sm_mhz is not None
        assert (section.sm_mhz <= cap + tolerance) is want[f"consistent_with_cap_{cap}"]
    assert gpus(CLOCK.text("input-head-load.csv"))[0].fields["clocks_event_reasons.active"] == "0x0000000000000000"


@pytest.mark.parametrize("want", STATES.expect["state"], ids=lambda want: want["name"])
def test_a_containers_end_is_told_from_its_state(want: dict[str, object]) -> None:
    state = json.loads(STATES.text("input-states.json"))[want["name"]]
    end = container_end(state)
    assert (end.kind, end.signal, end.out_of_memory) == (want["class"], want["signal"], want["out_of_memory"])
    assert end.restart == want.get("restart", end.restart)
    assert (end.finished_at is None) == state["FinishedAt"].startswith("0001")


def test_exit_statuses_of_processes_use_the_same_classes() -> None:
    assert [exit_kind(code) for code in (0, 1, 2, 127, 137, 139, 143)] == [
        *("ended", "engine_error", "bad_arguments", "never_started", "killed", "crashed", "stopped")
    ]


def test_free_space_is_read_by_position() -> None:
    text = "Dateisystem 1-Blöcke Benutzt Verfügbar Eingehängt auf\n/dev/nvme0n1p2 1000 400 600 40% /\ntmpfs 5 0 5 0% /my dir\n"
    assert [(f.device, f.total_bytes, f.available_bytes, f.mount) for f in file_systems(text)] == [
        ("/dev/nvme0n1p2", 1000, 600, "/"),
        ("tmpfs", 5, 5, "/my dir"),
    ]


@given(st.text(max_size=200))
def test_junk_is_read_without_an_error(text: str) -> None:
    gpus(text)
    compute_apps(text)
    clock_sections(text)
    file_systems(text)
    pressure(text)
