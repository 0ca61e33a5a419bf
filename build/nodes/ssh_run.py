"""One command over a node's connection: sent, waited for no longer than its deadline, and its end told from a cut."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from build.nodes import remote_shell, ssh_link
from build.nodes.remote_shell import Marks
from build.nodes.ssh_errors import ConnectionLost, DeadlinePassed, SshUnusable, shown
from build.nodes.ssh_link import Link

LATE_S = remote_shell.KILL_AFTER_S + ssh_link.CONNECT_S  # how long after the deadline an answer may still be on its way


@dataclass(frozen=True, slots=True)
class Order:
    """A command for a node. The node itself ends it at the deadline, whatever becomes of us."""

    argv: tuple[str, ...]
    deadline_s: float
    marks: Marks

    @classmethod
    def of(cls, argv: Sequence[str], deadline_s: float) -> Order:
        """With marks of its own."""
        return cls(tuple(argv), deadline_s, Marks.of(uuid.uuid4().hex[:12]))

    def line(self, node: str) -> str:
        """The line for ssh; ``SshUnusable`` where it is too long."""
        try:
            return remote_shell.line(self.argv, self.marks, self.deadline_s)
        except ValueError as error:
            raise SshUnusable(node, str(error)) from None


@dataclass(frozen=True, slots=True)
class Printed:
    """All that one ssh carried, noise and marks included, and how long it took."""

    stdout: bytes
    stderr: bytes
    took_s: float


def run(link: Link, order: Order, stdin: bytes | None) -> tuple[bytes, bytes, int]:
    """Run one command: its stdout, stderr and status."""
    name = link.destination.name
    line = order.line(name)
    options = link.options(order.deadline_s)
    began = time.monotonic()
    source = subprocess.DEVNULL if stdin is None else subprocess.PIPE
    program = ssh_link.start(link.destination.argv(options, line), stdin=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, err = program.communicate(stdin, timeout=order.deadline_s + LATE_S)
    except subprocess.TimeoutExpired:
        ssh_link.end(program)
        raise DeadlinePassed(
            name, f"no answer within {order.deadline_s:g} s, nor soon after: the node or the network hangs"
        ) from None
    except BaseException:
        ssh_link.end(program)
        raise
    return judge(name, order, Printed(out, err, time.monotonic() - began))


def judge(node: str, order: Order, printed: Printed) -> tuple[bytes, bytes, int]:
    """Tell a finished command from one that was cut off, or ended at its deadline. Pure.

    124 and 137 are what ``timeout`` leaves; a command may end so by itself, but not that late.
    """
    out = remote_shell.answer(printed.stdout, order.marks)
    err = remote_shell.answer(printed.stderr, order.marks)
    if out is None or out.status is None:
        said = [] if err else printed.stderr.decode(errors="replace").strip().splitlines()
        reason = f" ({said[-1].strip()})" if said else ""
        raise ConnectionLost(node, f"the connection broke while `{shown(order.argv)}` ran{reason}")
    if out.status in {124, 137} and printed.took_s >= order.deadline_s:
        raise DeadlinePassed(node, f"`{shown(order.argv)}` did not end within {order.deadline_s:g} s, and was killed")
    return out.content, err.content if err else b"", out.status
