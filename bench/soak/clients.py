"""Clients that stream replies on the head for as long as a trial or a soak lasts; each request has an end, and every end is kept.

A client is a thread that has moved into the head's network name space (setns(2) counts for one thread), so that it reaches the
API on the head's own loopback as a program there would.
"""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CLONE_NEWNET = 0x40000000  # sched.h
BOUND_S = 60.0  # without a byte for so long a client counts as left hanging
REST_S = 0.2  # before the next try where nobody listens
KEPT = 2000


@dataclass(frozen=True, slots=True)
class Ended:
    """One request. ``how`` is finish, error, refused (nobody listened) or hung. Monotonic seconds."""

    began_s: float
    ended_s: float
    how: str
    detail: str = ""


def enter_network(namespace: Path) -> None:
    """Move this thread into a network name space."""
    fd = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(fd, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns {namespace}")
    finally:
        os.close(fd)


class Load:
    """``count`` clients of one API, until :meth:`close`."""

    def __init__(self, namespace: Path, port: int, count: int, seed: int) -> None:
        self._namespace, self._port = namespace, port
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._ended: deque[Ended] = deque(maxlen=KEPT)
        self._hung: list[Ended] = []  # beside them: none of these may be lost in a long soak
        self._running: dict[int, float] = {}
        self.counts: Counter[str] = Counter()
        chances = [random.Random(f"{seed}:{number}") for number in range(count)]  # noqa: S311 - spreads load, guards nothing
        self._threads = [
            threading.Thread(target=self._client, args=(number, chance), daemon=True) for number, chance in enumerate(chances)
        ]
        for thread in self._threads:
            thread.start()

    def ended_since(self, at_s: float) -> list[Ended]:
        """Every request that ended after this moment."""
        with self._lock:
            return [one for one in self._ended if one.ended_s >= at_s]

    def finished_since(self, at_s: float) -> Ended | None:
        """The first request that began after this moment and was answered whole."""
        return next((one for one in self.ended_since(at_s) if one.began_s >= at_s and one.how == "finish"), None)

    def hanging(self, since_s: float) -> list[str]:
        """Requests that hung, or hang now, since this moment; each as a line."""
        now_s = time.monotonic()
        with self._lock:
            lines = [
                f"a client hung for {one.ended_s - one.began_s:.0f} s, from {one.began_s - since_s:.1f} s on"
                for one in self._hung
                if one.ended_s >= since_s
            ]
            return lines + [f"a client waits since {now_s - began_s:.0f} s" for began_s in self._overdue(now_s)]

    def _overdue(self, now_s: float) -> list[float]:
        return [began_s for began_s in self._running.values() if now_s - began_s > 2 * BOUND_S]

    def close(self) -> None:
        """No more requests; those under way end first."""
        self._over.set()
        for thread in self._threads:
            thread.join(2 * BOUND_S)

    def _client(self, number: int, chance: random.Random) -> None:
        enter_network(self._namespace)
        while not self._over.is_set():
            began_s = time.monotonic()
            with self._lock:
                self._running[number] = began_s
            how, detail = _outcome(lambda: _stream(self._port, chance))
            ended = Ended(began_s, time.monotonic(), how, detail)
            with self._lock:
                del self._running[number]
                self._ended.append(ended)
                self._hung += [ended] if how == "hung" else []
                self.counts[how] += 1
            if how != "finish":
                self._over.wait(REST_S)


def _outcome(ask: Callable[[], str]) -> tuple[str, str]:
    try:
        return ask(), ""
    except TimeoutError:
        return "hung", f"no byte for {BOUND_S:g} s"
    except ConnectionRefusedError:
        return "refused", ""
    except (OSError, http.client.HTTPException, ValueError) as error:
        return "error", f"{type(error).__name__}: {error}"


def _stream(port: int, chance: random.Random) -> str:
    """One streamed reply: finish where its last line came, error where the engine said so or broke off."""
    body = {
        "model": "twinfold-demo",
        "messages": [{"role": "user", "content": f"Tell me about memory and links, part {chance.randrange(1000)}."}],
        "stream": True,
        "max_tokens": chance.randrange(8, 64),
        "ignore_eos": True,
        "temperature": 1.0,
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=BOUND_S)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        if reply.status != 200:
            reply.read()
            return "error"
        return "finish" if any(line.strip() == b"data: [DONE]" for line in reply) else "error"
    finally:
        connection.close()
