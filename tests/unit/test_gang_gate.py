"""What becomes of a gate that meets a fault of the machine's."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

from supervisor.gang.gang import Gang, Launch
from supervisor.machine import Event
from supervisor.machine.types import GateRefused


def test_a_full_disk_is_a_refusal_that_says_so() -> None:
    posted = list[Event]()

    def full(*_: object) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device", "/state/run/links.json")

    gang: Any = object.__new__(Gang)
    gang._gating, gang._post, gang._clock = SimpleNamespace(pass_through=full), posted.append, lambda: 0.0
    gang._board = SimpleNamespace(state=SimpleNamespace(policy=SimpleNamespace(world_size=2)))
    gang._gate(Launch(3))
    (refused,) = posted
    assert isinstance(refused, GateRefused)
    assert (refused.launch, refused.exit_code) == (3, 3)
    assert "No space left on device: '/state/run/links.json'" in refused.why
