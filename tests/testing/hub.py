"""A hub for tests: two small HTTP servers with the hub's routes, used with the real huggingface_hub client.

Files in LFS are redirected to the second server, another host (port), as the real hub does; plain files are answered at once.
Fault switches break what the data server does; ``log`` tells what was asked, with which range and whether a token came along.
A repository may hold sparse files of any size: the server makes their zeros as it sends.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from tests.testing import xet

BLOCK = 1 << 18
ZEROS = memoryview(bytes(BLOCK))
TOKEN = "hf_testtokentesttokentesttoken"


@dataclass(frozen=True)
class Sparse:
    """A file of zeros with a few bytes in it: offset -> bytes."""

    size: int
    marks: Mapping[int, bytes] = field(default_factory=dict)
    sha256: str = ""

    def blocks(self, start: int, end: int) -> Iterator[memoryview]:
        at = start
        while at < end:
            count = min(BLOCK - at % BLOCK, end - at)
            inside = [(o, m) for o, m in self.marks.items() if o < at + count and o + len(m) > at]
            if not inside:
                yield ZEROS[:count]
            else:
                block = bytearray(count)
                for offset, mark in inside:
                    for n, byte in enumerate(mark):
                        if at <= offset + n < at + count:
                            block[offset + n - at] = byte
                yield memoryview(block)
            at += count


Content = bytes | Sparse


@dataclass
class Repo:
    """One repository: one commit, its files, which of them are in LFS (default: names ending in .safetensors)."""

    commit: str
    files: dict[str, Content]
    lfs: frozenset[str] | None = None
    refs: tuple[str, ...] = ("main",)
    gated: bool = False
    accepted: bool = False
    xet: bool = False  # files in LFS are offered by Xet too

    def in_lfs(self, path: str) -> bool:
        return path.endswith(".safetensors") if self.lfs is None else path in self.lfs

    def tree(self) -> list[dict[str, Any]]:
        """The listing, folders included, as the hub prints it."""
        folders = sorted({p.rpartition("/")[0] for p in self.files} - {""})
        rows: list[dict[str, Any]] = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": f} for f in folders]
        for path, content in sorted(self.files.items()):
            row: dict[str, Any] = {"type": "file", "oid": blob_id(content), "size": size(content), "path": path}
            if self.in_lfs(path):
                row |= {"oid": blob_id(path.encode()), "lfs": {"oid": sha256(content), "size": size(content), "pointerSize": 134}}
            rows.append(row)
        return rows


@dataclass
class Faults:
    """What goes wrong, each as often as its number says (per request, counted down)."""

    drops: int = 0
    drop_after: int = 100_000
    stalls: int = 0
    stall_s: float = 60.0
    wrong_bytes: int = 0
    wrong_at: int = 0
    short: bool = False
    errors: int = 0
    error_code: int = 500
    slow_s: float = 0.0  # a pause after each block
    expired: int = 0
    guard: threading.Lock = field(default_factory=threading.Lock)

    def take(self, name: str) -> bool:
        with self.guard:
            left = getattr(self, name)
            if left > 0:
                setattr(self, name, left - 1)
            return bool(left > 0)


@dataclass(frozen=True)
class Asked:
    """One request for bytes. ``sent``: how many went out."""

    host: str
    method: str
    path: str
    range: tuple[int, int] | None
    token: bool
    sent: int


def size(content: Content) -> int:
    return content.size if isinstance(content, Sparse) else len(content)


def sha256(content: Content) -> str:
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    if content.sha256:
        return content.sha256
    digest = hashlib.sha256()
    for block in content.blocks(0, content.size):
        digest.update(block)
    return digest.hexdigest()


def blob_id(content: Content) -> str:
    data = content if isinstance(content, bytes) else b"sparse"
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


class TestHub:
    """Both servers on free ports; a context manager."""

    __test__ = False

    def __init__(self, repos: Mapping[str, Repo]) -> None:
        self.repos, self.faults = dict(repos), Faults()
        self.log: list[Asked] = []
        self.ended = threading.Event()
        self._servers = [self._server(_Hub), self._server(_Data)]

    def _server(self, kind: type[_Handler]) -> ThreadingHTTPServer:
        handler = type(kind.__name__, (kind,), {"hub": self})
        made = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        made.daemon_threads = True
        threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True).start()
        return made

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._servers[0].server_port}"

    @property
    def data(self) -> str:
        return f"http://127.0.0.1:{self._servers[1].server_port}"

    def asked(self, path: str) -> list[Asked]:
        """Requests for the bytes of a file."""
        return [a for a in self.log if a.method == "GET" and a.path.endswith(path) and "/api/" not in a.path]

    def sent_bytes(self, path: str = "") -> int:
        return sum(a.sent for a in self.asked(path))

    def close(self) -> None:
        self.ended.set()
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Handler(BaseHTTPRequestHandler):
    hub: TestHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def handle(self) -> None:
        try:
            super().handle()
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def say(self, code: int, headers: Mapping[str, str], body: bytes = b"") -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def token(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def content(self, path: str, content: Content, extra: Mapping[str, str]) -> None:
        """Send a file or a range of it, with whatever faults are on."""
        hub, total = self.hub, size(content)
        faults = hub.faults
        claimed = total - 7 if faults.short else total
        start, end, code, headers = 0, claimed, 200, {"Accept-Ranges": "bytes", **extra}
        asked = self.headers.get("Range")
        if asked:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start, end, code = int(first), min(int(last) + 1 if last else claimed, claimed), 206
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{claimed}"
        headers["Content-Length"] = str(max(0, end - start))
        sent = 0
        try:
            if self.command == "GET" and faults.take("errors"):
                self.say(faults.error_code, {})
                return
            self.say(code, headers)
            if self.command == "GET":
                for count in self._send(content, start, end):
                    sent += count
        finally:
            host = self.headers.get("Host", "")
            had = bool(self.headers.get("Authorization"))
            hub.log.append(Asked(host, self.command, path, (start, end) if asked else None, had, sent))

    def _send(self, content: Content, start: int, end: int) -> Iterator[int]:
        faults = self.hub.faults
        drop, stall = faults.take("drops"), faults.take("stalls")
        wrong = start <= faults.wrong_at < end and faults.take("wrong_bytes")
        at = start
        for block in _blocks(content, start, end):
            if (drop or stall) and at - start >= faults.drop_after:
                if stall:
                    self.hub.ended.wait(faults.stall_s)
                self.close_connection = True
                self.connection.close()
                return
            if wrong and at <= faults.wrong_at < at + len(block):
                block = bytearray(block)  # noqa: PLW2901
                block[faults.wrong_at - at] ^= 1
            self.wfile.write(block)
            at += len(block)
            yield len(block)
            if faults.slow_s:
                time.sleep(faults.slow_s)


def _blocks(content: Content, start: int, end: int) -> Iterator[memoryview]:
    if isinstance(content, Sparse):
        yield from content.blocks(start, end)
        return
    view = memoryview(content)
    step = 1 << 14
    for at in range(start, end, step):
        yield view[at : min(end, at + step)]


class _Hub(_Handler):
    """The hub itself: revisions, listings, resolve."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        names = [unquote(p) for p in parts.path.strip("/").split("/")]
        if names[:2] == ["api", "models"]:
            self._api(names[2:], parse_qs(parts.query))
        elif len(names) > 4 and names[2] == "resolve":
            self._resolve("/".join(names[:2]), names[3], "/".join(names[4:]))
        else:
            self.say(404, {})

    def _repo(self, name: str, revision: str) -> Repo | None:
        """The repository at a revision, or None after an answer that says why not."""
        repo = self.hub.repos.get(name)
        if self.headers.get("Authorization") and not self.token():
            self.say(401, {"X-Error-Message": "Invalid credentials in Authorization header"})
        elif repo is None:
            self.say(404 if self.token() else 401, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
        elif revision not in {repo.commit, *repo.refs}:
            self.say(404, {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id"})
        else:
            return repo
        return None

    def _api(self, names: list[str], _query: Mapping[str, list[str]]) -> None:
        verb, revision = (names[2], names[3]) if len(names) > 3 else ("revision", "main")
        name = "/".join(names[:2])
        repo = self._repo(name, revision)
        if repo is None:
            return
        if verb == "xet-read-token":
            until = str(int(time.time()) + 3600)
            self.say(200, {"X-Xet-Access-Token": "xet", "X-Xet-Token-Expiration": until, "X-Xet-Cas-Url": self.hub.data})
            return
        answer: object = repo.tree() if verb == "tree" else {"id": name, "sha": repo.commit, "siblings": []}
        self.say(200, {"Content-Type": "application/json"}, json.dumps(answer).encode())

    def _resolve(self, name: str, revision: str, path: str) -> None:
        repo = self._repo(name, revision)
        if repo is None:
            return
        if repo.gated and not (self.token() and repo.accepted):
            self.say(403 if self.token() else 401, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"})
            return
        content = repo.files.get(path)
        if content is None:
            self.say(404, {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found", "X-Repo-Commit": repo.commit})
        elif repo.in_lfs(path):
            etag = f'"{sha256(content)}"'
            headers = {"X-Repo-Commit": repo.commit, "X-Linked-Etag": etag, "X-Linked-Size": str(size(content))}
            if repo.xet:
                route = f"{self.hub.endpoint}/api/models/{name}/xet-read-token/{revision}"
                headers |= {"X-Xet-Hash": sha256(content), "X-Xet-Refresh-Route": route}
            self.say(302, {**headers, "Location": f"{self.hub.data}/{name}/{path}?signed=1"})
        else:
            self.content(self.path, content, {"X-Repo-Commit": repo.commit, "ETag": f'"{blob_id(content)}"'})


class _Data(_Handler):
    """The other host, which knows no tokens."""

    def do_GET(self) -> None:
        if self.hub.faults.take("expired"):
            self.say(403, {})
            return
        name, _, path = unquote(urlsplit(self.path).path).strip("/").partition("/")
        if name in {"v1", "v2", "xorb"}:
            self._xet(name, path.rpartition("/")[2])
            return
        owner = name
        name, _, path = path.partition("/")
        self.content(f"/{owner}/{name}/{path}", self.hub.repos[f"{owner}/{name}"].files[path], {})

    def _xet(self, route: str, name: str) -> None:
        """The storage of Xet, which names a file by its sha256 here. Of its second version it knows nothing."""
        held = (c for repo in self.hub.repos.values() if repo.xet for c in repo.files.values() if sha256(c) == name)
        content = next(held, None)
        if route == "v2" or not isinstance(content, bytes):
            self.say(404, {})
        elif route == "v1":
            self.say(200, {}, json.dumps(xet.reconstruction(name, content, f"{self.hub.data}/xorb/{name}")).encode())
        else:
            self.content(self.path, xet.xorb(content), {})
