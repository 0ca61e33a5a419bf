"""A node behind a real sshd: each trouble in its own class, a connection that comes back, Docker's socket, no secret seen."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from build.nodes.node import SshNode, put
from build.nodes.ssh_errors import (
    ConnectionLost,
    DeadlinePassed,
    HostKeyChanged,
    HostKeyUnknown,
    KeyRefused,
    NameUnknown,
    NoAnswer,
    SshUnusable,
    Unreachable,
)
from build.nodes.ssh_link import Destination
from tests.testbed import daemons
from tests.testbed.bed import Testbed
from tests.testbed.layout import LAN, NETWORKS, RAIL0
from tests.testing.nodes import ssh_node

pytestmark = pytest.mark.testbed


@pytest.fixture
def node(testbed: Testbed) -> Iterator[SshNode]:
    made = ssh_node(testbed)
    yield made
    made.close()


def reason(node: SshNode) -> BaseException:
    """Why a trivial command cannot run there."""
    try:
        node.run(["true"], 5)
    except Exception as error:
        return error
    finally:
        node.close()
    raise AssertionError("it could")


def test_an_unknown_name(testbed: Testbed) -> None:
    assert isinstance(reason(ssh_node(testbed, "nowhere.invalid")), NameUnknown)


def test_a_refused_key(testbed: Testbed, tmp_path: Path) -> None:
    empty = tmp_path / "none"
    empty.touch(0o600)
    error = reason(
        ssh_node(
            testbed,
            testbed.worker.name,
            "-oIdentitiesOnly=yes",
            "-F",
            "/dev/null",
            f"-oUserKnownHostsFile={known(testbed)}",
            "-i",
            str(empty),
        )
    )
    assert isinstance(error, NameUnknown)  # without the alias there is no such name
    address = testbed.worker.plan.address()
    error = reason(ssh_node(testbed, address, "-F", "/dev/null", f"-oUserKnownHostsFile={known(testbed)}", "-i", str(empty)))
    assert isinstance(error, KeyRefused)
    assert f"ssh-copy-id {address}" in str(error)


def known(testbed: Testbed) -> Path:
    return testbed.head.plan.home / ".ssh/known_hosts"


def test_a_host_key_that_nobody_accepted(testbed: Testbed) -> None:
    assert isinstance(reason(ssh_node(testbed, testbed.worker.name, "-oUserKnownHostsFile=/dev/null")), HostKeyUnknown)


def test_a_changed_host_key(testbed: Testbed) -> None:
    worker = testbed.worker
    daemons.new_host_key(worker.plan)
    worker.restart_sshd()
    try:
        error = reason(ssh_node(testbed))
        assert isinstance(error, HostKeyChanged)
        assert "ssh-keygen -R" in str(error)
    finally:
        daemons.write_known_hosts(testbed.layout)


def test_no_sshd_at_the_address(testbed: Testbed) -> None:
    testbed.worker.stop_sshd()
    try:
        error = reason(ssh_node(testbed))
        assert isinstance(error, Unreachable)
        assert "no ssh server" in str(error)
    finally:
        testbed.worker.restart_sshd()


def test_a_pulled_cable(testbed: Testbed) -> None:
    testbed.worker.link(RAIL0, up=False)
    error = reason(ssh_node(testbed))
    assert isinstance(error, Unreachable)
    assert "cable" in str(error)


def test_a_target_that_is_an_option_is_refused_before_any_ssh_runs() -> None:
    with pytest.raises(SshUnusable, match="dash"):
        Destination("worker", "-oProxyCommand=true")


def test_a_connection_that_dies_in_the_middle_of_a_command(testbed: Testbed, node: SshNode) -> None:
    node.run(["true"], 10)
    cut = threading.Timer(1.0, testbed.worker.stop_sshd)
    cut.start()
    began = time.monotonic()
    try:
        with pytest.raises(ConnectionLost, match="sleep 30"):
            node.run(["sleep", "30"], 60)
        assert time.monotonic() - began < 20
    finally:
        cut.join()
        testbed.worker.restart_sshd()
    assert node.run(["echo", "again"], 20).text == "again\n"


def test_a_silent_network_is_noticed_at_the_deadline(testbed: Testbed, node: SshNode) -> None:
    node.run(["true"], 10)
    for rail in NETWORKS:
        testbed.worker.lose(rail, 1.0)
    began = time.monotonic()
    with pytest.raises(DeadlinePassed, match="no answer within 1 s"):
        node.run(["true"], 1)
    assert time.monotonic() - began < 12
    testbed.heal()
    assert node.run(["echo", "back"], 20).text == "back\n"


def test_failures_are_not_hammered(testbed: Testbed) -> None:
    testbed.worker.stop_sshd()
    node = ssh_node(testbed)
    try:
        for _ in range(4):
            with pytest.raises(Unreachable):
                node.run(["true"], 5)
        began = time.monotonic()
        with pytest.raises(Unreachable):
            node.run(["true"], 0.05)  # shorter than the pause: the last failure again, at once
        assert time.monotonic() - began < 0.5
    finally:
        testbed.worker.restart_sshd()
        node.close()


def test_a_noisy_account_is_understood(testbed: Testbed) -> None:
    bashrc = testbed.worker.plan.home / ".bashrc"
    bashrc.write_text(
        "echo welcome; echo '{\"a\": 1}'; echo 'MemAvailable: 1 kB'; echo noise >&2; export LC_ALL=de_DE.UTF-8 LANGUAGE=de\n"
    )
    node = ssh_node(testbed, f"bashy@{testbed.worker.name}")
    try:
        done = node.run(["sh", "-c", "echo answer; echo $LC_ALL; echo mine >&2"], 10)
        assert (done.text, done.stderr) == ("answer\nC\n", b"mine\n")
    finally:
        node.close()
        bashrc.unlink()


def test_an_account_whose_start_up_ends_early(testbed: Testbed) -> None:
    bashrc = testbed.worker.plan.home / ".bashrc"
    bashrc.write_text("exit 0\n")
    try:
        assert isinstance(reason(ssh_node(testbed, f"bashy@{testbed.worker.name}")), NoAnswer)
    finally:
        bashrc.unlink()


def test_docker_answers_over_the_connection_and_again_after_it_was_lost(testbed: Testbed, node: SshNode) -> None:
    assert docker_name(node.docker_socket()) == testbed.worker.name
    testbed.worker.restart_sshd()
    assert docker_name(node.docker_socket()) == testbed.worker.name


def docker_name(path: Path) -> str:
    """The name that the dockerd behind a socket gives itself."""
    import json

    link = http.client.HTTPConnection("docker", timeout=20)
    link.sock = socket.socket(socket.AF_UNIX)
    link.sock.settimeout(20)
    link.sock.connect(str(path))
    try:
        link.request("GET", "/info")
        return str(json.loads(link.getresponse().read())["Name"])
    finally:
        link.close()


def test_a_stopped_dockerd_does_not_block_for_longer_than_the_clients_time(testbed: Testbed, node: SshNode) -> None:
    path = node.docker_socket()
    testbed.worker.freeze_dockerd()
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(1.0)
            link.connect(str(path))
            link.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            with pytest.raises(TimeoutError):
                link.recv(1)
    finally:
        testbed.worker.thaw_dockerd()


def test_other_networks_and_ipv6_lead_there_too(testbed: Testbed) -> None:
    name = testbed.worker.name
    for target, end in ((f"{name}-lan", testbed.worker.plan.address(LAN)), (f"{name}-v6", "2001:db8::2")):
        node = ssh_node(testbed, target)
        assert node.run(["sh", "-c", "echo ${SSH_CONNECTION% *}"], 20).text.split()[2] == end
        node.close()


def test_a_secret_is_in_no_argument_list_on_either_side(testbed: Testbed, node: SshNode) -> None:
    secret = b"s3cr3t-of-this-test"
    found: list[bytes] = []
    done = threading.Event()
    node.run(["true"], 10)

    def watch() -> None:
        while not done.is_set():
            for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    found.append(cmdline.read_bytes())
                except OSError:
                    continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        put(node, secret, PurePosixPath("secret-test"), mode=0o600)
        assert node.run(["sh", "-c", "cat; sleep 0.5"], 10, stdin=secret).stdout == secret
    finally:
        done.set()
        watcher.join()
        node.run(["rm", "secret-test"], 10)
    assert any(b"sleep" in argv for argv in found)
    assert not any(secret in argv for argv in found)


def test_the_connection_ends_with_its_user_and_its_folder_is_private(testbed: Testbed) -> None:
    node = ssh_node(testbed)
    path = node.docker_socket()
    assert path.parent.stat().st_mode & 0o777 == 0o700
    node.close()
    assert not path.parent.exists()


def test_a_forwarded_socket_that_is_taken_back_is_gone_and_the_others_stay(node: SshNode) -> None:
    docker = node.docker_socket()
    path = node.forward("/run/nobody.sock", 10)
    alias = path.with_name("alias")  # the same socket, whose name nobody takes away
    alias.hardlink_to(path)
    assert listens(alias)
    node.unforward("/run/nobody.sock", 10)
    assert not listens(alias)
    assert not path.exists()
    node.unforward("/run/nobody.sock", 10)
    assert docker_name(docker)
    again = node.forward("/run/nobody.sock", 10)
    assert again not in (path, docker)
    assert listens(again)


def listens(path: Path) -> bool:
    """Whether somebody takes connections at a unix socket."""
    with socket.socket(socket.AF_UNIX) as link:
        try:
            link.connect(str(path))
        except ConnectionRefusedError:
            return False
    return True
