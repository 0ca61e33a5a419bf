"""Every kind of fault of the matrix. One object each; nothing here does anything."""

from __future__ import annotations

import re
from signal import SIGKILL, SIGSTOP

from bench.soak import acts
from bench.soak.fault import Expect, Fault, Heal, ends
from bench.soak.rig import LaunchSeen, Rig
from supervisor.machine import Reason
from tests.testbed.layout import NETWORKS
from tests.testing.fleet import api, containers

BACK, ON, EITHER = Expect.COMES_BACK, Expect.SERVES_ON, Expect.EITHER
EXIT = ends(Reason.RANK_EXIT)
HANG = ends(Reason.NO_PROGRESS)
LOW = ends(Reason.MEMORY_HARD, Reason.MEMORY_SLOPE)
APART = ends(Reason.NO_PROGRESS, Reason.PEER_SILENT, Reason.RANK_EXIT)
AWAY_S = (6.0, 10.0)


def gid_in_use(rig: Rig, _hit: LaunchSeen) -> str:
    """A complaint unless the worker's new rank was given the index at which its GID stands now."""
    (one,) = containers(rig.worker)
    daemon = api(rig.worker)
    try:
        environment = daemon.get(f"/containers/{one['Id']}/json").document["Config"]["Env"]
    finally:
        daemon.close()
    return "" if "NCCL_IB_GID_INDEX=5" in environment else "the new launch does not use the GID's new index"


def settings_refused(rig: Rig, _hit: LaunchSeen) -> str:
    """A complaint unless the supervisor has told of the bad file and has forgotten it since."""
    if "TOML" not in rig.gang.err:
        return "nobody was told of the broken settings"
    return "the broken settings are still shown" if rig.status().get("reload", {}).get("refused") else ""


def waited_for_memory(rig: Rig, _hit: LaunchSeen) -> str:
    """A complaint unless the launch began no sooner than memory was given back."""
    back_s = re.findall(r"memory was back ([\d.]+) s after the eviction", rig.gang.err)
    # counted from the end of the launch, which may come seconds after the collapse
    if back_s and float(back_s[-1]) > AWAY_S[0] / 2:
        return ""
    return f"memory stayed away for {AWAY_S[0]:g} s, and was taken for back after {back_s[-1] if back_s else 'no'} s"


def mended(rig: Rig, _hit: LaunchSeen) -> str:
    """A complaint unless the damaged file was found before the launch."""
    return "" if "has other content: mending" in rig.gang.out + rig.gang.err else "the damaged rank file was not found"


KINDS: tuple[Fault, ...] = (
    Fault(name="rank 0 killed", inject=acts.signal_rank(0, SIGKILL), expect=BACK, reasons=EXIT),
    Fault(name="rank 1 killed", inject=acts.signal_rank(1, SIGKILL), expect=BACK, reasons=EXIT),
    Fault(name="rank 0 stopped", inject=acts.signal_rank(0, SIGSTOP), expect=BACK, reasons=HANG),
    Fault(name="rank 1 stopped", inject=acts.signal_rank(1, SIGSTOP), expect=BACK, reasons=HANG),
    Fault(name="rank 1's container paused", inject=acts.pause_container(1), expect=BACK, reasons=HANG, quick=False),
    Fault(
        name="memory leak on the worker",
        inject=acts.collapse(lambda rig: [rig.worker], from_gib=0.6, to_gib=0.2, gib_per_s=0.1),
        heal=acts.give_memory_back, heal_at=Heal.SAFE, expect=BACK, reasons=ends(Reason.MEMORY_SOFT),
    ),
    Fault(name="head's guard killed", inject=acts.kill_guard(0), expect=ON, hold_s=(3.0, 4.0)),
    Fault(name="worker's guard killed", inject=acts.kill_guard(1), expect=ON, hold_s=(3.0, 4.0)),
    Fault(
        name="link cut on every path", inject=acts.cut, heal=acts.mend_cables, hold_s=(14.0, 18.0), expect=BACK, reasons=APART,
        quick=False,
    ),
    Fault(
        name="link cut for a minute", inject=acts.cut, heal=acts.mend_cables, hold_s=(60.0, 70.0), expect=BACK, reasons=APART,
        quick=False,
    ),
    Fault(
        name="worker's packets lost on every path", inject=acts.drop_silently(*NETWORKS), heal=acts.mend_cables,
        hold_s=(14.0, 18.0), expect=BACK, reasons=APART, quick=False,
    ),
    Fault(
        name="link cut in the middle of a launch", inject=acts.cut_in_the_launch, heal=acts.mend_cables, hold_s=(12.0, 16.0),
        expect=BACK, reasons=EXIT, quick=False,
    ),
    Fault(name="link slow", inject=acts.slow_link, heal=acts.mend_cables, hold_s=(3.0, 6.0), expect=ON),
    Fault(name="link lossy", inject=acts.lossy, heal=acts.mend_cables, hold_s=(4.0, 8.0), expect=ON),
    Fault(name="link flapping", inject=acts.flap, heal=acts.mend_cables, expect=EITHER, reasons=APART, quick=False),
    Fault(name="one rail down", inject=acts.one_rail_down, heal=acts.mend_cables, hold_s=(2.0, 4.0), expect=ON),
    Fault(
        name="one rail down at a relaunch", inject=acts.both(acts.one_rail_down, acts.signal_rank(1, SIGKILL)),
        heal=acts.mend_cables, hold_s=(6.0, 8.0), expect=BACK, reasons=EXIT, quick=False,
    ),
    Fault(name="worker's sshd restarted", inject=acts.restart_sshd, expect=ON, hold_s=(2.0, 3.0)),
    Fault(
        name="worker's sshd away, rank 1 killed", inject=acts.both(acts.stop_sshd, acts.signal_rank(1, SIGKILL)),
        heal=acts.restart_sshd, hold_s=(4.0, 8.0), expect=BACK, reasons=APART, quick=False,
    ),
    Fault(
        name="worker's dockerd restarted", inject=acts.restart_dockerd(lambda rig: rig.worker), expect=BACK, reasons=EXIT,
    ),
    Fault(name="head's dockerd restarted", inject=acts.restart_dockerd(lambda rig: rig.head), expect=BACK, reasons=EXIT),
    Fault(
        name="worker's dockerd hangs", inject=acts.freeze_dockerd(lambda rig: rig.worker),
        heal=acts.thaw_dockerd(lambda rig: rig.worker), hold_s=(4.0, 8.0), expect=ON, quick=False,
    ),
    Fault(
        name="every process of the worker gone", inject=acts.crash_worker, heal=acts.boot_worker, hold_s=(3.0, 8.0), expect=BACK,
        reasons=APART,
    ),
    Fault(
        name="supervisor killed", inject=acts.kill_supervisor, expect=ON, hold_s=(4.0, 5.0),
    ),
    Fault(
        name="supervisor and a rank killed", inject=acts.both(acts.kill_supervisor_alone, acts.signal_rank(1, SIGKILL)),
        heal=acts.start_supervisor, hold_s=(0.5, 2.0), expect=BACK,
    ),
    Fault(
        name="supervisor stopped", inject=acts.stop_supervisor, heal=acts.continue_supervisor, hold_s=(3.0, 8.0), expect=ON,
        quick=False,
    ),
    Fault(name="supervisor handed over", inject=acts.hand_over, expect=ON, hold_s=(4.0, 5.0)),
    Fault(name="restart asked for", inject=acts.ask_restart, expect=BACK, reasons=ends(Reason.ASKED)),
    Fault(
        name="disk full on the head, rank 1 killed", inject=acts.both(acts.fill_head, acts.signal_rank(1, SIGKILL)),
        heal=acts.free_head, hold_s=(3.0, 5.0), expect=BACK, reasons=EXIT,
    ),
    Fault(
        name="disk full on the worker, rank 1 killed", inject=acts.both(acts.fill_worker, acts.signal_rank(1, SIGKILL)),
        heal=acts.free_worker, hold_s=(5.0, 8.0), expect=BACK, reasons=EXIT, quick=False,
    ),
    Fault(name="log flood on rank 0", inject=acts.flood(0), expect=ON),
    Fault(name="log flood on rank 1", inject=acts.flood(1), expect=ON, quick=False),
    Fault(
        name="memory collapses on the head at 14 GiB/s",
        inject=acts.collapse(lambda rig: [rig.head], from_gib=8.0, to_gib=0.06, gib_per_s=14.0),
        heal=acts.give_memory_back, heal_at=Heal.SAFE, expect=BACK, reasons=LOW, evidence=True,
    ),
    Fault(
        name="memory collapses on the worker at 14 GiB/s",
        inject=acts.collapse(lambda rig: [rig.worker], from_gib=8.0, to_gib=0.06, gib_per_s=14.0),
        heal=acts.give_memory_back, heal_at=Heal.SAFE, expect=BACK, reasons=LOW, evidence=True,
    ),
    Fault(
        name="memory collapses on both at 14 GiB/s",
        inject=acts.collapse(lambda rig: rig.bed.hosts, from_gib=8.0, to_gib=0.06, gib_per_s=14.0),
        heal=acts.give_memory_back, heal_at=Heal.SAFE, expect=BACK, reasons=LOW, evidence=True, quick=False,
    ),
    Fault(
        name="memory collapses slowly on the head",
        inject=acts.collapse(lambda rig: [rig.head], from_gib=0.6, to_gib=0.2, gib_per_s=0.1),
        heal=acts.give_memory_back, heal_at=Heal.SAFE, expect=BACK, reasons=ends(Reason.MEMORY_SOFT), quick=False,
    ),
    Fault(
        name="memory stays away after a collapse",
        inject=acts.collapse(lambda rig: [rig.head], from_gib=2.0, to_gib=0.06, gib_per_s=14.0),
        heal=acts.give_memory_back, hold_s=AWAY_S, expect=BACK, reasons=LOW, evidence=True, check=waited_for_memory,
        quick=False,
    ),
    Fault(
        name="GID moved, rank 1 killed", inject=acts.both(acts.move_gids, acts.signal_rank(1, SIGKILL)), heal=acts.gids_back,
        heal_at=Heal.SERVING, expect=BACK, reasons=EXIT, check=gid_in_use,
    ),
    Fault(
        name="settings broken", inject=acts.break_settings, heal=acts.mend_settings, hold_s=(2.0, 3.0), expect=ON,
        check=settings_refused,
    ),
    Fault(name="clock jumps a day ahead", inject=acts.jump(86400), heal=acts.jump(0), hold_s=(2.0, 3.0), expect=ON),
    Fault(
        name="clock jumps back, rank 1 killed", inject=acts.both(acts.jump(-3600), acts.signal_rank(1, SIGKILL)),
        heal=acts.jump(0), heal_at=Heal.SERVING, expect=BACK, reasons=EXIT, quick=False,
    ),
    Fault(name="port taken at a restart", inject=acts.take_port(4.0), expect=BACK, reasons=EXIT),
    Fault(
        name="image removed, rank 1 killed", inject=acts.both(acts.remove_image(1), acts.signal_rank(1, SIGKILL)), expect=BACK,
        reasons=EXIT,
    ),
    Fault(
        name="rank file damaged, rank 1 killed", inject=acts.both(acts.damage_rank_file, acts.signal_rank(1, SIGKILL)),
        expect=BACK, reasons=EXIT, check=mended,
    ),
)  # fmt: skip
