"""Recording rules: the names that dashboards for vLLM read, and nothing else, so that one dashboard serves every engine. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from metrics import catalog as c
from metrics.catalog import Kind, Metric

# vLLM's name for each of ours (docs.vllm.ai, "Production metrics"); its label for the model is model_name
VLLM: tuple[tuple[str, Metric], ...] = (
    ("vllm:num_requests_running", c.REQUESTS_RUNNING),
    ("vllm:num_requests_waiting", c.REQUESTS_WAITING),
    ("vllm:prompt_tokens_total", c.PROMPT_TOKENS),
    ("vllm:generation_tokens_total", c.GENERATED_TOKENS),
    ("vllm:kv_cache_usage_perc", c.KV_CACHE),
    ("vllm:spec_decode_num_draft_tokens_total", c.DRAFTED_TOKENS),
    ("vllm:spec_decode_num_accepted_tokens_total", c.ACCEPTED_TOKENS),
    ("vllm:time_to_first_token_seconds", c.TIME_TO_FIRST_TOKEN),
    ("vllm:e2e_request_latency_seconds", c.REQUEST_DURATION),
)


@dataclass(frozen=True, slots=True)
class Recording:
    """One rule: ``name`` is recorded as the value of ``expression``."""

    name: str
    expression: str


def recordings() -> tuple[Recording, ...]:
    """Every rule; a histogram takes three."""
    found = []
    for name, metric in VLLM:
        for suffix in ("_bucket", "_sum", "_count") if metric.kind is Kind.HISTOGRAM else ("",):
            renamed = f'label_replace({metric.name}{suffix}, "model_name", "$1", "model", "(.*)")'
            found.append(Recording(name + suffix, renamed))
    return tuple(found)
