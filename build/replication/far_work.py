"""A program of the store run on a node, for as long as this process lives: its words come here while it runs.

It works in ``tmp/<entry>`` of the node's store, as copies do: ``tree`` is what it makes, ``model`` a folder of links to what it
reads. What an earlier one left there goes first, with that one's process if it still runs. Where it fails, or this process, its
host or the connection goes away, the node itself ends the program and removes what it made.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from build.errors import BuildFailed
from build.graph.processes import Children, Finished
from build.nodes import remote_shell
from build.nodes.node import SshNode, explicit
from build.nodes.ssh_errors import ConnectionLost
from build.nodes.ssh_link import DAY_S

READY_S = 60.0
WORK_S = 7 * DAY_S  # longer than any disk needs; the node ends what takes longer

READY = """set -e
mkdir -p "$1/tmp"; cd "$1"; t="tmp/$2"
for p in $(cat "$t/pids" 2>/dev/null); do
  ! grep -q -- "$2" "/proc/$p/cmdline" 2>/dev/null || kill -9 "$p" || :
done
[ ! -e "$t" ] || { chmod -R u+w "$t"; rm -rf "$t"; }
mkdir -p "$t/tree"
while IFS='\t' read -r path target; do
  mkdir -p "$(dirname "$t/model/$path")"; ln -s -- "$target" "$t/model/$path"
done
"""

# Descriptor 4 is held open by the process that asked: where it ends, that process or the way to it is gone.
WORK = """cd "$1" || exit 1
e="$2"; shift 2
exec 4<&0
env -i PATH=/usr/local/bin:/usr/bin:/bin LC_ALL=C.UTF-8 HOME="$PWD/tmp/$e" TMPDIR="$PWD/tmp/$e" "$@" </dev/null 4<&- &
p=$!
echo $$ $p > "tmp/$e/pids"
( cat <&4; kill -9 $p ) >/dev/null 2>&1 &
w=$!
exec 4<&-
wait $p; s=$?
kill $w 2>/dev/null
[ $s = 0 ] || { chmod -R u+w "tmp/$e"; rm -rf "tmp/$e"; }
exit $s
"""


def ready(node: SshNode, entry: str, links: Mapping[str, str]) -> None:
    """An empty ``tree`` for an entry, and ``model`` with these links: their paths, and the absolute paths that they lead to."""
    lines = "".join(f"{path}\t{target}\n" for path, target in sorted(links.items()))
    node.run(["sh", "-c", READY, "ready", explicit(node.store), entry], READY_S, stdin=os.fsencode(lines))


def work(node: SshNode, entry: str, argv: Sequence[str], children: Children, log: Path) -> Finished:
    """Run a program to its end; ``log`` has its stderr while it runs. ``ConnectionLost`` where its end is not known."""
    command, marks = node.session(["sh", "-c", WORK, "work", explicit(node.store), entry, *argv], WORK_S)
    program = shutil.which(command[0])
    if program is None:
        raise BuildFailed(f"{command[0]} is not installed: apt-get install openssh-client")
    reader, writer = os.pipe()  # nothing is ever written: its end tells the node that nobody waits any more
    try:
        done = children.run(
            [program, *command[1:]], cwd=Path.home(), env=dict(os.environ) | {"LC_ALL": "C"}, log=log, stdin=reader
        )
    finally:
        os.close(writer)
        os.close(reader)
    said = remote_shell.answer(log.read_bytes(), marks)
    if said is not None:
        log.write_bytes(said.content)
    found = remote_shell.answer(done.stdout.encode(), marks)
    if found is None or found.status is None:
        raise ConnectionLost(node.name, f"the connection broke while {Path(argv[0]).name} ran ({done.last_words()})")
    return Finished(found.status, found.content.decode(errors="replace"), log)
