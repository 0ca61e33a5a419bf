"""``supervisor run``: everything put together for one state folder, until it is told to end."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from build.errors import Refused
from build.settings import Sources
from metrics.exporter import CannotListen, Exporter
from supervisor import service
from supervisor.api_key import make_own_key
from supervisor.configuration import Configuration, configure
from supervisor.control import ControlServer
from supervisor.ends import error_of
from supervisor.fleet.fleet import Fleet, fleet_for
from supervisor.gang import identity, leftovers, ports
from supervisor.gang.board import Board
from supervisor.gang.folder import FolderWatch
from supervisor.gang.gang import Gang
from supervisor.gang.launch import blueprint
from supervisor.gang.loop import Loop
from supervisor.gang.rungs import LadderWatch, Rungs
from supervisor.gang.saving import keeping
from supervisor.gang.takings import Takings
from supervisor.gang.watchers import stop_all
from supervisor.guard.choice import forget_guards, guards_for, hosts_for, told_by
from supervisor.machine import Event, Phase, Policy, State
from supervisor.machine.types import Begin, Finish, PolicyChanged, RestartAsked, StopAsked
from supervisor.nodes_watched import NodeWatches
from supervisor.reload.reloads import Reloads
from supervisor.reload.watch import ReloadWatch
from supervisor.requests import Requests
from supervisor.runners.protocol import RankHandle
from supervisor.status.publisher import Publisher
from supervisor.systemd.notify import Watchdog, notify
from supervisor.voice import TextVoice


class Supervisor:
    """One run. ``sources`` are kept for restarts with other settings."""

    def __init__(self, sources: Sources, fleet: Fleet, voice: TextVoice, *, once: bool) -> None:
        self._sources, self._runner, self._voice = sources, fleet.runner, voice
        self._configuration = configure(sources)
        self.make_key(self._configuration)
        self._owner = identity.own(self._configuration.state_dir)
        self._once = once
        self._state = State(policy(self._configuration, blueprint(self._configuration).bundle.world_size, once=once))
        self._board = Board(self._state, os.getpid())
        self._rungs = Rungs(self._configuration.run_dir)
        self._guard_hosts = hosts_for(self._configuration, fleet, lambda: blueprint(self._configuration))
        self._guards = guards_for(
            self._configuration,
            self._guard_hosts,
            lambda: blueprint(self._configuration),
            post=self.post,
            say=self._voice.say,
            show=self._board.set_guard,
        )
        self._gang = Gang(
            fleet.runner,
            self._board,
            self.post,
            voice=voice,
            configure=lambda: self._configuration,
            nodes=fleet,
            guards=self._guards,
            rungs=self._rungs,
            owner=self._owner,
            notify=lambda line: notify(sources.environ, line),
            forget_guards=lambda: forget_guards(self._guard_hosts),
        )
        self._loop = Loop(self._state, self._gang, beat=self._board.beat)
        self.finished = threading.Event()
        self.finish: Finish | None = None
        self._interrupts = 0
        self.changing = threading.Lock()
        lock = Path(sources.file.parent if sources.file else ".") / "lockfiles" / f"{self._configuration.places.target}.lock.toml"
        self._reloads = Reloads(self, self._board, self._voice.say, lock)
        self._watched = [*([sources.file] if sources.file else []), lock, current_link(self._configuration)]

    def run(self) -> Finish:
        """Serve until the end; every resource taken is given back, whatever the end is."""
        one = self._configuration
        for name in one.ignored:
            self._voice.say(
                f"{name} in the environment is ignored: other software sets it too; TWINFOLD_{name} counts", "warning"
            )
        with contextlib.ExitStack() as stack:
            stack.enter_context(service.only_one(one.run_dir))
            self._settle(one)
            exporter = _exporter(one)
            stack.callback(exporter.close)
            begin = self._take_over()
            stack.callback(self._gang.close)
            publisher = Publisher(self._board, exporter, one.state_dir)
            self._start_watches(stack, publisher)
            control = ControlServer(one.run_dir, Requests(self, self._board, self._runner, publisher.status).handlers)
            control.start()
            stack.callback(control.close)
            stack.enter_context(_signals(self._signalled))
            self.post(begin)
            watchdog = Watchdog(self._sources.environ, lambda: self._board.turned_s)
            watchdog.start()
            stack.callback(watchdog.stop)
            self.finish = self._loop.run()
            self.finished.set()
            if self._board.state.phase is not Phase.HANDED_OVER:
                self._rungs.reset()  # an orderly end: whoever starts anew starts at the top
                if self.finish.exit_code == 0:
                    self._voice.say("stopped: no rank is left")
            notify(self._sources.environ, "STOPPING=1")
        return self.finish

    def _start_watches(self, stack: contextlib.ExitStack, publisher: Publisher) -> None:
        """All that look at something by themselves. They end together, before the gang is let go of."""
        one = self._configuration
        watches = [
            publisher,
            *NodeWatches(lambda: self._configuration, self._gang, self._board, self._guards, self.post).over(stack),
            FolderWatch(one.state_dir, self._owner, self._voice.say, self._board.set_folder_lost),
            LadderWatch(self._rungs, self._board, self.post, lambda: self._configuration.memory.ladder_up_s),
            ReloadWatch(self._watched, self._reloads.consider, self._served),
        ]
        stack.callback(stop_all, watches)
        for watch in watches:
            watch.start()

    def _settle(self, one: Configuration) -> None:
        """What earlier supervisors measured of memory counts from now on."""
        try:
            Takings(one.state_dir).settle()
        except OSError as error:
            self._voice.say(f"what earlier launches took of memory does not count: {error}", "warning")

    def post(self, event: Event) -> None:
        """Tell the machine."""
        self._loop.post(event)

    def _take_over(self) -> Begin:
        """Adopt or remove what an earlier supervisor left."""
        one = blueprint(self._configuration)
        found = self._runner.leftovers()
        for line in leftovers.beside(found, self._owner, self._owner.folder):
            self._voice.say(line, "warning")
        decision = leftovers.decide(leftovers.ours(found, self._owner), one.spec_hash)
        for left in (gone for gone in decision.remove if gone.alive and gone.changed):
            self._voice.say(f"{left.handle} is not as it was launched: {left.changed}: it is not taken over", "warning")
        if decision.remove:
            named = ", ".join(str(left.handle) for left in decision.remove)
            self._voice.say(f"removing what an earlier supervisor left: {named}", "warning")
            told = told_by(self._guard_hosts)
            leftovers.remove(self._runner, decision.remove, keeping(self._configuration), "left over", told)
        forget_guards(self._guard_hosts, {left.handle.launch_id for left in decision.adopt})
        kept = decision.adopt[0].handle.launch_id if decision.adopt else ""
        service.release_other_roots(self._configuration.state_dir, kept)
        if not decision.adopt:
            return Begin(time.monotonic())
        self._gang.adopt(one, tuple(left.handle for left in decision.adopt), decision.adopt[0].context_tokens)
        return Begin(time.monotonic(), adopt=True)

    def _served(self) -> str:
        """The bundle of the launch in hand."""
        serving = self._board.serving
        return serving.bundle_entry if serving else ""

    def _signalled(self, number: int, _frame: FrameType | None) -> None:
        """The first SIGINT or SIGTERM ends in order, a second SIGINT by force."""
        self._interrupts += number == signal.SIGINT
        self.post(StopAsked(time.monotonic(), force=self._interrupts > 1))

    @property
    def sources(self) -> Sources:
        """What settings are read from: those of the start, and what restarts laid over them."""
        return self._sources

    @property
    def configuration(self) -> Configuration:
        """What counts now, and at a launch that comes by itself."""
        return self._configuration

    def take(self, one: Configuration) -> None:
        """Let settings count that can at once. The number of ranks is the machine's own."""
        self._configuration = one
        self.post(PolicyChanged(time.monotonic(), policy(one, self._state.policy.world_size, once=self._once)))
        self._gang.retune()

    @property
    def handles(self) -> tuple[RankHandle, ...]:
        """The current launch's ranks, started so far."""
        return self._gang.handles

    def relaunch(self, one: Configuration) -> None:
        """Replace the gang; all settings count."""
        self.make_key(one)
        self.take(one)
        self._rungs.reset()
        self.post(RestartAsked(time.monotonic()))

    def relaunch_from(self, sources: Sources, one: Configuration) -> None:
        """The same, with settings read from these sources from now on."""
        with self.changing:
            self._sources = sources
            self.relaunch(one)
        self._reloads.consider()

    def make_key(self, one: Configuration) -> None:
        """Make the API's key where one is to be had and is not there yet, and say where."""
        made = make_own_key(one.serve, one.state_dir)
        if made:
            self._voice.say(f"host = {one.serve.host} opens the API to others: clients need the key that {made} now holds")


def current_link(one: Configuration) -> Path:
    """Names the generation that a launch takes."""
    return one.state_dir / "generations" / one.places.target / "current"


def policy(one: Configuration, world_size: int, *, once: bool) -> Policy:
    """The machine's policy out of the settings."""
    return Policy(
        world_size=world_size,
        wait_timeout_s=float(one.serve.wait_timeout),
        stop_timeout_s=float(one.serve.stop_timeout),
        restart_limit=one.restarts.restart_limit,
        pause_first_s=one.restarts.restart_pause_s,
        pause_max_s=one.restarts.restart_pause_max_s,
        stable_s=one.restarts.restart_reset_s,
        once=once,
        seed=os.getpid(),
    )


def serve(sources: Sources, voice: TextVoice, *, once: bool) -> None:
    """Run until the end. Ends that are no success are raised as the error of their exit code."""
    fleet = fleet_for(configure(sources), voice.say)
    try:
        finish = Supervisor(sources, fleet, voice, once=once).run()
    finally:
        fleet.close()
    if finish.exit_code:
        raise error_of(finish.exit_code, finish.why)


def _exporter(one: Configuration) -> Exporter:
    exporter = Exporter(one.metrics.metrics_host, one.metrics.metrics_port)
    try:
        exporter.start()
    except CannotListen as error:
        port = one.metrics.metrics_port
        raise Refused(f"metrics_port {port}: {error} (it belongs to {ports.owner(port)})") from None
    return exporter


@contextlib.contextmanager
def _signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
