"""The memory plan for a person and for a program: rows of a node, and what would change the answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from build.errors import Refused
from build.units import GIB
from supervisor.memory.plan import CONTEXT_STEP, NodePlan, choose_context


@dataclass(frozen=True, slots=True)
class Asked:
    """What the plan is made for. ``settings`` are (name, value, origin) of all that the answer rests on."""

    context: int | str
    window_tokens: int
    floor_bytes: int
    reserve_gib: float
    settings: tuple[tuple[str, str, str], ...]


def report(asked: Asked, plans: Sequence[NodePlan], available: Mapping[str, int | None]) -> dict[str, Any]:
    """The whole answer as JSON values. ``available`` is MemAvailable by node, None where it was not read."""
    read = tuple(plan for plan in plans if available[plan.node] is not None)
    largest = min((plan.largest_context(asked.floor_bytes, asked.window_tokens) for plan in read), default=0)
    context, refused = _chosen(asked, read)
    nodes = [_node(asked, plan, context or largest, available[plan.node]) for plan in plans]
    return {
        "context": asked.context,
        "chosen_context_tokens": context,
        "largest_context_tokens": largest,
        "window_tokens": asked.window_tokens,
        "refused": refused,
        "nodes": nodes,
        "settings": [{"name": name, "value": value, "origin": origin} for name, value, origin in asked.settings],
        "would_change": [text for plan in read for text in _changes(asked, plan, context or largest)],
    }


def as_text(found: Mapping[str, Any]) -> str:
    """A table a node, then the settings with their origins."""
    lines = [f"context: {found['chosen_context_tokens']} tokens of a window of {found['window_tokens']}"]
    if found["refused"]:
        lines = [f"refused: {found['refused']}"]
    for node in found["nodes"]:
        lines += ["", f"{node['node']}:", *(_row(name, count) for name, count in node["rows"].items())]
    width = max(len(one["name"]) for one in found["settings"])
    lines += ["", "settings:", *(f"  {one['name']:<{width}}  {one['value']}  ({one['origin']})" for one in found["settings"])]
    return "\n".join([*lines, "", *found["would_change"]])


def _chosen(asked: Asked, plans: tuple[NodePlan, ...]) -> tuple[int | None, str]:
    try:
        return (choose_context(asked.context, plans, asked.floor_bytes, asked.window_tokens), "") if plans else (None, "")
    except Refused as error:
        return None, str(error)


def _node(asked: Asked, plan: NodePlan, context: int, available: int | None) -> dict[str, Any]:
    rows: dict[str, int | None] = {
        "weights": plan.weights_bytes,
        f"contexts of {context} tokens": context * plan.bytes_per_token,
        "scratch": plan.other_bytes,
        "floor, as the engine's own reserve": asked.floor_bytes,
        "needed before a launch": plan.need_bytes(context) + asked.floor_bytes,
        "available now": available,
    }
    if available is not None:
        rows["left beside the floor"] = available - plan.need_bytes(context) - asked.floor_bytes
    return {"node": plan.node, "rows": rows}


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
