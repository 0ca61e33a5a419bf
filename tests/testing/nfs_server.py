"""A real NFSv4 server in user space (nfs-ganesha) that exports what a line of /etc/exports says, and its files read by libnfs."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from build.replication.replica import Held, Seen
from build.store import durable
from build.store.record import Record
from tests.testbed.hosts import Host

SERVER = "ganesha.nfsd"
START_S = 60.0
# The one option of the volume that a server sees is its version: NFSv4 over TCP, so no port mapper and no lock daemon.
CONFIG = """
NFS_CORE_PARAM {{ Protocols = 4; NFS_Port = 2049; Bind_addr = {address}; Enable_NLM = false; Enable_RQUOTA = false; }}
NFSV4 {{ RecoveryRoot = "{scratch}"; Graceless = true; }}
EXPORT_DEFAULTS {{ Access_Type = None; }}
EXPORT {{
  Export_Id = 1; Path = {path}; Pseudo = {path}; Protocols = 4; Transports = TCP; SecType = sys; FSAL {{ Name = VFS; }}
{clients}}}
"""
LINE = re.compile(r"([^\s(]+)\(([^)]*)\)")
LISTED = re.compile(r"(?P<kind>[-dl])(?P<mode>[rwx-]{9})\s+\d+\s+\d+\s+\d+\s+(?P<size>\d+) (?P<name>.*)")
KINDS = {"-": "file", "d": "folder", "l": "link"}


def why_not() -> str:
    """Why there can be none here, or ""."""
    missing = [name for name in (SERVER, "nfs-ls", "nfs-cat") if shutil.which(name) is None]
    return f"{', '.join(missing)} not installed: apt-get install nfs-ganesha-vfs libnfs-utils" if missing else ""


def config(line: str, address: str, scratch: Path) -> str:
    """The server's configuration for a line of /etc/exports; what the line allows nobody, nobody may."""
    path, clients = line.split(" ", 1)
    blocks = []
    for client, words in LINE.findall(clients):
        options = set(words.split(","))
        access = "RO" if "ro" in options else "RW"
        squash = "Root_Squash" if "root_squash" in options else "No_Root_Squash"
        blocks.append(f"  CLIENT {{ Clients = {client}; Access_Type = {access}; Squash = {squash}; }}\n")
    return CONFIG.format(address=address, scratch=scratch, path=path, clients="".join(blocks))


@contextmanager
def serving(host: Host, address: str, line: str, scratch: Path) -> Iterator[None]:
    """The server in the host's network, at one of its addresses, until the block ends."""
    file, log = scratch / "ganesha.conf", scratch / "ganesha.log"
    file.write_text(config(line, address, scratch))
    argv = ["nsenter", f"--net=/run/netns/{host.name}", SERVER, "-F", "-f", str(file), "-p", str(scratch / "pid"), "-L", str(log)]
    program = subprocess.Popen(
        [*argv, "-N", "NIV_EVENT"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        end = time.monotonic() + START_S
        while "NFS SERVER INITIALIZED" not in (said := log.read_text() if log.exists() else ""):
            assert program.poll() is None, said
            assert time.monotonic() < end, said
            time.sleep(0.05)
        yield
    finally:
        program.terminate()
        try:
            program.wait(20)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()


def read(client: Host, server: str, path: PurePosixPath, program: str = "nfs-cat") -> bytes:
    """What libnfs reads on a host. ``RuntimeError`` with its words where it cannot."""
    argv = ["nsenter", f"--net=/run/netns/{client.name}", program, f"nfs://{server}{path}?version=4"]
    done = subprocess.run(argv, capture_output=True, timeout=120, check=False, stdin=subprocess.DEVNULL)
    if done.returncode or done.stderr:
        raise RuntimeError((done.stderr or done.stdout).decode(errors="replace").strip())
    return done.stdout


def held(client: Host, server: str, store: PurePosixPath, record: Record) -> Held:
    """An entry as a host sees it through NFS, every file's bytes hashed: what the node tool says of a mounted one."""
    return Held(record.entry, durable.FOLDER_MODE, "", names=tuple(_names(client, server, store / record.entry, "")))


def _names(client: Host, server: str, folder: PurePosixPath, inside: str) -> Iterator[Seen]:
    for line in read(client, server, folder / inside, "nfs-ls").decode().splitlines():
        row = LISTED.fullmatch(line)
        assert row is not None, line
        path, kind = f"{inside}/{row['name']}".lstrip("/"), KINDS[row["kind"]]
        content = read(client, server, folder / path) if kind == "file" else b""
        mode = sum(1 << (8 - at) for at, letter in enumerate(row["mode"]) if letter != "-")
        sha256 = hashlib.sha256(content).hexdigest() if kind == "file" else ""
        yield Seen(path, kind, len(content), mode, (0, 0, 0, 0), sha256)
        if kind == "folder":
            yield from _names(client, server, folder, path)
