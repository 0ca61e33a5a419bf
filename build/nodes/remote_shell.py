"""One command line for whatever login shell a node has, and the answer picked out of what that shell says besides.

sshd hands the command to the account's login shell (``SHELL -c LINE``), which may be bash, dash, fish or another. So the line
uses nothing that they read differently: a POSIX script, encoded, that ``sh`` decodes and runs. The script prints marks of its
own round the answer on both streams, because start-up files may print in front of it and behind it. Everything here is pure.
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

LINE_MAX_BYTES = 100_000  # Linux takes 128 KiB as one argument (MAX_ARG_STRLEN)
KILL_AFTER_S = 2  # between the polite signal and SIGKILL at the deadline


@dataclass(frozen=True, slots=True)
class Marks:
    """What is printed in front of an answer, and behind it before its exit status; unlike anything else that is printed."""

    begin: str
    end: str

    @classmethod
    def of(cls, nonce: str) -> Marks:
        """Marks that hold a random word."""
        return cls(f"@@twinfold-{nonce}-begin@@", f"@@twinfold-{nonce}-end@@")


@dataclass(frozen=True, slots=True)
class Answer:
    """What stood between the marks. ``status`` is None where the end is missing: the command was cut off."""

    content: bytes
    status: int | None


def line(argv: Sequence[str], marks: Marks, deadline_s: float) -> str:
    """The line to give to ssh. ``ValueError`` where it would be longer than the kernel takes."""
    encoded = base64.b64encode(script(argv, marks, deadline_s).encode("utf-8", "surrogateescape")).decode()
    made = f"exec sh -c 'eval \"$(echo {encoded} | base64 -d)\"'"
    if len(made) > LINE_MAX_BYTES:
        raise ValueError(f"a command of {len(made)} bytes is longer than {LINE_MAX_BYTES}: long lists go through standard input")
    return made


def script(argv: Sequence[str], marks: Marks, deadline_s: float) -> str:
    """The POSIX script: marks, the command under ``timeout`` in a process group of its own, its exact status.

    ``timeout`` ends when its child does; what else of the group has survived the polite signal is killed after it. The command
    reads the script's own standard input (a background command would else get /dev/null).
    """
    command = shlex.join(["timeout", "-k", str(KILL_AFTER_S), f"{deadline_s:.3f}", *argv])
    return (
        "unset LANGUAGE; LC_ALL=C; export LC_ALL\n"
        f"echo '{marks.begin}'; echo '{marks.begin}' >&2\n"
        "exec 3<&0\n"
        f"{command} <&3 3<&- &\n"
        "p=$!; exec 3<&- </dev/null; wait $p; s=$?\n"
        "case $s in 124|137) kill -9 -$p 2>/dev/null ;; esac\n"
        f"echo; echo '{marks.end}' $s; echo >&2; echo '{marks.end}' $s >&2\n"
        "exit $s\n"
    )


def answer(printed: bytes, marks: Marks) -> Answer | None:
    """The answer in what a stream carried; None where it never began. The line break that the script adds is taken off again."""
    begin = re.search(rb"(?:^|\n|(?<=[^\n]))" + re.escape(marks.begin.encode()) + rb"\r?\n", printed)
    if begin is None:
        return None
    rest = printed[begin.end() :]
    end = re.search(rb"(?:^|\n)" + re.escape(marks.end.encode()) + rb" (\d+)\r?(?:\n|$)", rest)
    if end is None:
        return Answer(rest, None)
    return Answer(rest[: end.start()], int(end[1]))
