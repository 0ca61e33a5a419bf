"""Leases between real guards, over loopback addresses that stand for two rails."""

from __future__ import annotations

import hashlib
import hmac
import os
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.testing.node_tool import GIB, GuardProcess, ProcTree, Victim, ask

RAILS = ("127.0.0.1", "127.0.0.2")
SECRET = b"0123456789abcdef0123456789abcdef"
TIMEOUT_MS = 2000


class Relay(threading.Thread):
    """A link between two guards: forwards packets, drops a share of them, holds them up, or is cut."""

    def __init__(self, address: str, forward_to: tuple[str, int]) -> None:
        super().__init__(daemon=True)
        self.inward = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.inward.bind((address, 0))
        self.forward_to = forward_to
        self.drop_every, self.delay_s = 0, 0.0
        self.cut, self.ending = threading.Event(), threading.Event()
        self.seen: list[bytes] = []
        self.start()

    @property
    def port(self) -> int:
        return int(self.inward.getsockname()[1])

    def run(self) -> None:
        held: list[tuple[float, bytes]] = []
        while not self.ending.is_set():
            if select.select([self.inward], [], [], 0.02)[0]:
                packet = self.inward.recv(2048)
                self.seen.append(packet)
                if not self.cut.is_set() and not (self.drop_every and len(self.seen) % self.drop_every == 0):
                    held.append((time.monotonic() + self.delay_s, packet))
            while held and held[0][0] <= time.monotonic():
                self.inward.sendto(held.pop(0)[1], self.forward_to)

    def close(self) -> None:
        self.ending.set()
        self.join()
        self.inward.close()


class Pair:
    """A worker's guard that hears, a head's guard that tells, and a relay a rail between them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[Any] = []
        self.secret = folder / "secret"
        self.secret.write_bytes(SECRET)
        self.secret.chmod(0o600)
        self.worker_rank, self.worker = self._side("worker", *self._listens(), lease_timeout_ms=TIMEOUT_MS)
        self.relays = [self.keep(Relay(rail, (rail, port))) for rail, port in zip(RAILS, self.ports, strict=True)]

    def keep(self, thing: Any) -> Any:
        self.started.append(thing)
        return thing

    def _listens(self) -> list[str]:
        return [word for rail in RAILS for word in ("--lease-listen", f"{rail}:0")]

    def _side(self, name: str, *more: str, **given: object) -> tuple[Victim, GuardProcess]:
        folder = self.folder / name
        folder.mkdir()
        rank = self.keep(Victim())
        tree = ProcTree(folder / "proc", 30 * GIB)
        return rank, self.keep(GuardProcess(folder, rank, tree, *more, secret_file=self.secret, **given))

    @property
    def ports(self) -> list[int]:
        return [int(bound.rsplit(":", 1)[1]) for bound in self.worker.hello["lease_listen"]]

    def start_head(self, name: str = "head", **given: object) -> GuardProcess:
        sends = [
            word
            for rail, relay in zip(RAILS, self.relays, strict=True)
            for word in ("--lease-send", f"{rail}:{relay.port}", "--lease-from", rail)
        ]
        _, head = self._side(name, *sends, **given)
        return head

    def close(self) -> None:
        for thing in reversed(self.started):
            thing.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.close()


def renewed(pair: Pair) -> Any:
    """A listener of the worker's guard that has just seen the lease renewed."""
    listener = pair.keep(pair.worker.listen())
    listener.until(event="peer_heard")
    return listener


def test_silence_on_every_path_stops_the_rank_in_time(pair: Pair) -> None:
    pair.start_head()
    listener = renewed(pair)
    for relay in pair.relays:
        relay.cut.set()
    cut_at = time.monotonic()
    term = listener.until(event="term")
    assert term["cause"] == "peer"
    assert pair.worker_rank.wait() == -signal.SIGTERM
    assert TIMEOUT_MS / 1000 - 0.7 <= time.monotonic() - cut_at <= TIMEOUT_MS / 1000 + 1
    assert pair.worker.wait() == 13


def test_a_dead_head_guard_is_silence_too(pair: Pair) -> None:
    head = pair.start_head()
    renewed(pair)
    head.process.kill()
    assert pair.worker_rank.wait() == -signal.SIGTERM
    assert pair.worker.wait() == 13


def test_a_head_whose_rank_has_ended_holds_no_lease_up(pair: Pair) -> None:
    head = pair.start_head(linger_s=300)
    renewed(pair)
    os.kill(head.hello["pid"], signal.SIGKILL)
    assert pair.worker.wait() == 13


@pytest.mark.parametrize("trouble", ["one path cut", "a third lost", "slow", "head's guard restarted", "worker's guard stopped"])
def test_what_is_not_silence_stops_nothing(pair: Pair, trouble: str) -> None:
    head = pair.start_head()
    listener = renewed(pair)
    if trouble == "one path cut":
        pair.relays[0].cut.set()
    for relay in pair.relays:
        relay.drop_every = 3 if trouble == "a third lost" else 0
        relay.delay_s = 0.9 if trouble == "slow" else 0.0
    if trouble == "head's guard restarted":
        head.close()
        pair.start_head("head again")
    if trouble == "worker's guard stopped":
        pair.worker.process.send_signal(signal.SIGSTOP)
        time.sleep(TIMEOUT_MS / 1000 + 1.5)
        pair.worker.process.send_signal(signal.SIGCONT)
        assert listener.until(event="resumed")["gap_ms"] > TIMEOUT_MS
    end = time.monotonic() + 2 * TIMEOUT_MS / 1000 + 1
    while time.monotonic() < end:
        assert listener.next().get("event") is None
    assert pair.worker_rank.process.poll() is None


def test_each_path_is_told_apart(pair: Pair) -> None:
    pair.start_head()
    pair.relays[1].cut.set()
    listener = renewed(pair)
    for _ in range(300):
        line = listener.until(sample=...)
        open_ms, cut_ms = line["lease_path_age_ms"]
        if cut_ms is None or cut_ms > 1500:
            break
    assert cut_ms is None or cut_ms > 1500
    assert open_ms < 1500
    assert line["lease_age_ms"] < TIMEOUT_MS


def test_a_path_that_cannot_be_sent_on_is_told(tmp_path: Path) -> None:
    """The source address belongs to no interface: a rail that is down. The guard starts all the same."""
    pair = Pair(tmp_path)
    try:
        rank, proc = pair.keep(Victim()), ProcTree(tmp_path / "proc", 30 * GIB)
        sends = ["--lease-send", f"{RAILS[0]}:9", "--lease-send", f"{RAILS[0]}:9", "--lease-from", "198.51.100.2"]
        head = pair.keep(GuardProcess(tmp_path, rank, proc, *sends, secret_file=pair.secret))
        line = pair.keep(head.listen()).until(sample=...)
        assert len(line["lease_refused"]) == 2
        assert line["lease_refused"][1] > 0
        assert head.process.poll() is None
    finally:
        pair.close()


def packet(sent_ms: int, secret: bytes = SECRET, launch: bytes = b"launch-1", version: int = 1) -> bytes:
    """A lease packet made by its published form, beside the tool's own code."""
    body = struct.pack("<4sB3x16sQ", b"TFLS", version, hashlib.sha256(launch).digest()[:16], sent_ms)
    return body + hmac.digest(secret, body, "sha256")


def test_the_packets_on_the_wire_are_as_published(pair: Pair) -> None:
    pair.start_head()
    renewed(pair)
    [first, *_] = pair.relays[0].seen
    assert packet(struct.unpack("<Q", first[24:32])[0]) == first


@pytest.mark.parametrize("kind", ["replayed", "another secret", "another launch", "another version", "cut short", "noise"])
def test_what_is_forged_or_replayed_renews_nothing(pair: Pair, kind: str) -> None:
    newest = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
    forged = {
        "replayed": packet(newest),
        "another secret": packet(newest + 60_000, b"f" * 32),
        "another launch": packet(newest + 60_000, launch=b"launch-2"),
        "another version": packet(newest + 60_000, version=2),
        "cut short": packet(newest + 60_000)[:-1],
        "noise": os.urandom(64),
    }[kind]
    listener = pair.keep(pair.worker.listen())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(packet(newest), (RAILS[0], pair.ports[0]))
        listener.until(event="peer_heard")
        began = time.monotonic()
        while pair.worker_rank.process.poll() is None and time.monotonic() < began + 30:
            for rail, port in zip(RAILS, pair.ports, strict=True):
                sender.sendto(forged, (rail, port))
            time.sleep(0.1)
    assert time.monotonic() - began < TIMEOUT_MS / 1000 + 1
    assert pair.worker.wait() == 13


def test_a_late_peer_has_the_grace_to_come(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    try:
        time.sleep(TIMEOUT_MS / 1000 + 1)
        assert pair.worker_rank.process.poll() is None
        pair.start_head()
        renewed(pair)
    finally:
        pair.close()


@pytest.mark.parametrize(
    ("mode", "content", "said"),
    [(0o644, SECRET, "chmod 600"), (0o600, b"short", "16 to 128 bytes"), (0o600, b"x" * 200, "16 to 128 bytes")],
)
def test_a_bad_secret_is_refused_before_the_watch_begins(tmp_path: Path, mode: int, content: bytes, said: str) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(content)
    secret.chmod(mode)
    rank = Victim()
    answer = ask(
        "guard", "--pid", str(rank.pid), "--start-ticks", str(rank.start_ticks), "--hard-bytes", "1", "--soft-bytes", "1",
        "--socket", tmp_path / "s", "--launch", "l", "--lease-listen", "127.0.0.1:0", "--secret-file", secret,
    )  # fmt: skip
    rank.close()
    assert answer.status == 1
    assert said in answer.errors
    assert content.decode() not in answer.errors
