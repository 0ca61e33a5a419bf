"""The head's store over a real NFSv4 server, exported by the line that the doctor shows and read by libnfs on the worker.

This kernel mounts no NFS; how a mounted export is read is in test_shared_store.py.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from build.replication import replica
from build.store.store import Store
from supervisor.doctor.nfs import OPTIONS
from tests.contract.test_nodes_replicate import add
from tests.testbed.bed import Testbed
from tests.testing import nfs_server
from tests.testing.on_head import doctor, supervisor

pytestmark = [pytest.mark.testbed, pytest.mark.timeout(600)]
HEAD = "192.0.2.1"


@pytest.fixture
def export(tmp_path: Path) -> Iterator[Path]:
    """A store's place on a file system that any NFS server can serve, whatever this machine's root is on."""
    if reason := nfs_server.why_not():
        pytest.skip(reason)
    where = tmp_path / "export"
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m,mode=755", "tmpfs", str(where)], check=True)
    yield where / "store"
    subprocess.run(["umount", "--lazy", str(where)], check=True)


def findings(testbed: Testbed, state: Path, **more: object) -> dict[str, dict[str, Any]]:
    _, said = doctor(testbed, state, storage="nfs", **more)
    return {one["reason"]: one for one in said["findings"]}


def advised(testbed: Testbed, state: Path, path: Path) -> str:
    """The line for /etc/exports that the doctor shows."""
    command = findings(testbed, state, nfs_path=path)["nfs_not_exported"]["command"]
    line = re.fullmatch(r"echo '(.*)' \| sudo tee -a /etc/exports && sudo exportfs -ra", command)
    assert line is not None, command
    return line[1]


def test_the_advised_line_lets_the_worker_read_every_needed_file(export: Path, testbed: Testbed, tmp_path: Path) -> None:
    (worker,), store = testbed.workers, Store(export)
    files = {"config.json": b"{}", "sub/model-00001.safetensors": b"weights" * 40_000, "sub/deep/empty": b""}
    entries = [
        add(store, 1, "model", files, links={"link": "config.json"}),
        add(store, 2, "kit", {"aot/k.so": b"k"}, programs=("aot/k.so",)),
    ]
    line = advised(testbed, tmp_path / "state", export)
    assert line == f"{export} 192.0.2.2(ro,crossmnt,no_subtree_check,root_squash)"
    assert {"ro", "nfsvers=4", "proto=tcp"} <= set(OPTIONS.split(","))
    place = PurePosixPath(export)
    with nfs_server.serving(testbed.head, HEAD, line, tmp_path):
        for entry in entries:
            record = store.need(entry)
            seen = nfs_server.held(worker, HEAD, place, record)
            assert {one.path for one in seen.names} == {one.path for one in record.files}
            assert list(replica.differences(record.files, seen)) == []
        damaged = export / entries[0] / "sub/model-00001.safetensors"
        damaged.chmod(0o644)
        damaged.write_bytes(b"weights" * 39_999 + b"weightz")
        damaged.chmod(0o444)
        record = store.need(entries[0])
        wrong = list(replica.differences(record.files, nfs_server.held(worker, HEAD, place, record)))
        assert [(one.path, one.what) for one in wrong] == [("sub/model-00001.safetensors", "has other content")]


def test_the_advised_line_lets_nobody_else_in_and_nobody_write(export: Path, testbed: Testbed, tmp_path: Path) -> None:
    (worker,), store = testbed.workers, Store(export)
    entry = add(store, 1, "model", {"a": b"a"})
    line = advised(testbed, tmp_path / "state", export)
    place = PurePosixPath(export) / entry / "a"
    with nfs_server.serving(testbed.head, HEAD, line, tmp_path):
        assert nfs_server.read(worker, HEAD, place) == b"a"
        with pytest.raises(RuntimeError):  # the head itself is not among the clients
            nfs_server.read(testbed.head, HEAD, place)
        argv = ["nsenter", f"--net=/run/netns/{worker.name}", "nfs-cp", "/etc/hostname", f"nfs://{HEAD}{export}/new?version=4"]
        assert subprocess.run(argv, capture_output=True, check=False, timeout=60).returncode != 0
    assert not (export / "new").exists()


def test_the_advised_line_is_all_that_was_missing(testbed: Testbed, tmp_path: Path) -> None:
    """What the head printed, once with the line in /etc/exports, once with one that lacks crossmnt."""
    line = advised(testbed, tmp_path / "state", Path("/srv/store"))
    given = {"storage": "nfs", "nfs_path": "/srv/store", "fabric_peer": "192.0.2.2"}
    supervisor(testbed, tmp_path / "state", "doctor", "--save", str(tmp_path / "out"), **given)
    for exports, reasons in ((line, set()), (line.replace("crossmnt,", ""), {"nfs_no_crossmnt"}), ("", {"nfs_not_exported"})):
        (tmp_path / "out/head/exports").write_text(exports + "\n")
        done = supervisor(testbed, tmp_path / "state", "doctor", "--json", "--from", str(tmp_path / "out"), **given)
        found = {one["reason"]: one for one in json.loads(done.stdout)["findings"]}
        assert {reason for reason in found if reason in {"nfs_not_exported", "nfs_no_crossmnt"}} == reasons
        assert all(line in found[reason]["command"] for reason in reasons)


def test_a_worker_without_nfs_common_is_told_the_command(testbed: Testbed, tmp_path: Path) -> None:
    """The helper is hidden in the worker's own mount name space, as it may be installed here."""
    (worker,) = testbed.workers
    helpers = worker.run(["sh", "-c", "ls /sbin/mount.nfs /usr/sbin/mount.nfs 2>/dev/null"], check=False).stdout.split()
    try:
        for helper in helpers[:1]:
            worker.run(["mount", "--bind", "/dev/null", helper])
        found = findings(testbed, tmp_path, nfs_path="/srv/store")["nfs_common_missing"]
    finally:
        for helper in helpers[:1]:
            worker.run(["umount", helper])
    assert (found["level"], found["node"], found["command"]) == ("error", "worker", "sudo apt-get install nfs-common")
    if helpers:
        assert "nfs_common_missing" not in findings(testbed, tmp_path, nfs_path="/srv/store")
