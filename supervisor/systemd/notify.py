"""Talks to systemd by sd_notify(3)'s protocol: lines of ``NAME=value`` in one datagram to the socket in ``NOTIFY_SOCKET``.

Written out here because the whole protocol is one ``sendto``; without the variable every call does nothing.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping

PINGS_PER_LIMIT = 3  # sd_watchdog_enabled(3) advises half the limit; a third leaves room for one lost turn


def notify(environ: Mapping[str, str], *lines: str) -> None:
    """Send the lines, where systemd asked to be told; nobody is waited for."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
        to.setblocking(False)
        to.sendto("\n".join(lines).encode(), address)


def under_systemd(environ: Mapping[str, str]) -> bool:
    """Whether systemd started this process or reads its output, told by its own variables (systemd.exec(5))."""
    return bool(environ.get("NOTIFY_SOCKET") or environ.get("JOURNAL_STREAM") or environ.get("INVOCATION_ID"))


def watchdog_s(environ: Mapping[str, str], pid: int) -> float | None:
    """Seconds after which systemd ends a service that has not pinged; None where it does not watch this process."""
    raw, whose = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not raw.isdigit() or int(raw) == 0 or (whose and whose != str(pid)):
        return None
    return int(raw) / 1e6


class Watchdog:
    """Pings systemd while the supervisor's loop turns; a loop that has stood still for the limit is left to systemd.

    ``turned_s`` gives the monotonic time of the loop's last turn, which comes at least every few seconds.
    """

    def __init__(
        self, environ: Mapping[str, str], turned_s: Callable[[], float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._environ, self._turned_s, self._clock = environ, turned_s, clock
        self._limit_s = watchdog_s(environ, os.getpid())
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin; nothing where systemd does not watch."""
        if self._limit_s is not None:
            self._thread.start()

    def stop(self) -> None:
        """End the pings: systemd has been told that the service stops, or is about to see it."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        assert self._limit_s is not None
        while not self._stopped.wait(self._limit_s / PINGS_PER_LIMIT):
            if self._clock() - self._turned_s() < self._limit_s:
                notify(self._environ, "WATCHDOG=1")
