"""Every finding once: how bad it is, and what a run does about it. The tables of docs/doctor.md are made from it.

``python -m supervisor.doctor.catalogue docs/doctor.md`` writes them anew. The rules that make a finding are elsewhere; that they
keep to this table, and that no finding is missing here, is tested.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from supervisor.doctor.findings import Action, Level

AUTO = (Level.WARNING, Action.DROP_RAIL)
ALLOWED = (Level.WARNING, Action.GO_ON)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table. ``run`` says what a run does; ``eased`` is what a setting makes of the finding, where one can."""

    words: str  # the reasons
    level: Level
    action: Action
    run: str
    eased: tuple[Level, Action] | None = None
    about: str = ""

    @property
    def reasons(self) -> tuple[str, ...]:
        """The findings that it is of."""
        return tuple(self.words.split())


E, W, N = Level.ERROR, Level.WARNING, Level.NOTE
REFUSE, WAIT, GO_ON = Action.REFUSE, Action.WAIT, Action.GO_ON
GENERAL: tuple[Row, ...] = (
    Row(
        "no_v2_gid mtu_differs path_not_full_size gid_index_not_taken",
        E,
        REFUSE,
        'refuses; with `rails = "auto"` a bad second rail is left out, with a warning',
        AUTO,
    ),
    Row("link_down no_ipv4_on_fabric_port not_the_fabric not_an_address no_rail no_rdma_device", E, REFUSE, "refuses"),
    Row("rail_down", W, GO_ON, "goes on with the rest", about="a second rail or a PCIe twin"),
    Row("roce_mtu_low", W, GO_ON, "goes on"),
    Row("gid_index_moved", N, Action.USE_NEW, "uses the new one"),
    Row("gid_index_differs gid_address_in_front", N, GO_ON, "passes no index; NCCL gets RoCE v2 and a range of addresses"),
    Row("clock_cap_differs clock_stuck_low", W, GO_ON, "goes on; `--strict` refuses"),
    Row("disk_too_small", E, REFUSE, "refuses"),
    Row("docker_unreachable no_nvidia_runtime no_gpu", E, REFUSE, "refuses"),
    Row("ssh_refused host_key_changed host_key_unknown worker_unreachable", E, REFUSE, "refuses"),
    Row("memory_under_gate", E, WAIT, "waits up to `gate_wait_s`, then refuses"),
    Row("memory_in_page_cache", N, GO_ON, "goes on"),
    Row("cma_free_exceeds_total", W, GO_ON, "goes on"),
    Row("leftovers", N, Action.TAKE_OVER, "adopts or removes them"),
    Row(
        "gpu_in_use",
        E,
        REFUSE,
        "refuses, naming it; goes on with a warning where the target needs no GPU",
        ALLOWED,
        "another user",
    ),
    Row("other_gang", E, REFUSE, "refuses, naming it"),
    Row("gang_beside", N, GO_ON, "goes on beside it", about="another gang, where the target needs no GPU"),
    Row("lease_port_taken", E, REFUSE, "refuses"),
    Row("engram_on_network", E, REFUSE, "refuses unless `engram_on_network = true`", ALLOWED),
    Row("time_skew drivers_differ kernels_differ memlock_limited api_without_key", W, GO_ON, "goes on; `--strict` refuses"),
    Row("nothing_built", N, GO_ON, "cannot begin: run `doit`"),
)
NFS: tuple[Row, ...] = (
    Row("nfs_common_missing nfs_volume_differs", E, REFUSE, "refuses"),
    Row("nfs_not_exported nfs_no_crossmnt", W, GO_ON, "goes on; the line for `/etc/exports` is shown"),
    Row("nfs_volume_missing", N, GO_ON, "makes it"),
)
TABLES = {"findings": GENERAL, "nfs findings": NFS}


def table(rows: Iterable[Row]) -> str:
    """The rows as Markdown."""
    return "\n".join(["| finding | level | `supervisor run` |", "|---|---|---|", *_lines(rows)]) + "\n"


def document(page: str) -> str:
    """A page with its tables made anew: each stands between ``<!-- NAME -->`` and ``<!-- end of NAME -->``."""
    for name, rows in TABLES.items():
        between = re.compile(f"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        page = between.sub(lambda found, rows=rows: found[1] + table(rows) + found[2], page)  # type: ignore[misc]
    return page


def main(argv: list[str]) -> int:
    """Write the tables of the page given, or print them."""
    for name in argv:
        path = Path(name)
        path.write_text(document(path.read_text(encoding="utf-8")), encoding="utf-8")
    if not argv:
        sys.stdout.write("\n".join(table(rows) for rows in TABLES.values()))
    return 0


def _lines(rows: Iterable[Row]) -> Iterator[str]:
    for row in rows:
        names = ", ".join(f"`{one}`" for one in row.reasons)
        yield f"| {names}{f': {row.about}' if row.about else ''} | {row.level.value} | {row.run} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
