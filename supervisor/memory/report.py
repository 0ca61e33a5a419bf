"""The memory plan for a person and for a program: rows of a node, and what would change the answer. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from build.errors import Refused
from build.units import GIB
from supervisor.memory.plan import CONTEXT_STEP, NodePlan, PlansAt, choose_context


@dataclass(frozen=True, slots=True)
class Asked:
    """What the plan is made for. ``settings`` are (name, value, origin) of all that the answer rests on."""

    context: int | str
    window_tokens: int
    floor_bytes: int
    reserve_gib: float
    settings: tuple[tuple[str, str, str], ...]
    notes: tuple[str, ...] = ()  # what else a person should know


def report(
    asked: Asked,
    plans_at: PlansAt,
    unread: Mapping[str, str] | None = None,
    measured_at: Iterable[int] = (),
) -> dict[str, Any]:
    """The whole answer as JSON values. ``unread`` names nodes whose memory was not read, with the reason: they bound nothing."""
    unread = unread or {}

    def read_at(at: int | None) -> tuple[NodePlan, ...]:
        return tuple(plan for plan in plans_at(at) if plan.node not in unread)

    context, refused = _chosen(asked, read_at, measured_at)
    tried = context or (asked.context if isinstance(asked.context, int) else None)
    read, plans = read_at(tried), plans_at(tried)
    largest = min((plan.largest_context(asked.floor_bytes, asked.window_tokens) for plan in read), default=0)
    nodes = [_node(asked, plan, context or largest, unread.get(plan.node)) for plan in plans]
    return {
        "context": asked.context,
        "chosen_context_tokens": context,
        "largest_context_tokens": largest,
        "window_tokens": asked.window_tokens,
        "refused": refused,
        "nodes": nodes,
        "settings": [{"name": name, "value": value, "origin": origin} for name, value, origin in asked.settings],
        "notes": list(asked.notes),
        "would_change": [text for plan in read for text in _changes(asked, plan, context or largest)],
    }


def as_text(found: Mapping[str, Any]) -> str:
    """A table a node, then the settings with their origins."""
    lines = [f"context: {found['chosen_context_tokens']} tokens of a window of {found['window_tokens']}"]
    if found["refused"]:
        lines = [f"refused: {found['refused']}"]
    for node in found["nodes"]:
        lines += ["", f"{node['node']}, by {node['origin']}:", *(_row(name, count) for name, count in node["rows"].items())]
        lines += [f"  not read: {node['unread']}"] if "unread" in node else []
    width = max(len(one["name"]) for one in found["settings"])
    lines += ["", "settings:", *(f"  {one['name']:<{width}}  {one['value']}  ({one['origin']})" for one in found["settings"])]
    return "\n".join([*lines, "", *found["would_change"], *(f"note: {text}" for text in found["notes"])])


def _chosen(asked: Asked, plans_at: PlansAt, measured_at: Iterable[int]) -> tuple[int | None, str]:
    if not plans_at(None):
        return None, ""
    try:
        return choose_context(asked.context, plans_at, asked.floor_bytes, asked.window_tokens, measured_at), ""
    except Refused as error:
        return None, str(error)


def _node(asked: Asked, plan: NodePlan, context: int, unread: str | None) -> dict[str, Any]:
    available = plan.available_bytes if unread is None else None
    weights = {"weights and scratch": plan.weights_bytes} if plan.measured else {"weights": plan.weights_bytes}
    rows: dict[str, int | None] = {
        **weights,
        f"contexts of {context} tokens": context * plan.bytes_per_token,
        **({} if plan.measured else {"scratch": plan.other_bytes}),
        "floor, as the engine's own reserve": asked.floor_bytes,
        "needed before a launch": plan.need_bytes(context) + asked.floor_bytes,
        "available now": available,
    }
    if available is not None:
        rows["left beside the floor"] = available - plan.need_bytes(context) - asked.floor_bytes
    if plan.most_bytes:
        rows["most that was seen taken"] = plan.most_bytes
    found: dict[str, Any] = {"node": plan.node, "rows": rows, "origin": plan.origin, "measured": plan.measured}
    return found | ({} if unread is None else {"unread": unread})


def _row(name: str, count: int | None) -> str:
    return f"  {name:<36}{'not read' if count is None else f'{count / GIB:10.2f} GiB'}"


def _changes(asked: Asked, plan: NodePlan, context: int) -> list[str]:
    """The distance to the next other answer, in what a person can do."""
    left = plan.available_bytes - plan.need_bytes(context) - asked.floor_bytes
    if left < 0:
        return [f"on {plan.node} {-left / GIB:.2f} GiB more must be available, or min_avail_gib be so much lower"]
    if plan.largest_context(asked.floor_bytes, asked.window_tokens) >= asked.window_tokens:
        return [f"on {plan.node} the whole window fits until {left / GIB:.2f} GiB less are available"]
    step = CONTEXT_STEP * plan.bytes_per_token / (1 << 20)
    return [
        f"on {plan.node} each {CONTEXT_STEP} tokens of context take {step:.1f} MiB: more memory, or a smaller floor, gives more"
    ]
