"""NFS as a worker's storage: the right volume, an existing one compared, the export's line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from build.facts import Volume, volume
from supervisor.doctor.facts import NodeFacts, read
from supervisor.doctor.findings import Action
from supervisor.doctor.nfs import Export, differs, findings
from supervisor.doctor.script import Section

EXPORT = Export("192.0.2.1", "/srv/store", "twinfold-store")
LINE = "/srv/store 192.0.2.2(ro,crossmnt,no_subtree_check,root_squash)"


def node(name: str, **sections: str) -> NodeFacts:
    return read(name, {"system.txt": Section("hostname x\nmount_nfs yes\n")} | {k: Section(v) for k, v in sections.items()})


def made(**changed: str) -> Volume:
    return Volume("twinfold-store", "local", {**EXPORT.options(), **changed})


def found(export: Export = EXPORT, exports: str = LINE, **sections: str) -> list[tuple[str, Action]]:
    inspected = json.dumps([{"Name": "twinfold-store", "Driver": "local", "Options": dict(EXPORT.options())}])
    worker = node("worker", **({"docker-volume.json": inspected} | sections))
    rows = findings(export, node("head", exports=exports), [(worker, "192.0.2.2")])
    return [(one.reason, one.action) for one in rows]


def test_a_volume_that_is_the_export_is_fine_whatever_else_it_is_mounted_with() -> None:
    assert differs(made(), EXPORT) == ""
    assert differs(made(o="addr=192.0.2.1,ro,soft,nfsvers=4.2"), EXPORT) == ""
    assert found() == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"o": "addr=192.0.2.9,ro"}, "192.0.2.9"),
        ({"o": "addr=192.0.2.11,ro"}, "192.0.2.11"),
        ({"device": ":/srv/other"}, "/srv/other"),
        ({"type": "tmpfs"}, "tmpfs"),
        ({"o": "addr=192.0.2.1"}, "for writing"),
        ({"o": "ro"}, "no address"),
    ],
)
def test_another_address_path_or_kind_is_refused_by_name(changed: dict[str, str], words: str) -> None:
    assert words in differs(made(**changed), EXPORT)
    options: Any = {**EXPORT.options(), **changed}
    inspected = json.dumps([{"Name": "twinfold-store", "Driver": "local", "Options": options}])
    assert found(**{"docker-volume.json": inspected}) == [("nfs_volume_differs", Action.REFUSE)]


def test_no_volume_is_a_note_and_a_mounted_path_needs_none() -> None:
    assert volume("[]\nError: No such volume: twinfold-store\n") is None
    assert found(**{"docker-volume.json": "[]"}) == [("nfs_volume_missing", Action.GO_ON)]
    assert found(Export("192.0.2.1", "/srv/store", "/mnt/store"), **{"docker-volume.json": "[]"}) == []


def test_missing_nfs_common_is_an_error() -> None:
    assert found(**{"system.txt": "hostname x\nmount_nfs no\n"}) == [("nfs_common_missing", Action.REFUSE)]


@pytest.mark.parametrize(
    ("exports", "reason"),
    [
        ("", "nfs_not_exported"),
        ("# /srv/store *(ro)\n/srv/storehouse *(ro,crossmnt)\n", "nfs_not_exported"),
        ("/srv/store 192.0.2.2(ro)\n", "nfs_no_crossmnt"),
        ("/srv 192.0.2.2(ro,crossmnt)\n", ""),
    ],
)
def test_the_line_to_add_is_shown_with_crossmnt(exports: str, reason: str) -> None:
    assert found(exports=exports) == ([(reason, Action.GO_ON)] if reason else [])
    for one in findings(EXPORT, node("head", exports=exports), [(node("worker"), "192.0.2.2")]):
        assert one.reason == "nfs_volume_missing" or LINE in one.command


def test_engram_over_nfs_is_refused_unless_allowed() -> None:
    engram = Export("192.0.2.1", "/srv/store", "twinfold-store", engram=True)
    assert found(engram) == [("engram_on_network", Action.REFUSE)]
    assert found(Export("192.0.2.1", "/srv/store", "twinfold-store", engram=True, engram_allowed=True)) == []


def test_the_volume_is_read_only_and_of_the_links_address() -> None:
    options = EXPORT.options()
    assert options["type"] == "nfs"
    assert options["device"] == ":/srv/store"
    assert {"addr=192.0.2.1", "ro", "hard", "nfsvers=4"} <= set(options["o"].split(","))
    assert all(f"--opt {key}={value}" in EXPORT.create() for key, value in options.items())
