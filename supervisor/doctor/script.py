"""The one script that reads a node: POSIX shell that writes nothing, starts no container, and needs nothing of ours there.

Its sections run side by side. Each prints lines ``name base64``; every line is one small write, so that lines of different
sections never mix. At the end of a section's content stand ``@@`` and its exit status. What is answered at once shares one such
stream, ``quick``: there ``@@@`` and a name stand before each content. Programs that may wait for others have one each.
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from build.errors import UsageError

QUICK = "quick"  # the stream that several sections share
SECTION_S = 4  # a section that takes longer is ended: a frozen dockerd answers nothing
GPU_FIELDS = (
    "index,uuid,name,pci.bus_id,driver_version,temperature.gpu,power.draw,clocks.current.sm,clocks.max.sm,"
    "utilization.gpu,memory.total,memory.used,memory.free"
)
# Only these: the whole of it would hold proxies with their passwords.
INFO = (
    '{"ServerVersion":{{json .ServerVersion}},"Driver":{{json .Driver}},"DriverStatus":{{json .DriverStatus}},'
    '"Runtimes":{{json .Runtimes}},"Architecture":{{json .Architecture}}}'
)
BASE64 = re.compile(r"[A-Za-z0-9+/]+=*")  # what a login shell prints of its own hardly looks so
SCRIPT = r"""
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
s() { n=$1; shift; { timeout "$limit" "$@" 2>&1 </dev/null; printf '\n@@%s' "$?"; } | base64 -w 900 | sed -u "s/^/$n /"; }
q() { n=$1; shift; printf '\n@@@%s\n' "$n"; "$@" 2>&1 </dev/null; printf '\n@@%s' "$?"; }
system() {
  read -r h </proc/sys/kernel/hostname; echo "hostname $h"
  set -- $(uname -rm); echo "kernel $1"; echo "machine $2"; echo "user $(id -un)"
  echo "ids $(id -u):$(id -g)"; echo "store $(readlink -m -- "$store")"; echo "home $HOME"
  c=; read -r c 2>/dev/null <"$proc/cmdline"; echo "cmdline $c"
  echo "memlock $(ulimit -l)"; command -v mount.nfs >/dev/null && echo "mount_nfs yes" || echo "mount_nfs no"
}
exported() { cat /etc/exports /etc/exports.d/*.exports 2>/dev/null; return 0; }
udp() { cat "$proc/net/udp" "$proc/net/udp6" 2>/dev/null; return 0; }
ways() { for p in $peers; do ip -j route get "$p" 2>/dev/null; done; }
infiniband() { cd "$sys/class/infiniband" 2>/dev/null || return 0
  for d in *; do [ -d "$d" ] || continue
    l=$(readlink "$d/device") && echo "/sys/class/infiniband/$d/device -> $l"
    (cd "$d/ports/1" && grep -s "" state phys_state rate gids/* gid_attrs/types/* gid_attrs/ndevs/* |
      grep -v ":0000:0000:0000:0000:0000:0000:0000:0000\$" | sed "s|^|/sys/class/infiniband/$d/ports/1/|")
  done; }
{ q system.txt system; q meminfo cat "$proc/meminfo"; q ip-addr.json ip -j addr; q ip-route.jsonl ways
  (q infiniband.txt infiniband); q exports exported; q udp.txt udp; } | base64 -w 900 | sed -u "s/^/quick /" &
if command -v ibv_devinfo >/dev/null; then s ibv_devinfo.txt ibv_devinfo & fi
if command -v nvidia-smi >/dev/null; then
  s nvidia-smi.csv nvidia-smi --query-gpu="$gpu_fields" --format=csv &
  s nvidia-smi-clock.txt nvidia-smi -q -d CLOCK &
  s nvidia-smi-apps.csv sh -c 'exec 3>&1
    nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_memory --format=csv | tee /dev/fd/3 |
    sed -n "s/^GPU[^,]*, *\([0-9][0-9]*\),.*/\1/p;s/^\([0-9][0-9]*\),.*/\1/p" | while read p; do
      c=$(grep -o "[0-9a-f]\{64\}" "/proc/$p/cgroup" 2>/dev/null | head -n 1)
      m=$(tr "\0" "\n" 2>/dev/null <"/proc/$p/environ" | sed -n "s/^TWINFOLD_RANK=//p")
      echo "@owner $p ${c:--} ${m:--}"; done' &
fi
if [ -n "$docker" ]; then
  s docker-info.json docker --host "$docker" info --format "$info" &
  s docker-ps.jsonl docker --host "$docker" ps --all --no-trunc --format "{{json .}}" &
  if [ -n "$volume" ]; then s docker-volume.json docker --host "$docker" volume inspect "$volume" & fi
  if [ -n "$images" ]; then s docker-images.json docker --host "$docker" image inspect $images & fi
fi
s df.txt sh -c 'for p do q=$p; while [ ! -e "$q" ]; do n=${q%/*}; [ "$n" = "$q" ] && n=.; q=${n:-/}; done
  echo "@ $p"; df -PTB1 -- "$q" | tail -n 1; done' df $paths &
s store.txt sh -c 'cd "$0" 2>/dev/null || cd /dev; for e do [ -e "$e" ] && echo "$e"; done
  case $(uname -m) in aarch64) m=arm64 ;; *) m=amd64 ;; esac
  for t in tool/twinfold-node-* *-twinfold-node-$m/twinfold-node; do [ -x "$t" ] && echo "tool $t"; done
  ping -V 2>/dev/null | grep iputils >/dev/null && echo "ping yes"; exit 0' "$store" $entries &
wait
s end.txt date +%s.%N
"""


@dataclass(frozen=True, slots=True)
class Section:
    """What one section printed, and its exit status; 124 is one that did not end in time, 127 a missing program."""

    text: str
    status: int = 0


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked of one node beside what every node is asked. ``store`` and the roots are as that node sees them."""

    store: str
    proc_root: str = "/proc"
    sys_root: str = "/sys"
    docker_socket: str = ""
    peers: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()
    volume: str = ""
    images: tuple[str, ...] = ()


def command(query: Query) -> list[str]:
    """The command that reads a node, for :meth:`build.nodes.node.Node.run`."""
    words: Mapping[str, str | Sequence[str]] = {
        "limit": str(SECTION_S),
        "proc": query.proc_root,
        "sys": query.sys_root,
        "docker": f"unix://{query.docker_socket}" if query.docker_socket else "",
        "store": query.store,
        "volume": query.volume,
        "info": INFO,
        "gpu_fields": GPU_FIELDS,
        "peers": query.peers,
        "paths": query.paths,
        "entries": query.entries,
        "images": query.images,
    }
    lines = [f"{name}={_quoted(name, value)}" for name, value in words.items()]
    return ["sh", "-c", "\n".join(lines) + SCRIPT]


def sections(printed: str) -> Mapping[str, Section]:
    """The sections by name, put together from their lines."""
    parts: dict[str, list[str]] = {}
    for line in printed.splitlines():
        name, _, piece = line.partition(" ")
        if re.fullmatch(r"[a-z_-]+\.?[a-z]*", name) and BASE64.fullmatch(piece):
            parts.setdefault(name, []).append(piece)
    shared = re.split(r"\n@@@([a-z_.-]+)\n", _decoded("".join(parts.pop(QUICK, []))) or "")[1:]
    quick = {name: _section(content) for name, content in zip(shared[::2], shared[1::2], strict=True)}
    return quick | {name: _section(_decoded("".join(pieces))) for name, pieces in parts.items()}


def _decoded(encoded: str) -> str | None:
    """None where a line of it was lost."""
    try:
        return base64.b64decode(encoded, validate=True).decode("utf-8", "replace")
    except ValueError:
        return None


def _section(content: str | None) -> Section:
    text, _, status = (content or "").rpartition("\n@@")
    return Section(text, int(status) if status.isdigit() else 255)


def _quoted(name: str, value: str | Sequence[str]) -> str:
    """A shell word. Lists are split by the shell again, so their words must hold no white space: ``UsageError``."""
    if isinstance(value, str):
        return shlex.quote(value)
    if any(re.search(r"[\s*?\[\\]", word) for word in value):
        raise UsageError(f"{name} holds a name with white space or a pattern, which cannot be used here: {' '.join(value)}")
    return shlex.quote(" ".join(value))
