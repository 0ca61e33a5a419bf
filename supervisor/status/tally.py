"""What has to be remembered from one published snapshot to the next: totals over launches, and points for rates. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from metrics import catalog
from metrics.catalog import Metric
from supervisor.engine.promtext import Family
from supervisor.engine.readings import EngineReading
from supervisor.status.counters import Rate, Total
from supervisor.status.kept import Kept, keep
from supervisor.status.view import EngineView, NodeMemory, View

SLOPE_WINDOW_S = 10.0


def engine_totals(reading: EngineReading) -> dict[Metric, float | None]:
    """The engine's totals, by what they are shown as."""
    return {
        catalog.GENERATED_TOKENS: reading.generated_tokens_live,
        catalog.PROMPT_TOKENS: reading.prompt_tokens,
        catalog.CACHED_PROMPT_TOKENS: reading.cached_tokens,
        catalog.DRAFTED_TOKENS: reading.drafted_tokens,
        catalog.ACCEPTED_TOKENS: reading.accepted_tokens,
        catalog.DECODE_ROUNDS: reading.rounds,
    }


@dataclass(frozen=True, slots=True)
class Tally:
    """``totals`` holds only what the engine has told at least once; ``slopes`` is headroom by node."""

    totals: Mapping[Metric, Total] = field(default_factory=lambda: MappingProxyType({}))
    rates: Mapping[Metric, Rate] = field(default_factory=lambda: MappingProxyType({}))
    slopes: Mapping[str, Rate] = field(default_factory=lambda: MappingProxyType({}))
    families: Mapping[str, Kept] = field(default_factory=lambda: MappingProxyType({}))  # the engine's own, by name
    told: tuple[int, tuple[Family, ...]] = (0, ())  # the last view's launch and families

    def take(self, view: View) -> Tally:
        """With one more view, no older than the last."""
        taken = self if view.engine is None else self._with_engine(view.engine)
        return replace(taken, slopes=MappingProxyType({memory.node: self._slope(memory) for memory in view.memory}))

    def per_second(self, metric: Metric, now_s: float) -> float:
        """How fast a total grows at ``now_s`` (monotonic); 0 for one that was never told."""
        return self.rates[metric].per_second(now_s) if metric in self.rates else 0.0

    def _with_engine(self, engine: EngineView) -> Tally:
        totals, rates = dict(self.totals), dict(self.rates)
        for metric, raw in engine_totals(engine.reading).items():
            if raw is not None:
                totals[metric] = totals.get(metric, Total()).advance(engine.launch, raw)
                rates[metric] = rates.get(metric, Rate()).observe(engine.at_s, totals[metric].value)
        told = (engine.launch, (*engine.reading.histograms, *engine.reading.other))
        # families are read more seldom than the totals: mostly they are those of the last time
        families = self.families if told == self.told else keep(self.families, told[1], engine.launch)
        return replace(self, totals=MappingProxyType(totals), rates=MappingProxyType(rates), families=families, told=told)

    def _slope(self, memory: NodeMemory) -> Rate:
        before = self.slopes.get(memory.node, Rate(SLOPE_WINDOW_S))
        return before.observe(memory.at_s, memory.meminfo.available_bytes - memory.floor.floor_bytes)


def decode_rate(view: View, tally: Tally) -> float:
    """Tokens generated a second, now.

    From the totals where they move while requests run: the engine's own figure stays where it was when a peer hangs.
    """
    engine = view.engine
    if engine is None or engine.launch != view.state.launch:
        return 0.0
    told = engine.reading.decode_tokens_per_s
    return tally.per_second(catalog.GENERATED_TOKENS, view.now_s) if engine.reading.live or told is None else told


def prefill_rate(view: View, tally: Tally) -> float:
    """Prompt tokens computed a second, now: the engine's own figure, since its total may move only when a request ends."""
    engine = view.engine
    if engine is None or engine.launch != view.state.launch:
        return 0.0
    told = engine.reading.prefill_tokens_per_s
    return tally.per_second(catalog.PROMPT_TOKENS, view.now_s) if told is None else told
