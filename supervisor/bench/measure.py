"""Carrying a plan out: warm-up and comparison of tokens, then run after run. What was measured stays when it ends early."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from build.errors import TwinfoldError
from supervisor.bench.asking import Ask, TooLong, body, read, together
from supervisor.bench.figures import Timing
from supervisor.bench.plan import Decode, LeftOut, Plan, Prefill, Ruler, Step, ruler
from supervisor.bench.prompts import KINDS, decode_prompt, prefill_prompt
from supervisor.bench.readings import COMPLETE, FAILED, INTERRUPTED, Compared, Measured
from supervisor.engine.line import ProbeFailed

RULER_CHARACTERS = (100, 700)  # two texts that fit the smallest context
LEAST_S = 1.0
LONGER = 1.5  # a longer prompt takes more a token than a shorter one


class Bench:
    """One bench of one endpoint. ``mark`` is what no earlier bench had; ``say`` takes a line on each thing begun."""

    def __init__(
        self,
        ask: Ask,
        model: str,
        plan: Plan,
        mark: str,
        *,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask, self._model, self._plan, self._mark, self._say, self._clock = ask, model, plan, mark, say, clock
        self._began_s = clock()
        self._took_s: dict[Step, float] = {}
        self._ruler = Ruler(1.0, 0.0)
        self.measured = Measured(left_out=list(plan.left_out))

    def run(self) -> Measured:
        """All of it; an end before the end is told in what was measured, never raised."""
        measured = self.measured
        try:
            self._warm_up()
            for number in range(self._plan.options.runs):
                for step in self._plan.steps:
                    self._step(step, number)
            self._ask_again()
            measured.ended = COMPLETE
        except KeyboardInterrupt:
            measured.ended, measured.why = INTERRUPTED, "interrupted"
        except TwinfoldError as error:
            measured.ended, measured.why, measured.error = FAILED, str(error), error
        measured.took_s = self._clock() - self._began_s
        return measured

    def _ask_again(self) -> None:
        """The compared prompts at once after all else: an engine that keeps prompts can mix them up once it is full of them."""
        count = self._plan.options.streams
        for place, kind in enumerate(KINDS):
            if self._left_s() < LEAST_S:
                return
            self._say(f"{kind} prompts once more, tokens compared")
            again = self._group([decode_prompt(kind, number) for number in range(count)])
            for at, one in enumerate(again, place * count):
                self.measured.compared[at] = replace(self.measured.compared[at], later=self._digest(one))

    def _warm_up(self) -> None:
        """Lengths of texts in tokens, then every decode prompt alone and beside the others; none of it is timed."""
        self._say("warm-up: the first replies")
        texts = [prefill_prompt(f"{self._mark}.length.{size}", size) for size in RULER_CHARACTERS]
        self._ruler = ruler([(len(text), self._one(text, 1, words=False).prompt_tokens) for text in texts])
        streams = self._plan.options.streams
        for kind in KINDS:
            self._say(f"warm-up: {kind} prompts alone and {streams} at once, tokens compared")
            texts = [decode_prompt(kind, number) for number in range(streams)]
            alone = [self._one(text, self._plan.options.reply_tokens) for text in texts]
            beside = self._group(texts) if streams > 1 else ()
            if not all(one.token_sha for one in (*alone, *beside)):
                self.measured.by = "text"
            for number, one in enumerate(alone):
                other = self._digest(beside[number]) if beside else ""
                self.measured.compared.append(Compared(f"{kind}-{number + 1}", self._digest(one), other))
        for step in [step for step in self._plan.steps if isinstance(step, Prefill)][:1]:
            self._say(f"warm-up: {step}")
            with contextlib.suppress(TooLong):  # told when its turn comes
                self._prefill(step, "first")

    def _digest(self, one: Timing) -> str:
        return one.token_sha if self.measured.by == "token_sha" else one.text_sha

    def _step(self, step: Step, number: int) -> None:
        """Measure a step once more, or note why not."""
        left_s, expected_s = self._left_s(), self._expected_s(step)
        if left_s < LEAST_S or expected_s > left_s:
            self._leave_out(step, number)
            return
        self._say(f"run {number + 1} of {self._plan.options.runs}: {step}")
        began_s = self._clock()
        try:
            found = self._prefill(step, number) if isinstance(step, Prefill) else self._decode(step, number)
        except TooLong as error:
            self.measured.left_out.append(LeftOut(step, f"refused as too long: {error}"))
            self._took_s[step] = float("inf")
            return
        except ProbeFailed as failed:
            if failed.kind == "timeout" and self._left_s() < LEAST_S:
                self._leave_out(step, number)
                return
            raise
        self._took_s[step] = self._clock() - began_s
        self.measured.readings.setdefault(step, []).append(found)

    def _decode(self, step: Decode, number: int) -> tuple[Timing, ...]:
        streams = self._plan.options.streams
        mark = f"{self._mark}.{number}.{step.kind}.{step.streams}"
        texts = [decode_prompt(step.kind, place, f"{mark}.{place}") for place in range(streams)]
        if step.streams > 1:
            return self._group(texts)
        return tuple(self._one(text, self._plan.options.reply_tokens) for text in texts)

    def _prefill(self, step: Prefill, number: int | str) -> tuple[Timing, ...]:
        text = prefill_prompt(f"{self._mark}.{number}.{step.tokens}", self._ruler.characters(step.tokens))
        found = self._one(text, 1, words=False)
        self._ruler = self._ruler.met(len(text), found.prompt_tokens)
        return (found,)

    def _one(self, text: str, tokens: int, *, words: bool = True) -> Timing:
        (answer,) = together(self._ask, [body(self._model, text, tokens)], self._deadline_s())
        return read(answer, words=words)

    def _group(self, texts: Sequence[str]) -> tuple[Timing, ...]:
        bodies = [body(self._model, text, self._plan.options.reply_tokens) for text in texts]
        answers = together(self._ask, bodies, self._deadline_s())
        return tuple(read(answer, words=True) for answer in answers)

    def _left_s(self) -> float:
        return self._plan.options.limit_s - (self._clock() - self._began_s)

    def _deadline_s(self) -> float:
        return max(self._left_s(), LEAST_S)

    def _expected_s(self, step: Step) -> float:
        """From its last time, or from the longest prompt so far; 0 where nothing is known."""
        if step in self._took_s or isinstance(step, Decode):
            return self._took_s.get(step, 0.0)
        known = [
            (one.tokens, took_s) for one, took_s in self._took_s.items() if isinstance(one, Prefill) and one.tokens < step.tokens
        ]
        return max((took_s / tokens * step.tokens * LONGER for tokens, took_s in known if took_s < float("inf")), default=0.0)

    def _leave_out(self, step: Step, number: int) -> None:
        if any(one.step == step for one in self.measured.left_out):
            return
        limit = f"the time limit of {self._plan.options.limit_s:g} s"
        runs = self._plan.options.runs
        self.measured.left_out.append(
            LeftOut(step, f"{limit} came" if number == 0 else f"{limit} came: run {number + 1} of {runs} and on")
        )
