"""What launches take of each node's memory: measured while one runs, and kept below ``memory/`` of the state folder.

One file a bundle, mode 0600 in a folder of mode 0700, replaced as a whole; the oldest bundles' files go.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median_low

from supervisor.memory.measured import Took, from_json, kept
from supervisor.runners.records import write_json

FOLDER = "memory"
BUNDLES = 16
SAMPLES = 600  # a minute of them where each is told
FULL_SPAN_S = 60.0
LOADED_SPAN_S = 1.0
APART_S = 0.45  # a guard tells calm samples every half second and the others as they are: none may count for more
FILL_STEP = 0.01  # contexts that are fuller by less are as full as they were


class Takings:
    """The files. One supervisor writes them; anybody reads whole ones."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / FOLDER

    def of(self, bundle_entry: str) -> tuple[Took, ...]:
        """What is known of a bundle, oldest first; a file that cannot be read says nothing."""
        try:
            return from_json(json.loads(self._path(bundle_entry).read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return ()

    def keep(self, bundle_entry: str, new: Took) -> None:
        """One launch's figures on one node, in place of its earlier ones."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write(bundle_entry, kept(self.of(bundle_entry), new))
        for path in sorted(self._folder.glob("*.json"), key=_age)[:-BUNDLES]:
            path.unlink(missing_ok=True)

    def settle(self) -> None:
        """A supervisor begins: what earlier ones have measured counts for its launches."""
        for path in self._folder.glob("*.json"):
            known = self.of(path.stem)
            if any(not one.settled for one in known):
                self._write(path.stem, tuple(dataclasses.replace(one, settled=True) for one in known))

    def _write(self, bundle_entry: str, known: tuple[Took, ...]) -> None:
        write_json(self._path(bundle_entry), [dataclasses.asdict(one) for one in known])

    def _path(self, bundle_entry: str) -> Path:
        return self._folder / f"{bundle_entry}.json"


class Meter:
    """One launch in hand. ``before`` is what each node had available before it. Thread-safe."""

    def __init__(self, before: Mapping[str, int]) -> None:
        self._before = dict(before)
        self._lock = threading.Lock()
        self._recent: dict[str, deque[tuple[float, int]]] = {node: deque(maxlen=SAMPLES) for node in before}
        self._lowest: dict[str, int] = {}
        self._loaded: dict[str, int] = {}
        self._filled = self._filled_now = 0.0
        self._full_s, self._ended_s = float("-inf"), float("inf")

    def sample(self, node: str, available_bytes: int, at_s: float) -> None:
        """A node had so much available then. It counts as full where the contexts are as full as they have been.

        Samples come some at a time: those from before the contexts were as full, or after the end, are told by their time.
        """
        with self._lock:
            if at_s > self._ended_s or node not in self._recent:
                return
            self._lowest[node] = min(available_bytes, self._lowest.get(node, available_bytes))
            if at_s >= self._full_s and self._filled_now >= self._filled - FILL_STEP:
                self._recent[node].append((at_s, available_bytes))

    def fill(self, ratio: float | None, at_s: float) -> None:
        """So much of the contexts' memory is in use, 0 to 1; None where the engine does not say. Until it serves it loads."""
        if ratio is None:
            return
        with self._lock:
            if not self._loaded:
                return
            self._filled_now = ratio
            if ratio >= self._filled + FILL_STEP:
                self._filled, self._full_s = min(ratio, 1.0), at_s
                for recent in self._recent.values():
                    while len(recent) > 1:  # the newest stays: there is always one
                        recent.popleft()

    def loaded(self) -> None:
        """The gang serves from now on."""
        with self._lock:
            for node, recent in self._recent.items():
                if recent:
                    self._loaded[node] = _middle(recent, LOADED_SPAN_S)
                    recent.clear()

    def end(self, at_s: float) -> None:
        """The gang serves no longer: what is sampled from now on is memory on its way back."""
        with self._lock:
            self._ended_s = min(at_s, self._ended_s)

    def took(self, node: str) -> tuple[int, int, int, float] | None:
        """(when loaded, at the fullest, at the most) in bytes and the share that was filled; None before it served."""
        with self._lock:
            if node not in self._loaded:
                return None
            before, loaded = self._before[node], self._loaded[node]
            full = _middle(self._recent[node], FULL_SPAN_S) if self._recent[node] else loaded
            return before - loaded, before - full, before - self._lowest[node], self._filled

    @property
    def nodes(self) -> tuple[str, ...]:
        """Those measured."""
        return tuple(self._before)


def _middle(samples: Sequence[tuple[float, int]], span_s: float) -> int:
    """The middle one of the newest samples (time, bytes; oldest first, at least one), which are taken evenly over the time."""
    newest_s, value = samples[-1]
    at_s, values = newest_s, [value]
    for earlier_s, value in reversed(samples):
        if newest_s - earlier_s > span_s:
            break
        if at_s - earlier_s >= APART_S:
            at_s = earlier_s
            values.append(value)
    return median_low(values)


def _age(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0
