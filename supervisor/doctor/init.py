"""``supervisor init``: asks what cannot be found, finds the links, writes config.toml, and shows what the doctor says.

Every answer can be a flag: ``--worker``, ``--target``, or ``--set key=value`` for any setting. Without a terminal nothing is
asked, and what was not given keeps its default. A config.toml that is there keeps its other lines.
"""

from __future__ import annotations

import re
import stat
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path

from build.errors import Refused, UsageError
from build.nodes.hosts import HEAD
from build.settings import Sources
from build.store import durable
from supervisor.configuration import configure
from supervisor.doctor import report
from supervisor.doctor.examine import Examination, live
from supervisor.doctor.inquiry import inquire
from supervisor.doctor.probe import probe

QUESTIONS = (
    ("target", "Target to serve (a file of lockfiles/ without .toml)", "demo"),
    ("worker", "ssh target of the worker: user@host or an alias; empty for this host alone", ""),
)


def init(args: Namespace, sources: Sources, ask: Callable[[str], str] | None) -> int:
    """The doctor's exit code. ``ask`` puts a question to a person; None where nobody is there."""
    file: Path = args.out or sources.file or Path("config.toml")
    answers = {**_answers(args, sources.flags, ask), **{k: v for k, v in sources.flags.items() if k != "target"}}
    if answers.get("worker"):
        answers.setdefault("runner", "docker")
    found, peers = _examined(Sources(None, _unset(sources.environ, answers), answers))
    if peers and not answers.get("fabric_peer"):
        answers["fabric_peer"] = " ".join(peers)
    wanted = {key: value for key, value in answers.items() if value != ""}
    write(file, wanted)
    print(f"wrote {file}:")
    print("".join(f"  {line}\n" for line in lines(wanted)))
    print(report.as_text(found))
    return Refused.exit_code if found.forbidden else 0


def lines(answers: Mapping[str, object]) -> list[str]:
    """The settings as lines of TOML."""
    return [f"{key} = {_toml(value)}" for key, value in answers.items()]


def merged(content: str, answers: Mapping[str, object]) -> str:
    """A config.toml with these keys set: their own lines replaced, new ones put before the first table, all else as it was."""
    kept = content.splitlines()
    left = dict(zip(answers, lines(answers), strict=True))
    table = next((at for at, line in enumerate(kept) if line.lstrip().startswith("[")), len(kept))
    for at in range(table):
        match = re.match(r"\s*([A-Za-z0-9_]+)\s*=", kept[at])
        if match and match[1] in left:
            kept[at] = left.pop(match[1])
    return "\n".join([*kept[:table], *left.values(), *kept[table:]]).strip("\n") + "\n"


def write(file: Path, answers: Mapping[str, object]) -> None:
    """Set these keys in a config.toml, whose mode stays. ``UsageError`` where it cannot be written."""
    try:
        before = file.read_text(encoding="utf-8") if file.exists() else ""
        mode = stat.S_IMODE(file.stat().st_mode) if before else 0o644
        durable.replace_file(file, merged(before, answers).encode(), mode)
    except OSError as error:
        raise UsageError(f"{file} cannot be written ({error.strerror}): name another with --out") from None


def _answers(args: Namespace, flags: Mapping[str, object], ask: Callable[[str], str] | None) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, question, default in QUESTIONS:
        given = getattr(args, key, None) or flags.get(key)
        if given is None and ask is not None:
            given = ask(f"{question} [{default}]: ").strip()
        found[key] = given or default
    return found


def _examined(sources: Sources) -> tuple[Examination, tuple[str, ...]]:
    """What the doctor finds, and each worker's address on the first rail."""
    inquiry = inquire(configure(sources))
    opened = inquiry.open()
    try:
        found, _ = live(inquiry, opened, probe)
    finally:
        for node in opened.values():
            node.close()
    ends = found.links.rails[0].ends if found.links.rails else ()
    return found, tuple(end.address for end in ends if end.node != HEAD)


def _unset(environ: Mapping[str, str], answers: Mapping[str, object]) -> dict[str, str]:
    """The environment without what was answered here: an answer of "no worker" counts too."""
    taken = {name for key in answers for name in (key.upper(), f"TWINFOLD_{key.upper()}")}
    return {name: value for name, value in environ.items() if name not in taken}


def _toml(value: object) -> str:
    """A TOML value; a flag's text that reads as a number or a truth value is one."""
    word = str(value)
    if isinstance(value, bool) or word in {"true", "false"}:
        return word.lower()
    if re.fullmatch(r"-?\d+(\.\d+)?", word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
