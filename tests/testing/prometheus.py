"""A real Prometheus over the generated configuration, asked as Grafana asks it."""

from __future__ import annotations

import http.client
import json
import subprocess
import urllib.parse
from pathlib import Path
from typing import Any

from metrics.monitoring import files
from metrics.monitoring.config import Scrape
from tests.testing.waiting import free_ports, until

HOLD_SCALE = 0.03  # alerts that hold for a minute hold for two seconds


class Prometheus:
    """One server with a data folder of its own, scraping ``target`` every second."""

    def __init__(self, folder: Path, target: str) -> None:
        files.write(folder, Scrape(target=target, every_s=1, hold_scale=HOLD_SCALE))
        (self.port,) = free_ports(1)
        self._log = (folder / "prometheus.log").open("wb")
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'metrics/prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        try:
            until("Prometheus' first scrape", lambda: self.query("up == 1"))
        except BaseException:
            self.close()
            raise

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an instant query; [] while it does not answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", "/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
            reply = connection.getresponse()
            status, body = reply.status, reply.read()
        except OSError:
            return []
        finally:
            connection.close()
        if status == 503:  # it starts
            return []
        assert status == 200, f"{expression}: {body.decode(errors='replace')}"
        found: list[dict[str, Any]] = json.loads(body)["data"]["result"]
        return found

    def firing(self) -> set[str]:
        """Names of alerts that fire now."""
        return {one["metric"]["alertname"] for one in self.query('ALERTS{alertstate="firing"}')}

    def fired(self) -> set[str]:
        """Names of alerts that have fired at any time."""
        return {one["metric"]["alertname"] for one in self.query('max_over_time(ALERTS{alertstate="firing"}[1h])')}

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(30)
        self._log.close()
