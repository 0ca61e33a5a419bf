"""What is served, what it was made of, and how launches went. Pure."""

from __future__ import annotations

from metrics import catalog as c
from metrics.monitoring.panels import RATE, Board, Look, Panel, Query, Row, mean, of

HISTORY = Board(
    "twinfold-history",
    "twinfold / Build and history",
    "What is served, what it was made of, and how launches went.",
    (
        Row(
            "What is served",
            (
                Panel("Bundle", "Target, generation, variant and pins.", "short", (Query(of(c.BUNDLE)),), Look.TABLE, 12),
                Panel(
                    "Newer generation waits",
                    "1 when a restart would take a newer one.",
                    "short",
                    (Query(of(c.NEWER_GENERATION)),),
                    Look.STAT,
                    4,
                    ((None, "green"), (1.0, "blue")),
                ),
                Panel(
                    "Settings",
                    "Changes that wait for a restart, and 1 where a change is refused.",
                    "short",
                    (Query(of(c.SETTINGS_WAITING), "waiting"), Query(of(c.SETTINGS_REFUSED), "refused")),
                    Look.STAT,
                    4,
                ),
                Panel(
                    "State folder",
                    "1 while it is gone, or another lies in its place: the gang serves on, and cannot start again.",
                    "short",
                    (Query(of(c.STATE_FOLDER_LOST), "lost"),),
                    Look.STAT,
                    4,
                    ((None, "green"), (1.0, "red")),
                ),
                Panel(
                    "Settings of the ranks",
                    "1 when every rank runs with what it was given, as its own log says.",
                    "short",
                    (Query(of(c.SETTINGS_PARITY), "equal"),),
                    Look.STAT,
                    4,
                    ((None, "red"), (1.0, "green")),
                ),
                Panel("Supervisor runs for", "Since its start.", "s", (Query(f"time() - {of(c.STARTED)}"),), Look.STAT, 4),
            ),
        ),
        Row(
            "Launches",
            (
                Panel(
                    "Launches",
                    "Launches begun in the window.",
                    "short",
                    (Query(f"increase({of(c.LAUNCHES)}[{RATE}])", "launches"),),
                    width=8,
                    least=0,
                ),
                Panel(
                    "Restarts",
                    "Gangs replaced, by reason.",
                    "short",
                    (Query(f"increase({of(c.RESTARTS)}[{RATE}])", "{{reason}}"),),
                    width=8,
                    least=0,
                ),
                Panel(
                    "Phases of the last launch",
                    "How long each took.",
                    "s",
                    (Query(of(c.LAUNCH_PHASE), "{{phase}}"),),
                    width=8,
                    least=0,
                ),
                Panel(
                    "Probes",
                    "Probes by how they ended.",
                    "short",
                    (Query(f"increase({of(c.PROBE_RESULTS)}[{RATE}])", "{{probe}} {{result}}"),),
                    width=8,
                    least=0,
                ),
                Panel(
                    "Probes' time",
                    "How long the last probe of each kind took.",
                    "s",
                    (Query(of(c.PROBE_DURATION), "{{probe}}"),),
                    width=8,
                    least=0,
                ),
                Panel(
                    "Prefill and decode",
                    "Mean time of a request in each.",
                    "s",
                    (Query(mean(c.REQUEST_PREFILL), "prefill"), Query(mean(c.REQUEST_DECODE), "decode")),
                    width=8,
                    least=0,
                ),
            ),
        ),
        Row(
            "Builds",
            (
                Panel(
                    "Time to build",
                    "How long each artefact of the served bundle took.",
                    "s",
                    (Query(f"sort_desc({of(c.ARTEFACT_BUILD)})", "{{artefact}}"),),
                    Look.TABLE,
                    8,
                ),
                Panel(
                    "Size",
                    "Of each artefact of the served bundle.",
                    "bytes",
                    (Query(f"sort_desc({of(c.ARTEFACT_SIZE)})", "{{artefact}}"),),
                    Look.TABLE,
                    8,
                ),
                Panel(
                    "Store verified",
                    "How long ago every byte was known to be right.",
                    "s",
                    (Query(f"time() - {of(c.STORE_VERIFIED)}"),),
                    Look.STAT,
                    8,
                    ((None, "green"), (2592000.0, "red")),
                ),
            ),
        ),
    ),
)
