"""The hands of the fault matrix: small acts on a host, a rank, a cable, a reading or the supervisor."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.soak.clients import enter_network
from bench.soak.fault import Act
from bench.soak.rig import SETTINGS, LaunchSeen, Rig, until
from supervisor.runners import procid
from tests.testbed import daemons, network, processes, readings
from tests.testbed.hosts import Host, signal_to
from tests.testbed.layout import NETWORKS, RAIL0, RAIL1, Network
from tests.testing.fleet import api, flip, guards, store

GIB_KB = 1 << 20
STEP_S = 0.02
FLOOD_BYTES = 24 << 20
FLOOD_LINE = b"[rank] the same words again and again" * 6 + b"\n"
FLOOD_PIECE = FLOOD_LINE * 64


def both(*acts: Act) -> Act:
    """One after the other."""

    def act(rig: Rig, hit: LaunchSeen) -> None:
        for one in acts:
            one(rig, hit)

    return act


def signal_rank(rank: int, number: int) -> Act:
    """Send a signal to the engine's own process. One that is gone needs none."""

    def act(_rig: Rig, hit: LaunchSeen) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(hit.ranks[rank].pid, number)

    return act


def kill_guard(rank: int) -> Act:
    """Kill a rank's guard through its daemon."""

    def act(_rig: Rig, hit: LaunchSeen) -> None:
        host = hit.ranks[rank].host
        daemon = api(host)
        try:
            daemon.post(f"/containers/{guards(host)[str(rank)]}/kill")
        finally:
            daemon.close()

    return act


def pause_container(rank: int) -> Act:
    """Freeze everything in a rank's container, as `docker pause` does."""

    def act(_rig: Rig, hit: LaunchSeen) -> None:
        one = hit.ranks[rank]
        daemon = api(one.host)
        try:
            daemon.post(f"/containers/{one.container}/pause")
        finally:
            daemon.close()

    return act


def remove_image(rank: int) -> Act:
    """Take every name from every image of a rank's daemon, and those images away that nothing uses."""

    def act(_rig: Rig, hit: LaunchSeen) -> None:
        daemon = api(hit.ranks[rank].host)
        try:
            for one in daemon.get("/images/json").document:
                daemon.delete(f"/images/{one['Id']}", {"force": "1"})
        finally:
            daemon.close()

    return act


def flood(rank: int) -> Act:
    """Write a great many lines into the rank's own output."""

    def act(_rig: Rig, hit: LaunchSeen) -> None:
        with contextlib.suppress(OSError), Path(f"/proc/{hit.ranks[rank].pid}/fd/2").open("wb", buffering=0) as out:
            out.writelines(FLOOD_PIECE for _ in range(FLOOD_BYTES // len(FLOOD_PIECE)))

    return act


def cut(rig: Rig, _hit: LaunchSeen) -> None:
    """Every cable of the worker out: rails and LAN."""
    for one in NETWORKS:
        rig.worker.link(one, up=False)


def cut_in_the_launch(rig: Rig, hit: LaunchSeen) -> None:
    """Rank 1 dies, and every cable of the worker goes out in the middle of the launch that follows."""
    signal_rank(1, signal.SIGKILL)(rig, hit)
    until(lambda: rig.status().get("state") == "launching", 60.0, 0.01)
    time.sleep(rig.chance.uniform(0.0, 2.0))
    cut(rig, hit)


def one_rail_down(rig: Rig, _hit: LaunchSeen) -> None:
    """The second rail's cable out."""
    rig.worker.link(RAIL1, up=False)


def slow_link(rig: Rig, _hit: LaunchSeen) -> None:
    """The first rail at 200 kB/s in both directions."""
    for host in rig.bed.hosts:
        host.slow(RAIL0, 200_000)


def lossy(rig: Rig, _hit: LaunchSeen) -> None:
    """A tenth of all packets lost on every path, both ways."""
    for host in rig.bed.hosts:
        for one in NETWORKS:
            host.lose(one, 0.1)


def flap(rig: Rig, _hit: LaunchSeen) -> None:
    """The first rail out and in again, four times."""
    for _ in range(4):
        rig.worker.link(RAIL0, up=False)
        time.sleep(rig.chance.uniform(0.3, 1.0))
        rig.worker.link(RAIL0, up=True)
        time.sleep(rig.chance.uniform(0.3, 1.0))


def drop_silently(*networks: Network) -> Act:
    """Whatever the worker sends on these is lost, while its links look well."""

    def act(rig: Rig, _hit: LaunchSeen) -> None:
        rig.head.cut_from(rig.worker.plan, *networks)

    return act


def mend_cables(rig: Rig, _hit: LaunchSeen) -> None:
    """All cables whole again."""
    rig.bed.heal()


def restart_sshd(rig: Rig, _hit: LaunchSeen) -> None:
    """Start the worker's sshd anew; one that runs is ended with every connection."""
    rig.worker.restart_sshd()


def stop_sshd(rig: Rig, _hit: LaunchSeen) -> None:
    """End the worker's sshd with every connection."""
    rig.worker.stop_sshd()


def restart_dockerd(which: Callable[[Rig], Host]) -> Act:
    """End a host's dockerd in order, and its containers with it; start it anew."""

    def act(rig: Rig, _hit: LaunchSeen) -> None:
        which(rig).stop_dockerd()
        which(rig).start_dockerd()

    return act


def freeze_dockerd(which: Callable[[Rig], Host]) -> Act:
    """A host's dockerd takes connections and answers nobody."""

    def act(rig: Rig, _hit: LaunchSeen) -> None:
        which(rig).freeze_dockerd()

    return act


def thaw_dockerd(which: Callable[[Rig], Host]) -> Act:
    """It goes on."""

    def act(rig: Rig, _hit: LaunchSeen) -> None:
        which(rig).thaw_dockerd()

    return act


def crash_worker(rig: Rig, _hit: LaunchSeen) -> None:
    """Every process of the worker gone at once, as when its power goes; only what keeps its name spaces stays."""
    kept = rig.worker.running.holder.pid

    def all_of_it() -> list[int]:
        return [*daemons.container_pids(rig.worker.plan), *(p for p in network.members(rig.worker.name) if p != kept)]

    processes.end_all(all_of_it)


def boot_worker(rig: Rig, _hit: LaunchSeen) -> None:
    """Its daemons come up again."""
    rig.worker.start_dockerd()
    rig.worker.restart_sshd()


def kill_supervisor(rig: Rig, _hit: LaunchSeen) -> None:
    """SIGKILL to the supervisor, and a new one at once, as a service manager does it."""
    rig.gang.running.kill()
    rig.start_supervisor()


def kill_supervisor_alone(rig: Rig, _hit: LaunchSeen) -> None:
    """SIGKILL to the supervisor."""
    rig.gang.running.kill()
    rig.gang.running.wait()


def start_supervisor(rig: Rig, _hit: LaunchSeen) -> None:
    """Another one."""
    rig.start_supervisor()


def stop_supervisor(rig: Rig, _hit: LaunchSeen) -> None:
    """SIGSTOP to the supervisor."""
    signal_to(_supervisor(rig), signal.SIGSTOP)


def continue_supervisor(rig: Rig, _hit: LaunchSeen) -> None:
    """It goes on."""
    signal_to(_supervisor(rig), signal.SIGCONT)


def hand_over(rig: Rig, _hit: LaunchSeen) -> None:
    """`supervisor handover`, then the next one, as an upgrade does it."""
    done = rig.gang.command("handover")
    if done.returncode:
        raise RuntimeError(f"handover: {done.stderr.strip()}")
    rig.start_supervisor()


def ask_restart(rig: Rig, _hit: LaunchSeen) -> None:
    """`supervisor restart` in the middle of requests."""
    done = rig.gang.command("restart")
    if done.returncode:
        raise RuntimeError(f"restart: {done.stderr.strip()}")


def _supervisor(rig: Rig) -> procid.ProcessId:
    who = procid.identify(rig.gang.running.pid)
    assert who is not None
    return who


def fill_head(rig: Rig, _hit: LaunchSeen) -> None:
    """Not a block left for the supervisor's state, its logs among it."""
    rig.disk.fill()


def free_head(rig: Rig, _hit: LaunchSeen) -> None:
    """Room again."""
    rig.disk.free()


def fill_worker(rig: Rig, _hit: LaunchSeen) -> None:
    """Not a block left in the worker's store."""
    rig.far_disk.fill()


def free_worker(rig: Rig, _hit: LaunchSeen) -> None:
    """Room again."""
    rig.far_disk.free()


def damage_rank_file(rig: Rig, _hit: LaunchSeen) -> None:
    """One byte of rank 1's weights on the worker turned round."""
    folder = rig.inside(rig.worker, store(rig.worker))
    flip(next(iter(folder.glob("*/rank1of*.bin"))))


def collapse(hosts: Callable[[Rig], Sequence[Host]], *, from_gib: float, to_gib: float, gib_per_s: float) -> Act:
    """MemAvailable falls on these hosts together, at this rate, and stays where it ends."""

    def act(rig: Rig, _hit: LaunchSeen) -> None:
        began_s, left_gib = time.monotonic(), from_gib
        while left_gib > to_gib:
            left_gib = max(to_gib, from_gib - gib_per_s * (time.monotonic() - began_s))
            for host in hosts(rig):
                host.set_meminfo(MemAvailable=int(left_gib * GIB_KB), MemFree=int(left_gib * GIB_KB))
            time.sleep(STEP_S)

    return act


def give_memory_back(rig: Rig, _hit: LaunchSeen) -> None:
    """Plenty again on every host."""
    for host in rig.bed.hosts:
        host.set_meminfo()


def move_gids(rig: Rig, _hit: LaunchSeen) -> None:
    """The worker's GIDs stand at another index than before, as after its reboot."""
    for rail in (RAIL0, RAIL1):
        readings.write_roce(rig.worker.plan.sys, rail, rig.worker.plan.address(rail), first_index=4)


def gids_back(rig: Rig, _hit: LaunchSeen) -> None:
    """Where they were."""
    for rail in (RAIL0, RAIL1):
        readings.write_roce(rig.worker.plan.sys, rail, rig.worker.plan.address(rail))


def break_settings(rig: Rig, _hit: LaunchSeen) -> None:
    """A config.toml that is none."""
    rig.write_settings("= =\n")


def mend_settings(rig: Rig, _hit: LaunchSeen) -> None:
    """The one it was."""
    rig.write_settings(SETTINGS)


def jump(seconds: int) -> Act:
    """The supervisor's wall clock is so many seconds off from now on."""

    def act(rig: Rig, _hit: LaunchSeen) -> None:
        rig.clock.move(seconds)

    return act


def take_port(hold_s: float) -> Act:
    """Take the API's port as soon as the dying gang lets go of it, and keep it for a while."""

    def act(rig: Rig, hit: LaunchSeen) -> None:
        thread = threading.Thread(target=_hold_port, args=(rig, hold_s), daemon=True)
        thread.start()
        signal_rank(0, signal.SIGKILL)(rig, hit)
        thread.join()

    return act


def _hold_port(rig: Rig, hold_s: float) -> None:
    enter_network(network.NETNS / rig.head.name)
    until_s = time.monotonic() + 30.0
    while time.monotonic() < until_s:
        try:
            with socket.create_server(("127.0.0.1", rig.gang.port)):
                time.sleep(hold_s)
                return
        except OSError:
            time.sleep(0.001)
