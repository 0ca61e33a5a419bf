"""One node's hardware: the real program over trees of files, and what its printing is read as."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from build.nodes.node import LocalNode
from supervisor.gang.board import Board
from supervisor.hardware.facts import REASONS, Hardware, Port, read_hardware, throttles
from supervisor.hardware.script import SCRIPT
from supervisor.hardware.watch import HardwareWatch
from supervisor.machine import Policy, State
from tests.testing.cases import case
from tests.testing.hardware import GIB, disk_of, nvidia_smi, proc_tree, sys_tree


def printed(tmp_path: Path, *, path: str | None = None, engram: str = "") -> str:
    proc, sys_ = proc_tree(tmp_path / "proc", GIB, disk_of(tmp_path)), sys_tree(tmp_path / "sys")
    done = subprocess.run(
        ["sh", "-c", SCRIPT, "hardware", str(proc), str(sys_), str(tmp_path), engram],
        env=os.environ | {"PATH": path or os.environ["PATH"], "LC_ALL": "C"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


def with_gpu(tmp_path: Path, *args: str) -> str:
    return f"{nvidia_smi(tmp_path / 'bin', *args)}:{os.environ['PATH']}"


def test_ports_are_read_from_the_sys_tree(tmp_path: Path) -> None:
    assert read_hardware(printed(tmp_path)).ports == (
        Port("enp1s0f0np0", False, 1500, None, 1000, 2000, None),
        Port("enp1s0f1np1", True, 9000, 25e9, 1000, 2000, None),
        Port("rocep1s0f1", True, None, 25e9, 1000, 2000, 3, gid_index=3),
    )


def test_a_gb10_tells_clock_power_and_temperature_and_no_memory(tmp_path: Path) -> None:
    seen = read_hardware(printed(tmp_path, path=with_gpu(tmp_path)))
    assert seen.gpus is not None
    (gpu,) = seen.gpus
    assert (gpu.sm_mhz, gpu.sm_max_mhz, gpu.power_w, gpu.temperature_c, gpu.utilization_percent) == (2190, 3003, 80.52, 61, 97)
    assert gpu.memory_total_bytes is None
    assert throttles(gpu) == {reason: reason == "power cap" for reason in REASONS.values()}


def test_a_driver_that_does_not_know_the_throttle_field_is_asked_without_it(tmp_path: Path) -> None:
    old = '#!/bin/sh\ncase "$*" in *throttle*) exit 2 ;; esac\necho "index, clocks.current.sm [MHz]"\necho "0, 2000 MHz"\n'
    seen = read_hardware(printed(tmp_path, path=with_gpu(tmp_path, old)))
    assert seen.gpus is not None
    assert [(gpu.index, gpu.sm_mhz, throttles(gpu)) for gpu in seen.gpus] == [(0, 2000.0, None)]


def test_a_driver_that_fails_is_no_gpu_and_says_so(tmp_path: Path) -> None:
    seen = read_hardware(printed(tmp_path, path=with_gpu(tmp_path, "#!/bin/sh\nexit 9\n")))
    assert (seen.gpus, seen.gpu_failed) == (None, True)


def test_the_disk_of_the_engram_tables_is_found_and_counted(tmp_path: Path) -> None:
    seen = read_hardware(printed(tmp_path, engram=str(tmp_path)))
    assert seen.engram is not None
    assert not seen.engram.on_network
    if seen.engram.device:  # absent where the checkout's file system is no disk
        assert (seen.engram.reads, seen.engram.read_bytes) == (1100, 8800 * 512)


@pytest.mark.parametrize(("kind", "network"), [("nfs", True), ("smb2", True), ("ext2/ext3", False), ("overlayfs", False)])
def test_engram_tables_on_a_network_file_system_are_seen(kind: str, network: bool) -> None:
    seen = read_hardware(f"@@ engram\ntype={kind}\n@@ disks\n@@ end\n")
    assert seen.engram is not None
    assert (seen.engram.on_network, seen.engram.device, seen.engram.reads) == (network, "", None)


def test_the_stores_file_system_has_a_size_and_what_is_left(tmp_path: Path) -> None:
    seen = read_hardware(printed(tmp_path))
    of = os.statvfs(tmp_path)
    assert seen.disk_size_bytes == of.f_blocks * of.f_frsize
    assert seen.disk_free_bytes is not None
    assert 0 < seen.disk_free_bytes <= seen.disk_size_bytes


def test_stalls_of_processor_and_disks_are_read(tmp_path: Path) -> None:
    stalls = dict(read_hardware(printed(tmp_path)).stalls)
    assert {name: (felt.some_total_us, felt.full_total_us) for name, felt in stalls.items()} == {
        "cpu": (3_000_000, 1_000_000),
        "io": (3_000_000, 1_000_000),
    }


def test_a_bare_node_has_nothing_and_fails_nowhere(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    done = subprocess.run(["sh", "-c", SCRIPT, "hardware", gone, gone, gone, gone], capture_output=True, text=True, check=False)
    seen = read_hardware(done.stdout)
    assert (seen.ports, seen.disk_size_bytes, seen.engram, seen.stalls) == ((), None, None, ())


def test_a_reading_that_was_cut_off_counts_for_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cut off"):
        read_hardware(printed(tmp_path).removesuffix("@@ end\n"))


def test_a_node_that_cannot_be_read_keeps_its_last_reading_marked_as_old(tmp_path: Path) -> None:
    board = Board(State(Policy(world_size=2)), 1)
    roots = [proc_tree(tmp_path / "proc", GIB), sys_tree(tmp_path / "sys")]
    node = LocalNode("head", tmp_path)
    watch = HardwareWatch(node, board, roots=(roots[0], roots[1]), paths=lambda: (str(tmp_path), ""), period_s=60)
    watch._look()
    (good,) = board.view().hardware
    assert (good.up, isinstance(good.hardware, Hardware)) == (True, True)
    watch._argv = lambda: ["false"]  # type: ignore[method-assign]
    watch._look()
    (old,) = board.view().hardware
    assert (old.up, old.hardware, old.at_s) == (False, good.hardware, good.at_s)


def test_a_host_with_an_h200_is_read_whole() -> None:
    one = case("hardware-h200")
    seen, expect = read_hardware(one.text("input-head.txt")), one.expect
    assert seen.gpus is not None
    assert seen.engram is not None
    (gpu,), (port,) = seen.gpus, seen.ports
    found = {
        "sm_mhz": gpu.sm_mhz,
        "sm_max_mhz": gpu.sm_max_mhz,
        "power_w": gpu.power_w,
        "temperature_c": gpu.temperature_c,
        "utilization_percent": gpu.utilization_percent,
        "memory_total_mib": (gpu.memory_total_bytes or 0) >> 20,
        "memory_used_mib": (gpu.memory_used_bytes or 0) >> 20,
        "held_down_by": [reason for reason, holds in (throttles(gpu) or {"unknown": True}).items() if holds],
        "ports": [port.device],
        "mtu_bytes": port.mtu_bytes,
        "engram_device": seen.engram.device,
        "engram_reads": seen.engram.reads,
        "disk_size_bytes": seen.disk_size_bytes,
    }
    assert found == expect
