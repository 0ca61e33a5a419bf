"""Pure decisions beside the transitions: back-off, what follows a failure, deadlines, and when the machine must be woken."""

from __future__ import annotations

import random

from supervisor.machine.types import After, Phase, Policy, Reason, State


def pause_s(policy: Policy, failures: int) -> float:
    """The pause after the ``failures``-th failure in a row: doubling from the first to the longest, less jitter.

    The jitter is up to a quarter; it comes from the policy's seed, so the same gang pauses the same and
    two gangs do not beat in step.
    """
    if failures < 1:
        return 0.0
    full = min(policy.pause_max_s, policy.pause_first_s * 2.0 ** min(failures - 1, 60))
    return full * (1.0 - 0.25 * random.Random(f"{policy.seed}:{failures}").random())  # noqa: S311 - spreads load, guards nothing


GOES_ON = frozenset({After.PAUSE, After.RELAUNCH})  # a gang is wanted again
GATE_PAUSE_MAX_S = 30.0  # a gate that refuses has started nothing, and looking again costs little


def rest_s(state: State) -> float:
    """The pause that a launch's end calls for, by its reason: after a refused gate it grows with the refusals alone."""
    if state.reason is Reason.GATE:
        return min(GATE_PAUSE_MAX_S, pause_s(state.policy, state.refusals))
    return pause_s(state.policy, state.failures)


def after_refusal(policy: Policy) -> tuple[After, int]:
    """What follows a gate that refused a gang which has run: another look, without end, since no rank was started.

    A worker that is away for an hour, or memory that somebody holds for a night, must not end the service. The end comes only
    where one launch was all that was asked (4), or no restart is wanted (5).
    """
    if policy.once:
        return After.FAIL, 4
    return (After.FAIL, 5) if policy.restart_limit == 0 else (After.PAUSE, 0)


def after_failure(policy: Policy, failures: int, hopeless: bool) -> tuple[After, int]:
    """What follows the ``failures``-th failure in a row, and the exit code where that is the end.

    4 where one launch was all that was asked, or where another would fail the same; 5 where the bound is reached.
    """
    if hopeless or policy.once:
        return After.FAIL, 4
    if failures > policy.restart_limit:
        return After.FAIL, 5
    return After.PAUSE, 0


def counted(restarts: tuple[tuple[Reason, int], ...], reason: Reason) -> tuple[tuple[Reason, int], ...]:
    """The counts with one more for ``reason``."""
    table = dict(restarts)
    table[reason] = table.get(reason, 0) + 1
    return tuple(sorted(table.items()))


def due(at_s: float, since_s: float, after_s: float) -> bool:
    """Whether a deadline has come. The same sum as in ``wake_at_s``: a difference would round otherwise, and wake for nothing."""
    return at_s >= since_s + after_s


def wake_at_s(state: State) -> float | None:
    """When the next Tick can change something; None where only events can."""
    policy = state.policy
    match state.phase:
        case Phase.LAUNCHING | Phase.PROBING:
            return state.since_s + policy.wait_timeout_s
        case Phase.SERVING:
            return state.since_s + policy.stable_s if state.failures else None
        case Phase.DRAINING | Phase.CLEARING:
            return _ending_wake_s(state)
        case Phase.PAUSING:
            return state.resume_at_s
        case _:
            return None


def _ending_wake_s(state: State) -> float:
    """The nearer of the phase's own limit and the next reminder to ranks that stay."""
    policy = state.policy
    if state.phase is Phase.CLEARING:
        limit_s, again_s = state.since_s + policy.kill_limit_s, state.killed_at_s + policy.kill_again_s
        if state.collecting:
            return limit_s
        return again_s if state.stuck and state.after in GOES_ON else min(limit_s, again_s)
    force_s = state.since_s + policy.stop_timeout_s
    if state.head_gone_s is None or state.up <= state.terminated:
        return force_s
    return min(force_s, state.head_gone_s + policy.follower_grace_s)
