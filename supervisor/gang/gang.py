"""Carries the machine's effects out: gates, starts, signals, smoke tests, saved logs. Every answer is an event.

Whatever may take time runs in a thread of its own, and whatever goes wrong there becomes the event that says so: a fault in
a worker must never leave the machine waiting.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Protocol

from build.errors import Refused, TwinfoldError
from supervisor import service
from supervisor.configuration import Configuration
from supervisor.engine.line import Endpoint, ProbeFailed
from supervisor.engine.probes import read_api_key, smoke
from supervisor.fleet.site import Nodes
from supervisor.gang import gate, logs, measuring
from supervisor.gang.board import Board
from supervisor.gang.engine_watch import EngineWatch, patience
from supervisor.gang.evictions import Evictions
from supervisor.gang.gating import Gating
from supervisor.gang.launch import Blueprint, Plan, blueprint, fresh_s
from supervisor.gang.rank_watch import RankWatch
from supervisor.gang.rungs import Rungs
from supervisor.gang.saving import ORDERLY, Saver, Unsaved, keeping
from supervisor.gang.takings import Meter
from supervisor.gang.watchers import stop_all
from supervisor.guard.guards import Guards, NoGuards
from supervisor.guard.spec import Limits
from supervisor.machine import Effect, Event, Phase, State
from supervisor.machine import types as machine
from supervisor.memory.ladder import steps_down
from supervisor.runners.protocol import Owner, RankHandle, Runner, StartRefused, wait_until_ended
from supervisor.settings import Probes
from supervisor.status.view import LaunchEnd

UNGUARDED_S = 5.0  # for the end of a rank whose guard could not be started


class Voice(Protocol):
    """Where lines for people go."""

    def say(self, text: str, level: str = "info") -> None:
        """One line of the log."""

    def ready(self, served_name: str, url: str) -> None:
        """The gang serves."""


@dataclass(slots=True)
class Launch:
    """One launch in hand. ``ranks`` exists from the gate on; once it is ``over`` a gate that waits ends, and no watch begins."""

    number: int
    over: threading.Event = field(default_factory=threading.Event)
    launch_id: str = ""
    plan: Plan | None = None
    meter: Meter | None = None
    measure: measuring.MeasureWatch | None = None
    ranks: RankWatch | None = None
    engine: EngineWatch | None = None
    adopted: bool = False


def new_launch_id(now: datetime) -> str:
    """An id that sorts by time and that no other launch has."""
    return f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"


class Gang:
    """The effects of one supervisor's launches. ``configure`` gives the settings that the next launch takes.

    ``owner`` is written on its ranks, and only ranks with it, or with none, are its own to remove.
    """

    def __init__(
        self,
        runner: Runner,
        board: Board,
        post: Callable[[Event], None],
        *,
        voice: Voice,
        configure: Callable[[], Configuration],
        nodes: Nodes,
        guards: Guards | None = None,
        rungs: Rungs | None = None,
        owner: Owner | None = None,
        notify: Callable[[str], None] = lambda _line: None,
        forget_guards: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runner, self._board, self._post, self._voice = runner, board, post, voice
        self._configure, self._nodes, self._notify, self._clock = configure, nodes, notify, clock
        self._guards: Guards = guards or NoGuards()
        self._owner = owner
        self._evictions = Evictions(rungs, board, voice.say, self._guards.short_of_memory, clock)
        self._saver = Saver(runner, self._guards, self._keeping)
        self._gating = Gating(
            runner, nodes, self._saver, configure=configure, owner=owner, forget_guards=forget_guards, say=voice.say
        )
        self._unsent: dict[int, str] = {}
        self._launch = Launch(0)
        self._holding = threading.Lock()

    def changed(self, before: State, after: State) -> None:
        """Show the new state; a launch that is over in the middle of its gate must not go on."""
        self._board.set_state(after)
        if after.phase is not before.phase:
            self._voice.say(f"launch {after.launch}: {after.phase.value}" if after.launch else after.phase.value, "debug")
            self._notify(f"STATUS={_status_text(after)}")
        if before.phase is Phase.SERVING and after.phase is not Phase.SERVING and self._launch.meter:
            self._launch.meter.end(self._clock())
        if before.phase is Phase.GATING and (after.launch != before.launch or after.phase is Phase.STOPPED):
            self._launch.over.set()

    def carry_out(self, effect: Effect) -> None:
        """Begin an effect."""
        match effect:
            case machine.Gate(number):
                self._launch = Launch(number)
                self._work(self._gate, self._launch)
            case machine.StartRank(_, rank):
                self._take(self._launch)
                self._work(self._start, self._launch, rank)
            case machine.TerminateRank(_, rank):
                self._signal(rank, self._runner.terminate)
            case machine.KillRank(_, rank):
                self._signal(rank, self._runner.kill)
            case machine.RunSmoke():
                self._work(self._smoke, self._launch)
            case machine.Announce():
                self._announce(self._launch)
            case machine.Collect(_, reason, detail):
                self._work(self._collect, self._launch, reason, detail)
            case machine.Note(text, level):
                self._voice.say(text, level)

    def adopt(self, one: Blueprint, handles: tuple[RankHandle, ...], context_tokens: int) -> None:
        """Take over ranks that run: the machine begins with them as launch 1."""
        one = self._evictions.bounded(one)
        self._launch = Launch(1, launch_id=handles[0].launch_id, plan=one.running_at(context_tokens), adopted=True)
        self._take(self._launch)
        self._hold(self._launch)
        assert self._launch.ranks is not None
        for handle in handles:
            self._guards.adopt(handle)
            self._launch.ranks.add(handle)

    @property
    def plan(self) -> Plan | None:
        """What the current launch was planned with; None before its gate."""
        return self._launch.plan

    @property
    def handles(self) -> tuple[RankHandle, ...]:
        """The current launch's ranks, started so far."""
        return self._launch.ranks.handles if self._launch.ranks else ()

    def close(self) -> None:
        """Stop watching. Ranks are left as they are."""
        self._launch.over.set()
        stop_all([self._launch.engine, self._launch.measure])
        self._measured(self._launch)
        stop_all([self._launch.ranks])
        self._guards.close()

    def _gate(self, launch: Launch) -> None:
        try:
            plan = self._gating.pass_through(
                lambda: self._evictions.bounded(blueprint(self._configure())),
                self._board.state.policy.world_size,
                launch.over,
            )
        except gate.Cancelled:
            return
        except TwinfoldError as error:
            self._post(machine.GateRefused(self._clock(), launch.number, str(error), error.exit_code))
            return
        except OSError as error:  # a full disk, most likely
            why = f"a launch cannot be prepared: {error}: make room, or mend the folder's rights"
            self._post(machine.GateRefused(self._clock(), launch.number, why, Refused.exit_code))
            return
        launch.plan, launch.launch_id, launch.meter = plan, new_launch_id(datetime.now(UTC)), Meter(dict(plan.before))
        self._evictions.tell_memory_is_back()
        one = plan.blueprint
        self._voice.say(
            f"launch {launch.number} ({launch.launch_id}): generation {one.generation} of {one.configuration.places.target},"
            f" {one.bundle.world_size} ranks, context {plan.context_tokens}"
        )
        self._post(machine.GatePassed(self._clock(), launch.number))

    def _take(self, launch: Launch) -> None:
        """With its first rank a launch gets a watch on its ranks."""
        plan = launch.plan
        assert plan is not None
        if launch.ranks:
            return
        configuration, one = plan.blueprint.configuration, plan.blueprint
        self._board.set_launch(launch.launch_id, plan.serving, launch.meter)
        self._board.set_rung(steps_down(one.ladder))
        asked = (plan.context_tokens, configuration.serve.drafts)
        self._guards.begin(launch.number, launch.launch_id, limits(configuration))
        launch.ranks = RankWatch(
            self._runner,
            self._post,
            launch.number,
            world_size=one.bundle.world_size,
            asked=asked,
            guarded=self._guards.reason,
        )
        launch.ranks.start()

    def _hold(self, launch: Launch) -> None:
        """The root in the store. Each rank's start takes it anew: a disk that is full fails that start, and nothing else."""
        assert launch.plan is not None
        one = launch.plan.blueprint
        with self._holding:
            service.hold_root(one.configuration.state_dir, launch.launch_id, one.bundle_entry)

    def _start(self, launch: Launch, rank: int) -> None:
        assert launch.plan is not None
        assert launch.ranks is not None
        self._hold(launch)
        try:
            site = self._nodes.site(launch.plan.blueprint.nodes[rank])
            spec = launch.plan.rank_spec(launch.launch_id, rank, site)
            handle = self._runner.start(replace(spec, owner=self._owner))
            self._guarded_or_ended(handle)
        except TwinfoldError as error:
            hopeless = isinstance(error, StartRefused)
            self._post(machine.StartFailed(self._clock(), launch.number, rank, str(error), hopeless))
            return
        launch.ranks.started(handle)

    def _measured(self, launch: Launch) -> None:
        """Keep what the launch has taken so far. What was there before a launch that was taken over is not known."""
        if launch.plan and launch.meter and launch.ranks:
            try:
                measuring.keep(launch.plan, launch.launch_id, launch.meter, launch.ranks.said_bytes)
            except OSError as error:
                self._voice.say(f"what the launch takes of memory could not be kept: {error}", "warning")

    def _guarded_or_ended(self, handle: RankHandle) -> None:
        """No rank runs without a guard: where there can be none, the rank is ended and forgotten."""
        try:
            self._guards.guard(handle)
        except TwinfoldError:
            self._runner.kill(handle)
            if wait_until_ended(self._runner, [handle], UNGUARDED_S):
                self._runner.remove(handle)
            raise

    def _signal(self, rank: int, send: Callable[[RankHandle], None]) -> None:
        handle = self._launch.ranks.handle(rank) if self._launch.ranks else None
        if handle:
            self._work(self._send, handle, send)

    def _send(self, handle: RankHandle, send: Callable[[RankHandle], None]) -> None:
        """What keeps a signal from a rank is said once while it lasts: the machine sends it again and again."""
        try:
            send(handle)
        except TwinfoldError as error:
            if str(error) != self._unsent.get(handle.rank):
                self._voice.say(str(error), "warning")
            self._unsent[handle.rank] = str(error)
        else:
            self._unsent.pop(handle.rank, None)

    def _smoke(self, launch: Launch) -> None:
        assert launch.plan is not None
        one, began_s = launch.plan.blueprint, self._clock()
        probes = self._configure().probes
        try:
            endpoint = Endpoint(one.url, read_api_key(one.configuration.serve.api_key_file))
            self._watch_engine(launch, endpoint, probes)
            result = smoke(
                endpoint, one.served_name, one.bundle.smoke, asks=probes.smoke_asks, deadline_s=probes.smoke_deadline_s
            )
            passed, why = result.passed, result.verdict.why
        except (ProbeFailed, TwinfoldError) as error:
            passed, why = False, str(error)
        self._board.add_probe("smoke", passed, self._clock() - began_s)
        self._post(machine.Smoke(self._clock(), launch.number, passed, why))

    def _watch_engine(self, launch: Launch, endpoint: Endpoint, probes: Probes) -> None:
        """Clients may ask as soon as rank 0 answers, so a gang that hangs is found from then on."""
        assert launch.plan is not None
        launch.engine = EngineWatch(
            endpoint,
            launch.plan.blueprint.served_name,
            launch.number,
            patience=patience(launch.plan, probes),
            warm=launch.adopted,
            period_s=probes.probe_period_s,
            deadline_s=probes.probe_deadline_s,
            board=self._board,
            post=self._post,
        )
        launch.engine.start()
        if launch.over.is_set():  # it has ended meanwhile, and what watched it was stopped
            launch.engine.stop()

    def _announce(self, launch: Launch) -> None:
        assert launch.plan is not None
        one = launch.plan.blueprint
        self._board.set_progress()  # the smoke test has just passed
        if launch.meter:
            launch.meter.loaded()
        launch.measure = measuring.MeasureWatch(lambda: self._measured(launch), launch.number)
        launch.measure.start()
        self._voice.ready(one.served_name, one.url)
        self._notify("READY=1")

    def retune(self) -> None:
        """Settings that count at once have changed: probes go on by them."""
        probes, launch = self._configure().probes, self._launch
        if launch.plan and launch.engine:
            launch.engine.retune(
                patience(launch.plan, probes), period_s=probes.probe_period_s, deadline_s=probes.probe_deadline_s
            )
        self._board.set_fresh(fresh_s(probes))

    def _collect(self, launch: Launch, reason: machine.Reason, detail: str) -> None:
        launch.over.set()
        stop_all([launch.engine, launch.measure, launch.ranks])
        if not reason.evicts:  # what pressed a gang that memory ended may have been another program; the ladder answers it
            self._measured(launch)
        launch.meter = None
        assert launch.plan is not None
        self._evictions.step_down(launch.plan, reason)
        now = datetime.now(UTC)
        handles = launch.ranks.handles if launch.ranks else ()
        exits = dict(launch.ranks.exits) if launch.ranks else {}
        ended = logs.Ended(launch.launch_id, reason.value, detail, now, exits)
        self._saver.add(Unsaved(launch.plan.blueprint.configuration, handles, ended))
        problem = self._saver.settle()
        detail = self._with_network_failure(launch.plan.blueprint.configuration, ended) if not problem else detail
        how = tuple((rank, one.described) for rank, one in sorted(exits.items()))
        stem = "" if problem else ended.stem
        self._board.add_end(LaunchEnd(launch.launch_id, reason.value, detail, now.timestamp(), how, stem))
        self._post(machine.Collected(self._clock(), launch.number, problem))

    def _with_network_failure(self, launched: Configuration, ended: logs.Ended) -> str:
        """The detail of a launch's end, with what NCCL said of the rails where it did: its ranks only hang."""
        if ended.reason in ORDERLY:
            return ended.detail
        with contextlib.suppress(OSError, EOFError):
            if found := logs.network_failure(self._keeping(launched).folder, ended):
                self._voice.say(f"{found}; it said: {found.message}", "error")
                return f"{ended.detail}; {found}"
        return ended.detail

    def _keeping(self, launched: Configuration) -> logs.Keeping:
        """Where a launch wanted its logs to go, and how many are kept by now."""
        return replace(keeping(launched), launches=self._configure().logs.log_keep)

    def _work(self, job: Callable[..., None], *given: object) -> None:
        threading.Thread(target=self._guarded, args=(job, *given), name=job.__name__.strip("_"), daemon=True).start()

    def _guarded(self, job: Callable[..., None], *given: object) -> None:
        """An unforeseen fault is told as what it keeps from happening; signals are repeated by the machine anyway."""
        try:
            job(*given)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            self._voice.say(f"{job.__name__.strip('_')} failed: {text}", "error")
            number = given[0].number if isinstance(given[0], Launch) else 0
            lost: dict[Callable[..., None], Callable[[], Event]] = {
                self._gate: lambda: machine.GateRefused(self._clock(), number, text, 4),
                self._start: lambda: machine.StartFailed(self._clock(), number, int(str(given[1])), text),
                self._smoke: lambda: machine.Smoke(self._clock(), number, passed=False, why=text),
                self._collect: lambda: machine.Collected(self._clock(), number, text),
            }
            if job in lost:
                self._post(lost[job]())


def _status_text(state: State) -> str:
    """What `systemctl status` shows."""
    why = f" ({state.detail})" if state.detail and state.phase is not Phase.SERVING else ""
    return f"{state.phase.value}, launch {state.launch}{why}".replace("\n", " ")


def limits(configuration: Configuration) -> Limits:
    """What the guards of a launch act by."""
    memory, serve = configuration.memory, configuration.serve
    return Limits(
        hard_bytes=memory.hard_floor_bytes,
        soft_bytes=memory.floor_bytes,
        horizon_s=memory.slope_horizon_s,
        period_s=memory.sample_period_s,
        proc=str(memory.proc_root.absolute()),
        orphan_s=serve.orphan_s,
        stop_timeout_s=serve.stop_timeout,
    )
