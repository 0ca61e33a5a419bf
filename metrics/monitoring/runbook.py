"""A page a person opens when an alert fires: what it means, what to look at, what to do. Pure."""

from __future__ import annotations

from metrics.monitoring.alerts import ALERTS, Alert


def page(alert: Alert) -> str:
    """One alert's page."""
    held = f"for {alert.hold_s} s" if alert.hold_s else "at once"
    parts = [
        f"# {alert.name}",
        f"Severity: {alert.severity}. Fires {held} when",
        f"```promql\n{alert.expression}\n```",
        f"## What it means\n\n{alert.means}",
        "## What to look at\n\n" + _steps(alert.look),
        "## What to do\n\n" + _steps(alert.act),
        "All alerts: [README.md](README.md)",
    ]
    return "\n\n".join(parts) + "\n"


def index() -> str:
    """The list of all alerts."""
    rows = "".join(f"| [{one.name}]({one.name}.md) | {one.severity} | {one.means} |\n" for one in ALERTS)
    return (
        "# Alerts\n\nThe rules are `metrics/rules/alerts.yml`; each alert carries its page in its annotation `runbook`.\n\n"
        f"| alert | severity | what it means |\n|---|---|---|\n{rows}"
    )


def _steps(steps: tuple[str, ...]) -> str:
    return "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))
