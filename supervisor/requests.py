"""What the control socket asks of a running supervisor: each request gives its answers as they come."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from build.errors import Refused, TwinfoldError
from build.settings import Sources
from supervisor.configuration import Configuration, changes, configure, overlaid
from supervisor.control import Answers
from supervisor.gang.board import Board
from supervisor.gang.launch import blueprint
from supervisor.gang.logs import lines
from supervisor.machine import Event, Phase, State
from supervisor.machine.types import Finish, HandoverAsked, StopAsked
from supervisor.reload.plan import same_place
from supervisor.runners.protocol import RankHandle, Runner

FOLLOW_S = 0.1
LOOK_S = 0.05


class Asked(Protocol):
    """The supervisor, as far as requests go. ``finished`` is set once it is done, and ``finish`` then says how."""

    finished: threading.Event
    finish: Finish | None

    @property
    def sources(self) -> Sources:
        """What settings are read from."""

    @property
    def configuration(self) -> Configuration:
        """What counts now."""

    @property
    def handles(self) -> Sequence[RankHandle]:
        """The current launch's ranks."""

    def post(self, event: Event) -> None:
        """Tell the machine."""

    def make_key(self, one: Configuration) -> None:
        """Make the API's key where one is to be had and is not there yet."""

    def relaunch_from(self, sources: Sources, one: Configuration) -> None:
        """Replace the gang by one of this configuration, and read settings from these sources from now on."""


class Requests:
    """The handlers by their name. ``status`` gives what is shown."""

    def __init__(self, asked: Asked, board: Board, runner: Runner, status: Callable[[], Mapping[str, Any]]) -> None:
        self._asked, self._board, self._runner, self._status = asked, board, runner, status

    @property
    def handlers(self) -> dict[str, Callable[[Mapping[str, Any]], Answers]]:
        """For :class:`supervisor.control.ControlServer`."""
        return {
            "status": lambda _request: iter([{"status": self._status(), "exit": 0}]),
            "stop": self._stop,
            "handover": self._handover,
            "restart": self._restart,
            "logs": self._logs,
        }

    def _stop(self, request: Mapping[str, Any]) -> Answers:
        self._asked.post(StopAsked(time.monotonic(), force=bool(request.get("force"))))
        yield from self._phases(lambda _state: False)
        finish = self._asked.finish or Finish(0)
        # A launch that failed on its own is no failure of the stop; a rank that would not end is.
        stuck = finish.exit_code if self._board.state.alive else 0
        yield {"exit": stuck, "error": finish.why} if stuck else {"exit": 0}

    def _handover(self, _request: Mapping[str, Any]) -> Answers:
        """Leave; ranks, guards and the launch's root in the store stay as they are."""
        while not self._asked.finished.is_set():
            state = self._board.state
            if not (state.phase.whole or state.phase is Phase.HANDED_OVER):
                raise Refused(f"no gang serves that could be handed over ({state.phase.value}): wait until one does")
            self._asked.post(HandoverAsked(time.monotonic()))
            self._asked.finished.wait(0.2)
        if self._board.state.phase is not Phase.HANDED_OVER:
            raise Refused("the supervisor was ending already: nothing was handed over")
        serve = self._asked.configuration.serve
        orphan_s = serve.orphan_s if serve.runner == "process" else None
        yield {"exit": 0, "ranks": len(self._asked.handles), "orphan_s": orphan_s}

    def _restart(self, request: Mapping[str, Any]) -> Answers:
        """Take the caller's settings over ours, show what changes, replace the gang, wait until it serves."""
        sources = overlaid(self._asked.sources, request.get("environ", {}), request.get("flags", {}))
        now, wanted = self._asked.configuration, configure(sources)
        same_place(now, wanted)
        self._asked.make_key(wanted)
        blueprint(wanted).commands(1)  # refuses what the engine cannot be given, while the old gang serves on
        yield {"plan": [str(change) for change in changes(now, wanted)]}
        before = self._board.state.launch
        self._asked.relaunch_from(sources, wanted)
        yield from self._phases(lambda state: state.phase is Phase.SERVING and state.launch > before)
        if finish := self._asked.finish:
            why = finish.why or "the supervisor was stopped, or handed over, before the new launch served"
            yield {"exit": finish.exit_code or TwinfoldError.exit_code, "error": why}
        else:
            serving = self._board.serving
            yield {"exit": 0, "url": serving.url if serving else ""}

    def _logs(self, request: Mapping[str, Any]) -> Answers:
        wanted = request.get("rank")
        found = lines(
            self._runner,
            lambda: [handle for handle in self._asked.handles if wanted is None or handle.rank == wanted],
            follow=bool(request.get("follow")),
            wait=lambda: not self._asked.finished.wait(FOLLOW_S),
        )
        for rank, line in found:
            yield {"rank": rank, "line": line}
        yield {"exit": 0}

    def _phases(self, reached: Callable[[State], bool]) -> Answers:
        """Each phase as the gang enters it, until it is where it should be, or the supervisor is done."""
        shown = None
        while not self._asked.finished.wait(LOOK_S):
            state = self._board.state
            if (state.launch, state.phase) != shown:
                shown = (state.launch, state.phase)
                yield {"phase": state.phase.value, "launch": state.launch}
            if reached(state):
                return
