"""Whether the supervisor is live and the gang ready: what /livez and /readyz say, and why not. Pure; "" is yes.

Live is the process: its loop turns and it sees its node's memory; a gang that failed for good ends it anyway. Ready is a request
that would be answered now: every rank up, the engine answers, work or a probe was seen done lately, every node above its floor.
"""

from __future__ import annotations

from supervisor.machine import Phase
from supervisor.status.view import NodeMemory, View

LOOP_S = 20.0  # the loop turns at least every 5 s
MEMORY_S = 30.0
SAMPLE_S = 5.0  # a memory sample older than this proves no headroom
ANSWER_S = 15.0  # three readings at their deadline


def not_live(view: View) -> str:
    """Why the supervisor itself does not work."""
    if view.state.phase is Phase.GAVE_UP:
        return "gave up"
    if view.stepped_s is not None and view.now_s - view.stepped_s > LOOP_S:
        return f"the supervisor's loop has not turned for {view.now_s - view.stepped_s:.0f} s"
    oldest = max((view.now_s - memory.at_s for memory in view.memory), default=0.0)
    return f"no node's memory could be read for {oldest:.0f} s" if _all_older(view, MEMORY_S) else ""


def not_ready(view: View) -> str:
    """Why a serving gang would not answer a request."""
    up, world = view.state.up, view.state.policy.world_size
    if len(up) < world:
        return f"{len(up)} of {world} ranks are up"
    return _silent(view) or _standing(view) or next((why for memory in view.memory if (why := _short(memory, view.now_s))), "")


def _silent(view: View) -> str:
    engine = view.engine
    if engine is None or engine.launch != view.state.launch:
        return "the engine has not answered yet"
    age_s = view.now_s - engine.at_s
    return f"the engine has not answered for {age_s:.0f} s" if age_s > ANSWER_S else ""


def _standing(view: View) -> str:
    """While requests run the progress watch has its own patience, and ends a gang that stands still."""
    if view.engine is None or view.serving is None or view.engine.reading.busy:
        return ""
    if view.progress_unix_s is None:
        return "nothing was seen done yet"
    age_s = view.now_unix_s - view.progress_unix_s
    return f"no work and no probe was seen done for {age_s:.0f} s" if age_s > view.serving.fresh_s else ""


def _short(memory: NodeMemory, now_s: float) -> str:
    if now_s - memory.at_s > SAMPLE_S:
        return f"{memory.node}'s memory was last read {now_s - memory.at_s:.0f} s ago"
    if memory.meminfo.available_bytes < memory.floor.floor_bytes:
        return f"{memory.node} is below its memory floor"
    return ""


def _all_older(view: View, limit_s: float) -> bool:
    return bool(view.memory) and all(view.now_s - memory.at_s > limit_s for memory in view.memory)
