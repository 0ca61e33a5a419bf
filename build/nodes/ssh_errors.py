"""What can go wrong between the head and a node, each in a class of its own, and how ssh's words are told apart.

ssh ends with 255 for all of its own troubles, so its messages decide (they are not translated, and it runs under ``LC_ALL=C``).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from build.errors import Refused


class NodeError(Refused):
    """Base: a node could not do what was asked. ``node`` is its name."""

    def __init__(self, node: str, message: str) -> None:
        super().__init__(f"{node}: {message}")
        self.node = node


class SshUnusable(NodeError):
    """ssh itself is missing, or refuses its configuration or the target."""


class HostKeyChanged(NodeError):
    """The node shows another host key than the one that is known."""


class HostKeyUnknown(NodeError):
    """The node's host key was never accepted."""


class KeyRefused(NodeError):
    """The node takes none of the user's keys."""


class NameUnknown(NodeError):
    """The node's name does not resolve."""


class Unreachable(NodeError):
    """Nothing answers at the node's address, or it answers no ssh."""


class ConnectionLost(NodeError):
    """The connection broke while a command ran; whether the command did its work is not known."""


class NoAnswer(NodeError):
    """The login works, but the account's shell ended before our command ran."""


class DeadlinePassed(NodeError):
    """The command did not end in time and was killed."""


class CommandFailed(NodeError):
    """The command ended with another status than 0."""

    def __init__(self, node: str, argv: Sequence[str], status: int, stderr: bytes) -> None:
        words = [w.strip() for w in stderr.decode(errors="replace").splitlines() if w.strip()]
        super().__init__(node, f"`{shown(argv)}` ended with {status}" + (f": {words[-1][:300]}" if words else ""))
        self.argv, self.status, self.stderr = tuple(argv), status, stderr


def shown(argv: Sequence[str]) -> str:
    """A command for a message: on one line, no longer than a person reads."""
    text = " ".join(shlex.join(argv).split())
    return text if len(text) <= 120 else text[:119] + "…"


# In this order: the first that matches decides. {said} is ssh's own line, {dest} the target as it was named.
_TABLE: tuple[tuple[str, type[NodeError], str], ...] = (
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        HostKeyChanged,
        "it shows another host key than the known one: after a reinstallation `ssh-keygen -R {dest}`, then log in once",
    ),
    (
        r"Host key verification failed|host key is known for",
        HostKeyUnknown,
        "its host key was never accepted here: log in once with `ssh {dest}`, and compare the fingerprint",
    ),
    (
        r"Permission denied|Too many authentication failures|No supported authentication methods",
        KeyRefused,
        "it takes none of our ssh keys, and nothing is asked for a password: run `ssh-copy-id {dest}` ({said})",
    ),
    (
        r"Could not resolve hostname",
        NameUnknown,
        "the name does not resolve: correct it, or give an address or an alias of ~/.ssh/config ({said})",
    ),
    (
        r"onfiguration option|contains invalid char|Bad owner|Can't open user config|extra arguments|too long for Unix domain",
        SshUnusable,
        "ssh refuses: {said}",
    ),
    (
        r"Connection refused",
        Unreachable,
        "its address answers, but no ssh server listens there: start sshd, or correct the port ({said})",
    ),
    (
        r"timed out|No route to host|Network is unreachable|Host is down|not responding",
        Unreachable,
        "nothing answers at its address: is it on, and the cable in? ({said})",
    ),
    (
        r"Connection (closed|reset)|kex_exchange_identification|Broken pipe|banner exchange|Connection to .* closed",
        Unreachable,
        "the connection was closed before the login was done ({said})",
    ),
)


def classify(node: str, destination: str, stderr: bytes) -> NodeError:
    """The error that ssh's messages at connecting stand for."""
    text = stderr.decode(errors="replace")
    for pattern, kind, message in _TABLE:
        match = re.search(pattern, text)
        if match:
            said = next((w for w in text.splitlines() if re.search(pattern, w)), "").strip().rstrip(".")
            return kind(node, message.format(dest=destination, said=said))
    words = [w.strip() for w in text.splitlines() if w.strip()]
    return Unreachable(node, f"ssh could not connect: {words[-1] if words else 'it said nothing'}")
