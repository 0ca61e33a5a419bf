"""One at a time at a node's store: who fills it, and who removes from it, never meet.

The lock is a file in the store that says since when and by whom, changed under flock(1), so that it holds over many commands. It
ends with its holder: one that was not renewed for a minute counts no more, nor one whose process is gone from the host that asks.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from build.errors import Refused
from build.nodes.node import Node, explicit
from build.nodes.ssh_errors import NodeError
from build.store.roots import boot_id

LEASE_S = 60
RENEW_S = 15.0
ASK_S = 30.0
AGAIN_S = 0.5

TAKE = """mkdir -p "$1" && cd "$1" || exit 1
exec 9>.busy.lock; flock 9
now=$(date +%s); at=0; who=
[ ! -f .busy ] || read -r at who < .busy
if [ -n "$who" ] && [ "$who" != "$2" ] && [ "$who" != "$3" ] && [ $((now - at)) -lt "$4" ]; then echo "$who"; exit 0; fi
echo "$now $2" > .busy
"""
DROP = """cd "$1" 2>/dev/null || exit 0
exec 9>.busy.lock; flock 9
[ ! -f .busy ] || read -r at who < .busy
[ "$who" != "$2" ] || rm -f .busy
"""


@contextmanager
def held(node: Node, say: Callable[[str], None], wait_s: float = 600.0) -> Iterator[None]:
    """Hold the store of a node. ``Refused`` naming the holder where it is still held after ``wait_s``."""
    mine = _owner()
    _take(node, mine, say, wait_s)
    done = threading.Event()
    renewing = threading.Thread(target=_renew, args=(node, mine, done), name=f"lock-{node.name}", daemon=True)
    renewing.start()
    try:
        yield
    finally:
        done.set()
        renewing.join()
        with suppress(NodeError):  # then it ends by itself
            _ask(node, DROP, mine)


def _take(node: Node, mine: str, say: Callable[[str], None], wait_s: float) -> None:
    until, gone, told = time.monotonic() + wait_s, "", ""
    while holder := _ask(node, TAKE, mine, gone, str(LEASE_S)):
        gone = holder if _dead(holder) else ""
        if gone:
            continue
        if holder != told:
            told = holder
            say(f"{node.name}: waiting for {shown(holder)}, which works on its store")
        if time.monotonic() > until:
            raise Refused(f"{node.name}: its store is in use by {shown(holder)}: wait for it, or end it")
        time.sleep(AGAIN_S)


def _renew(node: Node, mine: str, done: threading.Event) -> None:
    while not done.wait(RENEW_S):
        with suppress(NodeError):  # a connection that comes back in time renews it
            _ask(node, TAKE, mine, "", str(LEASE_S))


def shown(holder: str) -> str:
    """A holder for a message."""
    parts = holder.split("/")
    return f"process {parts[2]} on {parts[0]}" if len(parts) == 5 else holder


def _ask(node: Node, script: str, *args: str) -> str:
    return node.run(["sh", "-c", script, "lock", explicit(node.store), *args], ASK_S).text.strip()


def _owner() -> str:
    """One word: host, boot, process and thread, its start."""
    return f"{socket.gethostname()}/{boot_id()}/{os.getpid()}/{_start_ticks(os.getpid())}/{threading.get_ident()}"


def _dead(holder: str) -> bool:
    """Whether it was a process of this boot of this host that is gone."""
    parts = holder.split("/")
    if len(parts) != 5 or parts[1] != boot_id() or not parts[2].isdigit():
        return False
    return _start_ticks(int(parts[2])) != parts[3]


def _start_ticks(pid: int) -> str:
    """Field 22 of the process's stat (proc_pid_stat(5)), "" where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
