"""What comes before a launch: nothing of an earlier one is left, every node is as it must be, and memory is there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from build.errors import Refused
from supervisor.configuration import Configuration
from supervisor.fleet.site import Nodes
from supervisor.gang import gate, leftovers
from supervisor.gang.launch import Blueprint, Plan
from supervisor.gang.saving import Saver, keeping
from supervisor.guard.choice import tool
from supervisor.memory.measured import settled
from supervisor.memory.needs import reserve_differs
from supervisor.runners.protocol import Owner, Runner

Say = Callable[..., None]


class Gating:
    """The gate of one supervisor's launches. Only ranks with ``owner``, or with none, are its own to remove."""

    def __init__(
        self,
        runner: Runner,
        nodes: Nodes,
        saver: Saver,
        *,
        configure: Callable[[], Configuration],
        owner: Owner | None,
        forget_guards: Callable[[], None],
        say: Say,
    ) -> None:
        self._runner, self._nodes, self._saver, self._say = runner, nodes, saver, say
        self._configure, self._owner, self._forget_guards = configure, owner, forget_guards

    def pass_through(self, wanted: Callable[[], Blueprint], world_size: int, cancelled: threading.Event) -> Plan:
        """The plan of a launch that may begin now. ``gate.Cancelled`` where nobody waits for it any more.

        Raises what keeps it from beginning, most of it :class:`~build.errors.Refused`.
        """
        if problem := self._saver.settle():
            raise Refused(problem)
        self._sweep()
        one = wanted()
        one = replace(one, known=settled(one.known))
        one.check_store()
        if why := reserve_differs(one.configuration):
            self._say(why, "warning")
        one.check_world(world_size)
        with gate.MemoryWait(one, cancelled, self._say) as memory_wait:
            one = replace(one, links=self._nodes.examine(one.configuration, cancelled, self._say))
            gate.check_ports(one)
            self._nodes.prepare(one, cancelled)
            if cancelled.is_set():
                raise gate.Cancelled
            if one.gate_on_free:
                gate.drop_own_pages(one, tool(one), self._say)
            one = replace(one, links=self._nodes.prove(one.configuration, one.links, self._say))
            return gate.plan_when_it_fits(one, memory_wait, lambda: self._nodes.available(one.configuration))

    def _sweep(self) -> None:
        """No launch is left by now, so that whatever is found must go before another: a rank whose start was ordered over a link
        that broke may run, and nobody was told.
        """
        found = leftovers.ours(self._runner.leftovers(), self._owner)
        if found:
            self._say("removing what was left behind: " + ", ".join(str(one.handle) for one in found), "warning")
            leftovers.remove(self._runner, found, keeping(self._configure()), "left over")
        self._forget_guards()
