"""The store on a node, worked on from the head: list, hash, prepare a copy, publish it, remove it.

It has the form of the head's: ``<entry>`` beside ``<entry>.json``, work in ``tmp/<entry>/``, the record last. Beside the entries
lie ``tool/`` (the node tool, named by its hash), ``fingerprints/`` (file identities at the last full read) and ``roots/`` (what
must stay, written from the head). Each method is one command on the node; it uses what any Linux has, and the node tool.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from build import facts
from build.errors import StoreDamaged
from build.nodes.node import Node, explicit, put
from build.nodes.ssh_errors import NodeError
from build.replication import replica
from build.replication.replica import Fingerprints, Held, Seen
from build.store import durable
from build.store.hashing import sha256_bytes
from build.store.record import Record
from build.store.store import ENTRY

QUICK_S = 60.0
HASH_FLOOR_BYTES_PER_S = 50 << 20  # slower than any disk that a rank could live on
SETTLE_S = 0.15  # longer than fingerprints call racy

SURVEY = """tool="$2"
if [ "$3" = make ]; then mkdir -p "$1"; elif [ ! -d "$1" ]; then echo T; exit 0; fi
cd "$1" || exit 1
echo "T $(sha256sum "$tool" 2>/dev/null | cut -c1-64)"
echo "S $(stat -f -c %i .)"
while IFS= read -r e; do
  echo "E $e"
  [ ! -f "$e.json" ] || echo "R $(sha256sum < "$e.json" | cut -c1-64)"
  [ ! -f "fingerprints/$e" ] || printf 'P %s\\n' "$(cat "fingerprints/$e")"
  if [ -d "$e" ] && [ ! -L "$e" ]; then
    echo "M $(stat -c %a "$e")"
    [ ! -x "$tool" ] || "$tool" hash --no-content --tree "$e" | sed 's/^/F /'
  fi
done
"""

HASH_FILES = """cd "$1" && date +%s%N && exec "$2" hash --stdin0"""
HASH_TREE = """cd "$1" && sleep "$4" && date +%s%N && exec "$2" hash --tree "$3" """

# The copy's work folder. What another build of the same key left there is of no use: its bytes may differ.
PREPARE = """set -e
mkdir -p "$1/tmp"; cd "$1"; t="tmp/$2"
if [ "$(cat "$t/output" 2>/dev/null)" != "$3" ]; then
  [ ! -e "$t" ] || { chmod -R u+w "$t"; rm -rf "$t"; }
  mkdir -p "$t/tree"; printf %s "$3" > "$t/output"
fi
chmod -R u+w "$t"
while IFS='\t' read -r kind path target; do
  case $kind in
    folder) mkdir -p "$t/tree/$path" ;;
    empty) : > "$t/tree/$path" ;;
    link) ln -sfn -- "$target" "$t/tree/$path" ;;
  esac
done
cat "$t/progress" 2>/dev/null || :
"""

# A damaged entry becomes its own work folder again: what is right stays and is not sent. The record goes first.
REOPEN = """set -e
cd "$1"; t="tmp/$2"
rm -f "$2.json"; sync .
[ ! -e "$t" ] || { chmod -R u+w "$t"; rm -rf "$t"; }
mkdir -p "$t"; printf %s "$3" > "$t/output"
if [ -d "$2" ] && [ ! -L "$2" ]; then chmod u+w "$2"; mv "$2" "$t/tree"; else rm -rf "$2"; mkdir "$t/tree"; fi
chmod -R u+w "$t/tree"
: > "$t/progress"
while IFS='\t' read -r kind path size; do
  case $kind in
    bad) rm -rf "$t/tree/$path" ;;
    good) printf '%s\\t0\\t%s\\n' "$path" "$size" >> "$t/progress" ;;
  esac
done
"""

# Blocks are shared where the file system can do that; else they go past the page cache where it lets them.
COPY = """case "$3" in /*) from="$3" ;; *) from="$PWD/$3" ;; esac
cd "$1/tmp/$2" || exit 1
while IFS='\t' read -r size path; do
  [ "$(stat -L -c %s -- "$from/$path" 2>/dev/null)" = "$size" ] || continue
  cp --reflink=always -- "$from/$path" "tree/$path" 2>/dev/null ||
    dd if="$from/$path" of="tree/$path" bs=8M iflag=direct oflag=direct status=none 2>/dev/null ||
    cp -- "$from/$path" "tree/$path" || { rm -f "tree/$path"; continue; }
  printf '%s\t0\t%s\n' "$path" "$size" >> progress && printf '%s\n' "$path"
done
"""

RESEND = """set -e
cd "$1/tmp/$2"; chmod -R u+w tree
while IFS= read -r path; do
  rm -rf "tree/$path"
  awk -F'\t' -v p="$path" '$1 != p' progress > progress.new; mv progress.new progress
done
"""

SEAL = """set -e
cd "$1/tmp/$2/tree"
find . -type f -exec chmod 444 {} + -exec touch -d @1 {} +
xargs -0 -r chmod 555
find . -mindepth 1 -type d -exec chmod 555 {} +
find . \\( -type f -o -type d \\) -print0 | xargs -0 -r sync
"""

PUBLISH = """set -e
cd "$1"; t="tmp/$2"
rm -f "$2.json"
if [ -e "$2" ] || [ -L "$2" ]; then rm -rf "$t/old"; [ ! -d "$2" ] || chmod u+w "$2"; mv "$2" "$t/old"; fi
mv "$t/tree" "$2"; chmod 555 "$2"; sync "$2" .
cat > "$t/record"; chmod 444 "$t/record"; sync "$t/record"
mv "$t/record" "$2.json"; sync .
chmod -R u+w "$t"; rm -rf "$t"
"""

REWRITE_RECORD = """set -e
cd "$1"; mkdir -p tmp; t="tmp/$2.record"
cat > "$t"; chmod 444 "$t"; sync "$t"; mv -f "$t" "$2.json"; sync .
"""

MODES = """set -e
cd "$1"; chmod 555 "$2"; cd "$2"
find . -mindepth 1 -type d -exec chmod 555 {} + ; find . -type f -exec chmod 444 {} +
xargs -0 -r chmod 555
"""

DISCARD = """cd "$1" 2>/dev/null || exit 0
for e in "tmp/$2"; do [ ! -e "$e" ] || { chmod -R u+w "$e"; rm -rf "$e"; }; done
"""

REMOVE = """set -e
cd "$1"; rm -f "$2.json"; sync .
mkdir -p tmp; rm -rf "tmp/$2.gone"
if [ -d "$2" ] && [ ! -L "$2" ]; then chmod u+w "$2"; fi
[ ! -e "$2" ] || mv "$2" "tmp/$2.gone"
rm -f "fingerprints/$2"
[ ! -e "tmp/$2.gone" ] || { chmod -R u+w "tmp/$2.gone"; rm -rf "tmp/$2.gone"; }
"""

NAMES = """cd "$1" 2>/dev/null || exit 0
exec ls -A
"""

ROOTS = """cd "$1/roots" 2>/dev/null || exit 0
for f in *.json; do [ ! -f "$f" ] || { printf '%s ' "${f%.json}"; cat "$f"; }; done
"""


@dataclass(frozen=True, slots=True)
class Survey:
    """One look at a node's store: whether the right node tool is there, which file system it is on, what it holds."""

    tool_ok: bool
    file_system: str
    held: dict[str, Held]


@dataclass(frozen=True, slots=True)
class Read:
    """Names whose bytes were read just now; ``started_ns`` is the node's clock before."""

    started_ns: int
    names: tuple[Seen, ...]


class FarStore:
    """A node's store. ``tool`` is the node tool's binary for that node, on this host, which is sent there if need be."""

    def __init__(self, node: Node, tool: Path, *, send_tool: bool = True) -> None:
        self.node, self._send_tool = node, send_tool
        self.root = explicit(node.store)
        self._binary = tool.read_bytes()
        self._tool_sha256 = sha256_bytes(self._binary)
        self._tool = f"tool/twinfold-node-{self._tool_sha256[:16]}"

    def survey(self, entries: Sequence[str]) -> Survey:
        """What the node holds of these entries, with one command; the node tool is sent first where it is missing or damaged."""
        found = self._survey(entries)
        if not found.tool_ok and not self._send_tool:
            raise NodeError(self.node.name, f"the node tool is not in {self.root}/{self._tool}, or damaged: run `doit replicate`")
        if not found.tool_ok:
            put(self.node, self._binary, PurePosixPath(self.root) / self._tool, mode=0o555, deadline_s=QUICK_S)
            found = self._survey(entries)
            if not found.tool_ok:
                raise NodeError(
                    self.node.name, f"the node tool does not arrive whole at {self.root}/{self._tool}: check the disk"
                )
        return found

    def _survey(self, entries: Sequence[str]) -> Survey:
        mode = "make" if self._send_tool else "look"
        printed = self._sh(SURVEY, f"./{self._tool}", mode, stdin="".join(f"{e}\n" for e in entries).encode())
        return read_survey(printed.decode("utf-8", "surrogateescape"), self._tool_sha256)

    def free_bytes(self) -> int:
        """Room on the file system of the store."""
        found = facts.file_systems(self._run(["df", "-PB1", self.root]).decode(errors="replace"))
        if not found:
            raise NodeError(self.node.name, f"df says nothing of {self.root}")
        return found[0].available_bytes

    def hash_files(self, entry: str, paths: Sequence[str], size_bytes: int) -> Read:
        """Read these files of a finished entry."""
        names = b"".join(os.fsencode(f"{entry}/{path}") + b"\0" for path in paths)
        printed = self._sh(HASH_FILES, f"./{self._tool}", stdin=names, deadline_s=_hash_s(size_bytes), check=False)
        read = _read(printed, self.node.name)
        return Read(read.started_ns, tuple(_renamed(s, entry) for s in read.names))

    def hash_tree(self, entry: str, size_bytes: int, *, copy: bool = False) -> Read:
        """Read all of an entry, or of its unfinished copy."""
        where, settle_s = (f"./tmp/{entry}/tree", SETTLE_S) if copy else (f"./{entry}", 0.0)
        args = [f"./{self._tool}", where, f"{settle_s}"]
        return _read(self._sh(HASH_TREE, *args, deadline_s=_hash_s(size_bytes), check=False), self.node.name)

    def prepare(self, record: Record, source: Path) -> frozenset[tuple[str, int, int]]:
        """Make a copy's work folder, or find it again; the ranges that have arrived there before."""
        lines = []
        for file in record.files:
            if file.kind == "folder":
                lines.append(f"folder\t{file.path}\t")
            elif file.kind == "link":
                lines.append(f"link\t{file.path}\t{(source / file.path).readlink()}")
            elif file.size == 0:
                lines.append(f"empty\t{file.path}\t")
        content = "".join(f"{line}\n" for line in sorted(lines, key=lambda line: line.split("\t")[1]))
        printed = self._sh(PREPARE, record.entry, record.output, stdin=os.fsencode(content))
        return read_progress(os.fsdecode(printed))

    def copy_from(self, folder: str, entry: str, files: Sequence[tuple[str, int]]) -> tuple[str, ...]:
        """Copy files, by path and size, out of a folder of the node into an unfinished copy; those that were there."""
        lines = "".join(f"{size}\t{path}\n" for path, size in files)
        limit_s = _hash_s(sum(size for _, size in files))
        printed = self._sh(COPY, entry, folder.removeprefix("~/"), stdin=os.fsencode(lines), deadline_s=limit_s)
        return tuple(os.fsdecode(printed).splitlines())

    def reopen(self, record: Record, bad: Iterable[str], good: Iterable[tuple[str, int]]) -> None:
        """Turn a damaged entry into a copy's work folder that lacks only what is bad."""
        lines = [f"bad\t{path}\t" for path in bad] + [f"good\t{path}\t{size}" for path, size in good]
        self._sh(REOPEN, record.entry, record.output, stdin=os.fsencode("".join(f"{line}\n" for line in lines)))

    def resend(self, entry: str, paths: Iterable[str]) -> None:
        """Forget files of a copy that did not arrive as they were sent."""
        self._sh(RESEND, entry, stdin=os.fsencode("".join(f"{path}\n" for path in paths)))

    def seal(self, record: Record) -> None:
        """Give a copy its modes and times, and make it durable."""
        self._sh(SEAL, record.entry, stdin=_programs(record), deadline_s=_hash_s(record.size_bytes))

    def publish(self, record: Record, content: bytes) -> None:
        """Move a verified copy into place; ``content`` is its record, written last."""
        self._sh(PUBLISH, record.entry, stdin=content, deadline_s=_hash_s(0))

    def record(self, entry: str) -> bytes:
        """The record beside an entry, as it is there."""
        return self._run(["cat", f"{self.root}/{entry}.json"])

    def rewrite_record(self, entry: str, content: bytes) -> None:
        """Put the head's record beside an entry whose bytes are proven."""
        self._sh(REWRITE_RECORD, entry, stdin=content)

    def mend_modes(self, record: Record) -> None:
        """Make an entry read-only again."""
        self._sh(MODES, record.entry, stdin=_programs(record))

    def keep_fingerprints(self, entry: str, prints: Fingerprints) -> None:
        """Write what the last full read saw; harmless to lose."""
        put(self.node, replica.fingerprints_to_json(prints), PurePosixPath(self.root) / "fingerprints" / entry)

    def discard_copy(self, entry: str) -> None:
        """Remove an unfinished copy."""
        self._sh(DISCARD, entry, deadline_s=_hash_s(0))

    def entries(self) -> tuple[str, ...]:
        """Every name that has a path or a record."""
        names = {n.removesuffix(".json") for n in os.fsdecode(self._sh(NAMES)).splitlines()}
        return tuple(sorted(n for n in names if ENTRY.fullmatch(n)))

    def remove(self, entry: str) -> None:
        """Remove an entry: its record first, then its path, out of the way before its files go."""
        self._sh(REMOVE, entry, deadline_s=_hash_s(0))

    def set_root(self, name: str, entries: Iterable[str]) -> None:
        """Make entries stay, under a name of the head's (a generation, a launch)."""
        content = (json.dumps({"entries": sorted(entries)}) + "\n").encode()
        put(self.node, content, PurePosixPath(self.root) / "roots" / f"{name}.json")

    def roots(self) -> dict[str, tuple[str, ...]]:
        """Every root by name. ``StoreDamaged`` where one cannot be read: what it keeps would be lost."""
        found = {}
        for line in os.fsdecode(self._sh(ROOTS)).splitlines():
            name, _, content = line.partition(" ")
            try:
                found[name] = tuple(str(e) for e in json.loads(content)["entries"])
            except (ValueError, KeyError, TypeError) as error:
                raise StoreDamaged(
                    f"{self.node.name}: {self.root}/roots/{name}.json is no readable root ({error}): remove it"
                ) from None
        return found

    def _sh(self, script: str, *args: str, stdin: bytes | None = None, deadline_s: float = QUICK_S, check: bool = True) -> bytes:
        return self._run(["sh", "-c", script, "store", self.root, *args], stdin, deadline_s, check=check)

    def _run(self, argv: Sequence[str], stdin: bytes | None = None, deadline_s: float = QUICK_S, *, check: bool = True) -> bytes:
        return self.node.run(argv, deadline_s, stdin=stdin, check=check).stdout


def read_survey(printed: str, tool_sha256: str) -> Survey:
    """Read what the survey's script printed. ``ValueError`` where it is not that."""
    tool_ok, file_system = False, ""
    held: dict[str, Held] = {}
    parts: dict[str, list[str]] = {}
    entry = ""
    for line in printed.splitlines():
        sign, _, rest = line.partition(" ")
        if sign == "E":
            entry, parts[rest] = rest, []
        elif sign == "T":
            tool_ok = rest == tool_sha256
        elif sign == "S":
            file_system = rest
        else:
            parts[entry].append(line)
    for name, lines in parts.items():
        held[name] = _held(name, [line.split(" ", 1) for line in lines])
    return Survey(tool_ok, file_system, held)


def _held(entry: str, parts: Iterable[Sequence[str]]) -> Held:
    said = list(parts)
    single = {sign: rest for sign, rest in said if sign in "MRP"}
    return Held(
        entry,
        int(single["M"], 8) if "M" in single else -1,
        single.get("R", ""),
        replica.fingerprints_from_json(single.get("P", "")),
        tuple(replica.seen(rest) for sign, rest in said if sign == "F"),
    )


def read_progress(printed: str) -> frozenset[tuple[str, int, int]]:
    """Ranges that arrived; a line cut short by a crash does not count."""
    found = set()
    for line in printed.split("\n")[:-1]:
        parts = line.split("\t")
        if len(parts) == 3 and parts[1].isdigit() and parts[2].isdigit():
            found.add((parts[0], int(parts[1]), int(parts[2])))
    return frozenset(found)


def _read(printed: bytes, node: str) -> Read:
    lines = printed.decode("utf-8", "surrogateescape").splitlines()
    if not lines or not lines[0].isdigit():
        raise NodeError(node, "the node tool cannot be run: is it made for that machine's processor?")
    try:
        return Read(int(lines[0]), tuple(replica.seen(line) for line in lines[1:]))
    except ValueError as error:
        raise NodeError(node, f"the node tool's answer is not readable: {error}") from None


def _renamed(name: Seen, entry: str) -> Seen:
    return Seen(name.path.removeprefix(f"{entry}/"), name.kind, name.size, name.mode, name.identity, name.sha256, name.error)


def _programs(record: Record) -> bytes:
    return b"".join(os.fsencode(f"./{f.path}") + b"\0" for f in record.files if f.kind == "program")


def _hash_s(size_bytes: int) -> float:
    return QUICK_S + size_bytes / HASH_FLOOR_BYTES_PER_S


assert durable.MTIME_S == 1  # SEAL gives copies the same time as the head's own
