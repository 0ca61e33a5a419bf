"""A process's container, read from its control groups under both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.runners.docker_owner import container_in, container_of

ID = "0123456789ab" + "cd" * 26


@pytest.mark.parametrize(
    ("cgroup", "container"),
    [
        (f"12:devices:/docker/{ID}\n11:cpu,cpuacct:/docker/{ID}\n", "0123456789ab"),
        (f"0::/system.slice/docker-{ID}.scope\n", "0123456789ab"),
        (f"0::/kubepods.slice/cri-containerd-{ID}.scope\n", "0123456789ab"),
        ("12:devices:/user.slice\n0::/user.slice/user-0.slice/session-1.scope\n", ""),
        (f"0::/f{ID}\n", ""),
        ("", ""),
    ],
)
def test_the_containers_id_is_found_in_either_form(cgroup: str, container: str, tmp_path: Path) -> None:
    assert container_in(cgroup) == container
    (tmp_path / "7").mkdir()
    (tmp_path / "7/cgroup").write_text(cgroup)
    assert container_of(7, tmp_path) == container


def test_a_process_that_is_gone_is_in_none(tmp_path: Path) -> None:
    assert container_of(7, tmp_path) == ""
