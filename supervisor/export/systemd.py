"""A systemd unit that runs the supervisor with exactly the settings of whoever exported it. Pure.

Directives are those of systemd 252 to 255 (Debian 12, DGX OS 7): systemd.unit(5), systemd.service(5), systemd.exec(5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from build.errors import GaveUp, PinsMissing, UsageError
from supervisor.configuration import Configuration, values

WATCHDOG_S = 30  # the loop turns every 5 s at the latest
STOP_MARGIN_S = 45  # kills that must be repeated, logs to compress and save
RESTART_S = 10
# Ends that another start would only repeat: a person has to look.
HOPELESS = (UsageError.exit_code, GaveUp.exit_code, PinsMissing.exit_code)


@dataclass(frozen=True, slots=True)
class Where:
    """The installation that the unit starts: the checkout, its ``supervisor`` script, and the user.

    ``engine_env`` are engine variables of the exporting environment; those of config.toml are read from there.
    """

    checkout: Path
    program: Path
    user: str
    home: Path
    engine_env: tuple[tuple[str, str], ...] = ()


def unit(one: Configuration, where: Where) -> str:
    """The unit's text, ending in a newline."""
    sections = {
        "Unit": _unit(one),
        "Service": [*_service(one, where), *_hardening(one)],
        "Install": [("WantedBy", "multi-user.target")],
    }
    return "\n".join(_section(name, lines) for name, lines in sections.items())


def given(one: Configuration) -> tuple[str, ...]:
    """Settings that came from the environment or from flags, as ``--set`` arguments: a service has neither."""
    shown = values(one)
    return tuple(
        f"--set={name}={_plain(shown[name])}"
        for name, origin in sorted(one.origins.items())
        if origin.kind in {"environment", "flag"} and name not in {"target", "state_dir"}
    )


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _unit(one: Configuration) -> list[tuple[str, str]]:
    after = "network-online.target docker.service" if one.serve.runner == "docker" else "network-online.target"
    return [
        ("Description", f"twinfold: {_literal(one.places.target)} served by one gang of ranks"),
        ("Wants", after),
        ("After", after),
        ("StartLimitIntervalSec", "0"),
    ]


def _service(one: Configuration, where: Where) -> list[tuple[str, str]]:
    command = [
        str(where.program),
        "run",
        f"--target={one.places.target}",
        f"--state-dir={one.state_dir}",
        *given(one),
    ]
    engine = [("Environment", _quoted(f"{name}={value}", dollar=False)) for name, value in where.engine_env]
    return [
        ("Type", "notify"),
        ("NotifyAccess", "main"),
        ("User", where.user),
        ("WorkingDirectory", _literal(str(where.checkout))),
        ("Environment", _quoted(f"HOME={where.home}", dollar=False)),
        *engine,
        ("ExecStart", " ".join(_quoted(word) for word in command)),
        # loading takes as long as it takes: the supervisor has limits of its own, and leaves by itself when they are passed
        ("TimeoutStartSec", "infinity"),
        ("WatchdogSec", str(WATCHDOG_S)),
        # only the supervisor is signalled: it ends its ranks in order, and those of a dead one are adopted by the next
        ("KillMode", "process"),
        ("TimeoutStopSec", str(one.serve.stop_timeout + STOP_MARGIN_S)),
        ("Restart", "on-failure"),
        ("RestartSec", str(RESTART_S)),
        ("RestartPreventExitStatus", " ".join(str(code) for code in HOPELESS)),
    ]


def _hardening(one: Configuration) -> list[tuple[str, str]]:
    """What a supervisor never needs is closed. Devices stay: ranks that run as processes inherit what it may use."""
    return [
        ("UMask", "0077"),
        ("LimitMEMLOCK", "infinity"),
        # guards inherit it: the kernel must not choose them when memory runs out; ranks set their own
        ("OOMScoreAdjust", "-1000"),
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("ReadWritePaths", _quoted(str(one.state_dir), dollar=False)),
        ("ProtectKernelTunables", "yes"),
        ("ProtectKernelModules", "yes"),
        ("ProtectKernelLogs", "yes"),
        ("ProtectControlGroups", "yes"),
        ("ProtectClock", "yes"),
        ("ProtectHostname", "yes"),
        ("RestrictNamespaces", "yes"),
        ("RestrictSUIDSGID", "yes"),
        ("RestrictAddressFamilies", "AF_UNIX AF_INET AF_INET6 AF_NETLINK"),
        ("LockPersonality", "yes"),
        ("SystemCallArchitectures", "native"),
    ]


def _section(name: str, lines: Sequence[tuple[str, str]]) -> str:
    return f"[{name}]\n" + "".join(f"{key}={value}\n" for key, value in lines)


def _literal(text: str) -> str:
    """Percent signs are specifiers in a unit (systemd.unit(5))."""
    return text.replace("%", "%%")


ESCAPES: Mapping[str, str] = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}


def _quoted(word: str, *, dollar: bool = True) -> str:
    """A word as systemd reads it back whole (systemd.syntax(7)); in command lines ``$`` begins a variable too."""
    escaped = "".join(ESCAPES.get(letter, letter) for letter in _literal(word))
    escaped = escaped.replace("$", "$$") if dollar else escaped
    plain = escaped == word and word and not any(letter.isspace() or letter in "';" for letter in word)
    return escaped if plain else f'"{escaped}"'
