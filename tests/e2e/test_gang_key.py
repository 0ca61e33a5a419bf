"""The API beyond loopback: the gang serves behind a key that is made on its first run, and takes its own checks through it."""

from __future__ import annotations

import http.client
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testing.demo import demo_state
from tests.testing.supervised import Supervised

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Supervised]:
    gang = Supervised(demo_state(tmp_path), tmp_path, host="0.0.0.0")
    try:
        yield gang.start().wait_ready()
    finally:
        gang.close()


def models(port: int, key: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"} if key else {})
        return connection.getresponse().status
    finally:
        connection.close()


def test_the_api_beyond_loopback_takes_only_the_key_that_was_made(gang: Supervised) -> None:
    file = gang.state / "api-key"
    assert str(file) in gang.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    key = file.read_text().strip()
    assert [models(gang.port, given) for given in ("", "wrong", key)] == [401, 401, 200]
    assert key not in gang.out + gang.err
    assert gang.command("smoke").returncode == 0
