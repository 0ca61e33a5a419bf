"""The alerts, each with what it means, what to look at and what to do. Pure.

Expressions are over what the supervisor sees; ``hold_s`` is how long one must hold before it fires. The numbers are chosen so
that a launch, a restart or a slow scrape alone fires nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from metrics import catalog as c

SOFT = f'{c.MEMORY_FLOOR.name}{{stage="soft"}}'
SERVING = f'{c.GANG_STATE.name}{{state="serving"}} == 1'
HEADROOM = c.HEADROOM.name
CLOCK = c.GPU_CLOCK.name


@dataclass(frozen=True, slots=True)
class Alert:
    """``summary`` is a template of Prometheus; ``look`` and ``act`` are steps, one a line of the runbook."""

    name: str
    severity: str  # "critical": it serves no more, or soon will not; "warning": look today
    expression: str
    hold_s: int
    summary: str
    means: str
    look: tuple[str, ...]
    act: tuple[str, ...]


ALERTS = (
    Alert(
        "HeadroomLowAndFalling",
        "warning",
        f"({HEADROOM} < on (job, instance, node) 0.5 * {SOFT}) and (deriv({HEADROOM}[2m]) < -1048576)",
        30,
        "{{ $labels.node }} has {{ $value | humanize1024 }}B above its floor, and it shrinks",
        "A node's available memory comes near the floor. Below it the supervisor stops the gang in order and starts it again with"
        " a smaller context.",
        ("Dashboard Memory, rows What fills it and Where it goes.", "Long conversations: requests running, kept prompt state."),
        ("End other programs on the node.", "Lower `context` or `parallel`, then `supervisor restart`."),
    ),
    Alert(
        "FloorBreached",
        "critical",
        f"{HEADROOM} < 0",
        0,
        "{{ $labels.node }} is {{ $value | humanize1024 }}B below its memory floor",
        "Less memory is available than must stay. The gang is stopped, or killed where it falls fast, so that the machine does"
        " not freeze.",
        ("`supervisor status`: launches and their ends.", "Dashboard Memory: what filled it before the breach."),
        ("Free memory on the node; the gang comes back by itself once it fits.", "Lower `context`, so that it stays above."),
    ),
    Alert(
        "RankDown",
        "critical",
        f"{c.RANK_UP.name} == 0",
        60,
        "rank {{ $labels.rank }} on {{ $labels.node }} is down",
        "A rank has not run for a minute. Without every rank nothing is served.",
        ("`supervisor status`: the state, and how the last launch ended.", "`supervisor logs --rank N`, and the saved logs."),
        ("Mend what the log names; the supervisor tries again by itself.", "`supervisor restart` where it has stopped trying."),
    ),
    Alert(
        "GangFlapping",
        "warning",
        f'sum by (job, instance) (increase({c.RESTARTS.name}{{reason!~"asked|gate"}}[30m])) > 3',
        0,
        "the gang was replaced {{ $value | humanize }} times in half an hour",
        "The gang comes up and ends again. Each time clients lose their requests.",
        ("`supervisor status`: the reasons of the restarts.", "Dashboard Build and history: launches and probes."),
        ("Treat the reason that returns.", "`supervisor run --once` shows one launch without retries."),
    ),
    Alert(
        "GangGaveUp",
        "critical",
        f'{c.GANG_STATE.name}{{state="gave_up"}} == 1',
        0,
        "the supervisor gave up",
        "Launches failed too often in a row; no more is tried.",
        ("`supervisor status`: the last reason.", "The saved logs of the last launch."),
        ("Mend the reason, then `supervisor restart`, or start the service again.",),
    ),
    Alert(
        "NoProgress",
        "critical",
        f"(time() - {c.LAST_PROGRESS.name} > 120) and on (job, instance) sum by (job, instance) ({c.REQUESTS_RUNNING.name}) > 0"
        f" and on (job, instance) ({SERVING})",
        30,
        "requests run, and nothing was seen done for {{ $value | humanizeDuration }}",
        "The gang serves by all signs but works on nothing: a hang between ranks, or a prompt longer than any expected.",
        ("Dashboard Pair: tokens, requests, prefill.", "Ports and clocks on dashboard Fabric and hardware."),
        (
            "Wait where a very long prompt was sent; the supervisor replaces a gang that hangs.",
            "`supervisor restart` ends it now.",
        ),
    ),
    Alert(
        "GuardSilent",
        "critical",
        f"(({c.GUARD_UP.name} == 0) or ({c.GUARD_AGE.name} > 10))"
        f" and on (job, instance, node) {c.RANK_UP.name} == 1",  # where no rank runs there is nothing to guard
        30,
        "the guard of {{ $labels.node }} is silent",
        "The guard is what ends a rank before the node freezes. Without it, memory that falls fast is met too late.",
        ("On the node: does the guard's process run?", "The link to the node, and its load."),
        ("`supervisor restart` starts the guards anew.",),
    ),
    Alert(
        "SampleStale",
        "warning",
        f"{c.MEMORY_AGE.name} > 10",
        30,
        "the last memory sample of {{ $labels.node }} is {{ $value | humanizeDuration }} old",
        "Nobody sees this node's memory. Old samples never stop a gang, so a breach would pass unseen.",
        ("`/livez`: does the supervisor's loop turn?", "Is the node reachable, and not frozen?"),
        ("Bring the node back; `supervisor restart` where only the watch has stopped.",),
    ),
    Alert(
        "ClocksUnequal",
        "warning",
        f"(max by (job) ({CLOCK}) - min by (job) ({CLOCK})) / max by (job) ({CLOCK}) > 0.1"
        f" and on (job) sum by (job) ({c.REQUESTS_RUNNING.name}) > 0",
        300,
        "the GPU clocks of the nodes differ by {{ $value | humanizePercentage }}",
        "Ranks wait for each other at every layer: the slower GPU sets the pace of both.",
        ("Dashboard Fabric and hardware: clocks, temperature, and what holds one down.",),
        ("Set the same cap on both: `nvidia-smi -lgc 0,2200`.", "A hot node: its cooling. A clock stuck low: reboot the node."),
    ),
    Alert(
        "RailDown",
        "warning",
        f"({c.LINK_UP.name} == 0) and (max_over_time({c.LINK_UP.name}[6h]) == 1)",
        30,
        "port {{ $labels.device }} of {{ $labels.node }} went down",
        "A port that was up has lost its link: half the bandwidth is gone, or all of it.",
        ("The cable, and the other end's port.", "`ip link` on the node."),
        ("Plug it in again; `supervisor doctor` says whether the rail can be used.",),
    ),
    Alert(
        "MtuChanged",
        "warning",
        f"changes({c.LINK_MTU.name}[1h]) > 0",
        0,
        "the MTU of {{ $labels.device }} on {{ $labels.node }} changed",
        "Both ends of a rail need the same MTU. With another one small messages pass and large ones hang.",
        ("`ip link` on both nodes.", "A reboot or a firmware update in the last hour."),
        ("Set the MTU of both ends to the same value, best 9000; then `supervisor doctor`.",),
    ),
    Alert(
        "EngramOnNetwork",
        "warning",
        f"{c.ENGRAM_ON_NETWORK.name} == 1",
        0,
        "the Engram tables of {{ $labels.node }} lie on a network file system",
        "They are read in random 4 KiB blocks while decoding: over a network each token waits.",
        ("Dashboard Fabric and hardware: Engram reads.", "Where the folder lies: `df` on the node."),
        ("Copy them to the node's own disk: `doit replicate`.",),
    ),
    Alert(
        "SettingsRefused",
        "warning",
        f"{c.SETTINGS_REFUSED.name} == 1",
        60,
        "a change of the settings was refused",
        "config.toml, the lock or the current generation was changed, and cannot be taken as it is. The gang serves on with what"
        " it had; a supervisor that starts now would be refused.",
        ("`supervisor status`: the file, and what is wrong with it.",),
        ("Mend the file, or take the change back: it is read again at once.",),
    ),
    Alert(
        "StateFolderLost",
        "critical",
        f"{c.STATE_FOLDER_LOST.name} == 1",
        60,
        "the state folder is gone",
        "The folder was removed, replaced or unmounted under a gang that serves. It serves on, but cannot start again, no command"
        " reaches its supervisor, and logs of ranks that are processes are lost.",
        ("The supervisor's log: which folder, and since when.", "`findmnt` and `ls` on the head: was it unmounted or removed?"),
        (
            "Unmounted: mount it again. It is noticed within seconds.",
            "Removed: `kill` the supervisor's process, which ends all in order; then `doit` and `supervisor run`.",
        ),
    ),
    Alert(
        "SettingsDiffer",
        "critical",
        f"{c.SETTINGS_PARITY.name} == 0",
        0,
        "a rank logged other settings than it was given",
        "Ranks with different settings give wrong text or hang, so the launch was ended.",
        ("`supervisor status`: the rank and the setting.", "The saved logs of the launch."),
        (
            "The same bundle on every node: `doit replicate`, then `supervisor restart`.",
            "Take out of `engine_env` what the log names.",
        ),
    ),
    Alert(
        "DiskNearlyFull",
        "warning",
        f"{c.DISK_FREE.name} / {c.DISK_SIZE.name} < 0.05",
        300,
        "{{ $value | humanizePercentage }} of the store's disk on {{ $labels.node }} is left",
        "Builds, replication and saved logs fail when it is full.",
        ("`doit gc --dry-run`: what could go.",),
        ("`doit gc`.", "Move other files away."),
    ),
    Alert(
        "StoreNotVerified",
        "warning",
        f"time() - {c.STORE_VERIFIED.name} > 30 * 86400",
        0,
        "the store was last known to be right {{ $value | humanizeDuration }} ago",
        "Bits rot unseen: only reading every byte tells.",
        ("When did `doit verify` last run?",),
        ("`doit verify`, at a quiet hour; `doit repair` mends what it finds.",),
    ),
    Alert(
        "ScrapeFailing",
        "critical",
        'up{job="twinfold"} == 0',
        60,
        "{{ $labels.instance }} does not answer Prometheus",
        "Nothing is known of the pair: its supervisor does not run, or cannot be reached.",
        ("`systemctl status`, or the terminal that it runs in.", "`curl` the address of the metrics from Prometheus' host."),
        ("Start it: `supervisor run`. A gang that it left runs on, and is adopted.",),
    ),
)
