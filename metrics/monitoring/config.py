"""Configuration for Prometheus and Grafana as plain data. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from metrics.monitoring.alerts import ALERTS, Alert
from metrics.monitoring.recording import recordings
from metrics.monitoring.yamltext import Value

JOB = "twinfold"


@dataclass(frozen=True, slots=True)
class Scrape:
    """What is scraped and how often. ``hold_scale`` shortens how long alerts must hold, for tests against a real Prometheus."""

    target: str = "127.0.0.1:9888"
    every_s: int = 5
    hold_scale: float = 1.0


def prometheus(scrape: Scrape) -> dict[str, Value]:
    """prometheus.yml; paths are relative to it."""
    every = f"{scrape.every_s}s"
    return {
        "global": {"scrape_interval": every, "evaluation_interval": every},
        "rule_files": ["rules/*.yml"],
        "scrape_configs": [
            {
                "job_name": JOB,
                "scrape_timeout": every,
                "static_configs": [{"targets": [scrape.target]}],
            }
        ],
    }


def recording_rules() -> dict[str, Value]:
    """rules/recording.yml."""
    rules: list[Value] = [{"record": one.name, "expr": one.expression} for one in recordings()]
    return {"groups": [{"name": "twinfold-vllm-names", "rules": rules}]}


def alert_rules(scrape: Scrape) -> dict[str, Value]:
    """rules/alerts.yml."""
    return {"groups": [{"name": "twinfold-alerts", "rules": [_alert(alert, scrape) for alert in ALERTS]}]}


def datasources() -> dict[str, Value]:
    """Grafana's provisioning of its data source."""
    one: Value = {
        "name": "Prometheus",
        "type": "prometheus",
        "access": "proxy",
        "url": "http://127.0.0.1:9090",
        "isDefault": True,
    }
    return {"apiVersion": 1, "datasources": [one]}


def providers() -> dict[str, Value]:
    """Grafana's provisioning of the dashboards."""
    one: Value = {
        "name": "twinfold",
        "folder": "twinfold",
        "type": "file",
        "allowUiUpdates": False,
        "options": {"path": "/var/lib/grafana/dashboards"},
    }
    return {"apiVersion": 1, "providers": [one]}


def compose() -> dict[str, Value]:
    """Prometheus and Grafana beside the pair, on the head, reachable from it alone."""
    return {
        "name": "twinfold-monitoring",
        "services": {
            "prometheus": {
                "image": "${PROMETHEUS_IMAGE:-prom/prometheus:v2.53.5}",
                "network_mode": "host",
                "restart": "unless-stopped",
                "command": [
                    "--config.file=/etc/prometheus/prometheus.yml",
                    "--storage.tsdb.path=/prometheus",
                    "--storage.tsdb.retention.time=30d",
                    "--web.listen-address=127.0.0.1:9090",
                ],
                "volumes": [
                    "../prometheus.yml:/etc/prometheus/prometheus.yml:ro",
                    "../rules:/etc/prometheus/rules:ro",
                    "prometheus:/prometheus",
                ],
            },
            "grafana": {
                "image": "${GRAFANA_IMAGE:-grafana/grafana:11.6.0}",
                "network_mode": "host",
                "restart": "unless-stopped",
                "environment": {
                    "GF_SERVER_HTTP_ADDR": "127.0.0.1",
                    "GF_SERVER_HTTP_PORT": "3000",
                    "GF_AUTH_ANONYMOUS_ENABLED": "true",
                    "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer",
                    "GF_ANALYTICS_REPORTING_ENABLED": "false",
                    "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH": "/var/lib/grafana/dashboards/twinfold-pair.json",
                },
                "volumes": [
                    "../grafana/datasources.yml:/etc/grafana/provisioning/datasources/twinfold.yml:ro",
                    "../grafana/dashboards.yml:/etc/grafana/provisioning/dashboards/twinfold.yml:ro",
                    "../dashboards:/var/lib/grafana/dashboards:ro",
                    "grafana:/var/lib/grafana",
                ],
            },
        },
        "volumes": {"prometheus": {}, "grafana": {}},
    }


def _alert(alert: Alert, scrape: Scrape) -> Value:
    rule: dict[str, Value] = {"alert": alert.name, "expr": alert.expression}
    hold_s = round(alert.hold_s * scrape.hold_scale)
    if hold_s:
        rule["for"] = f"{hold_s}s"
    return {
        **rule,
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "description": alert.means, "runbook": f"docs/alerts/{alert.name}.md"},
    }
