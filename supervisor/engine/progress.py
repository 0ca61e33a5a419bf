"""Whether the gang makes progress: readings in, verdicts out. Pure; times are monotonic seconds.

``/health`` answers 200 with a dead or stopped peer, so only moving totals prove life. Busy is not dead: a long prompt is
computed without a token for minutes, and a decode of another request may wait for it. Where tokens are counted only when a
request ends, nothing moves in a long decode either: then a tiny generation of our own decides, as it does for an idle gang.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from supervisor.engine.readings import EngineReading

PREFILL_FACTOR = 3.0  # a prompt gets three times its expected time
RECENT_S = 2.0  # a request that arrives longer than this after the last progress finds a gang that stands already


@dataclass(frozen=True, slots=True)
class Patience:
    """How long what may take. ``prefill_tokens_per_s``: the slowest prefill to expect; ``context_tokens``: the longest prompt;
    ``first_token_s``: for the first token of all, and an answer before it, since an engine may warm up; ``streams``: requests
    that are computed together.
    """

    stall_s: float
    misses: int
    idle_probe_s: float
    prefill_tokens_per_s: float
    context_tokens: int
    first_token_s: float = 0.0
    streams: int = 1

    def prompt_s(self, tokens: float) -> float:
        """How long a prompt of so many tokens may take."""
        return PREFILL_FACTOR * tokens / self.prefill_tokens_per_s

    @property
    def own_s(self) -> float:
        """How long tiny generations that wait for nobody may take, all that may fail in a row."""
        return self.stall_s * self.misses


@dataclass(frozen=True, slots=True)
class Progress:
    """What is remembered between readings.

    ``moved_s`` is when work was last seen done, or nothing to do; ``proved_s`` when a token last proved that the gang lives.
    ``warm``: it has made tokens before. ``prefill_tokens`` is the length of a prompt that may be under way, 0 for none.
    ``misses`` counts readings without an answer, ``probe_misses`` tiny generations that failed, ``own`` those that the engine
    may still hold: where nothing else runs, no long prompt does.
    """

    moved_s: float
    answered_s: float
    proved_s: float
    warm: bool = False
    reading: EngineReading | None = None
    prefill_tokens: float = 0.0
    misses: int = 0
    probe_misses: int = 0
    own: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """``stalled`` says why patience is over, or is empty; ``probe`` asks for a tiny generation."""

    stalled: str = ""
    probe: bool = False


def begin(at_s: float, *, warm: bool = False) -> Progress:
    """A gang that has just been found whole; ``warm``: it has served before."""
    return Progress(at_s, at_s, at_s, warm)


def observe(progress: Progress, reading: EngineReading | None, at_s: float, patience: Patience) -> tuple[Progress, Verdict]:
    """Take a reading in; None is one that got no answer."""
    if reading is None:
        return _missed(progress, at_s, patience)
    reading = _completed(reading, progress.reading)
    warm = progress.warm or reading.generated_tokens_live != 0
    before, progress = progress, replace(progress, reading=reading, answered_s=at_s, misses=0, warm=warm)
    if reading.fatal:
        return progress, Verdict("the engine reports a fatal error")
    worked = before.reading is None or _worked(before.reading, reading)
    if worked or not reading.busy:
        progress = replace(progress, moved_s=at_s)
    if (worked and not progress.probe_misses) or (reading.busy and reading.live):  # tokens of a failed probe prove nothing
        progress = replace(progress, proved_s=at_s)
    progress = replace(progress, prefill_tokens=_prefill(before, reading, at_s, patience))
    if reading.busy:
        return progress, (_live_verdict if reading.live else _counted_late_verdict)(progress, at_s, patience)
    return replace(progress, own=0), _probe_if_due(progress, at_s, patience)


def probe_deadline_s(progress: Progress, patience: Patience) -> float:
    """How long a tiny generation may take now."""
    return _wait_s(progress, patience) if progress.reading and progress.reading.busy else patience.stall_s


def asked(progress: Progress) -> Progress:
    """A tiny generation is on its way."""
    return replace(progress, own=progress.own + 1)


def probed(progress: Progress, alive: bool | None, at_s: float, patience: Patience) -> tuple[Progress, Verdict]:
    """Take the outcome of a tiny generation in: tokens, garbage (False), or nothing (None). A miss is followed by the next soon.

    Beside other requests it may have come to nothing for want of a place; how long that may go on, readings tell.
    """
    if alive:
        return replace(progress, proved_s=at_s, probe_misses=0, own=0), Verdict()
    if alive is None and progress.reading and progress.reading.busy and not progress.reading.live:
        return progress, Verdict()
    misses = progress.probe_misses + 1
    progress = replace(progress, probe_misses=misses)
    late = misses >= patience.misses
    return progress, Verdict(f"{misses} tiny generations in a row came to nothing" if late else "")


def _completed(now: EngineReading, last: EngineReading | None) -> EngineReading:
    """One that says nothing of requests, where the last one did, lacks one of the engine's two answers: what ran may run on."""
    if now.busy is not None or last is None or last.busy is None:
        return now
    return replace(last, fatal=now.fatal, live=False)


def _missed(progress: Progress, at_s: float, patience: Patience) -> tuple[Progress, Verdict]:
    progress = replace(progress, misses=progress.misses + 1)
    silent_s = at_s - progress.answered_s
    if progress.misses >= patience.misses and silent_s >= _stall_s(progress, patience):
        return progress, Verdict(f"rank 0 has not answered for {silent_s:.0f} s")
    return progress, Verdict()


def _stall_s(progress: Progress, patience: Patience) -> float:
    return patience.stall_s if progress.warm else max(patience.stall_s, patience.first_token_s)


def _live_verdict(progress: Progress, at_s: float, patience: Patience) -> Verdict:
    """Requests run, and each token is counted as it comes."""
    waited_s = at_s - progress.moved_s
    allowed_s = _stall_s(progress, patience)
    if progress.reading and _requests(progress.reading) <= progress.own:
        allowed_s = max(allowed_s, patience.own_s)
    else:
        allowed_s = max(allowed_s, patience.prompt_s(progress.prefill_tokens))
    if waited_s < allowed_s:
        return Verdict()
    return Verdict(f"requests run, and nothing has moved for {waited_s:.0f} s")


def _counted_late_verdict(progress: Progress, at_s: float, patience: Patience) -> Verdict:
    """Requests run, and tokens are counted when one ends: only a tiny generation tells a long decode from a hang."""
    quiet_s = at_s - max(progress.proved_s, progress.moved_s)
    if quiet_s >= patience.idle_probe_s + _wait_s(progress, patience):
        return Verdict(f"requests run, none has ended for {quiet_s:.0f} s, and tiny generations came to nothing")
    return _probe_if_due(progress, at_s, patience)


def _probe_if_due(progress: Progress, at_s: float, patience: Patience) -> Verdict:
    return Verdict(probe=at_s - progress.proved_s >= patience.idle_probe_s)


def _wait_s(progress: Progress, patience: Patience) -> float:
    """How long a tiny generation may have to wait for others: for their prompts, where all places are taken the longest one."""
    others = _requests(progress.reading) - progress.own if progress.reading else 0
    tokens = progress.prefill_tokens if others < patience.streams else float(patience.context_tokens)
    return max(patience.own_s, patience.prompt_s(tokens))


def _worked(before: EngineReading, now: EngineReading) -> bool:
    """Tokens or rounds moved. Prompt tokens count only where no request came, since some builds add them at arrival."""
    if _differ(before.generated_tokens_live, now.generated_tokens_live) or _differ(before.rounds, now.rounds):
        return True
    return _differ(before.prompt_tokens, now.prompt_tokens) and not _arrived(before, now)


def _prefill(before: Progress, now: EngineReading, at_s: float, patience: Patience) -> float:
    """The length of the prompt that may be under way after this reading: known from the total's jump, else the longest."""
    last = before.reading
    if last is None or not now.busy:
        return float(patience.context_tokens) if now.busy and now.prefilling != 0 else 0.0
    if _differ(last.generated_tokens_live, now.generated_tokens_live) and not now.prefilling:
        return 0.0
    came = _streams(now) > _streams(last) or _differ(last.requests, now.requests)  # one that waits computes nothing
    if came and (at_s - before.moved_s <= RECENT_S or not last.busy):
        jump = (now.prompt_tokens or 0.0) - (last.prompt_tokens or 0.0)
        return max(before.prefill_tokens, jump if jump > 0 else float(patience.context_tokens))
    return before.prefill_tokens


def _arrived(before: EngineReading, now: EngineReading) -> bool:
    return _requests(now) > _requests(before) or _differ(before.requests, now.requests)


def _requests(reading: EngineReading) -> int:
    return sum(count or 0 for count in (reading.running, reading.prefilling, reading.waiting))


def _streams(reading: EngineReading) -> int:
    return (reading.running or 0) + (reading.prefilling or 0)


def _differ(before: float | None, now: float | None) -> bool:
    return before is not None and now is not None and before != now
