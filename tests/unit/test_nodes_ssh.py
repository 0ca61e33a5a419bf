"""ssh's words told apart, the back-off, and an end told from a cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from build.errors import Refused
from build.facts import meminfo
from build.nodes import ssh_errors, ssh_link, ssh_run
from build.nodes.remote_shell import Marks
from build.nodes.ssh_errors import (
    CommandFailed,
    ConnectionLost,
    DeadlinePassed,
    HostKeyChanged,
    HostKeyUnknown,
    KeyRefused,
    NameUnknown,
    NodeError,
    SshUnusable,
    Unreachable,
)
from build.nodes.ssh_run import Order, Printed
from tests.testing.cases import case

MARKS = Marks.of("f00d")
ORDER = Order(("true",), 5.0, MARKS)


@pytest.mark.parametrize(
    ("said", "kind", "advice"),
    [
        (
            "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\nHost key verification failed.",
            HostKeyChanged,
            "ssh-keygen -R",
        ),
        ("No ED25519 host key is known for 192.0.2.2 and you have requested strict checking.", HostKeyUnknown, "fingerprint"),
        ("Host key verification failed.", HostKeyUnknown, "fingerprint"),
        ("ops@192.0.2.2: Permission denied (publickey,password).", KeyRefused, "ssh-copy-id"),
        ("Received disconnect from 192.0.2.2 port 22:2: Too many authentication failures", KeyRefused, "ssh-copy-id"),
        ("ssh: Could not resolve hostname spark-x: Name or service not known", NameUnknown, "alias"),
        ("ssh: connect to host 192.0.2.2 port 22: Connection refused", Unreachable, "sshd"),
        ("ssh: connect to host 192.0.2.9 port 22: No route to host", Unreachable, "cable"),
        ("ssh: connect to host 192.0.2.9 port 22: Connection timed out", Unreachable, "cable"),
        ("kex_exchange_identification: read: Connection reset by peer", Unreachable, "login"),
        ("/root/.ssh/config: line 3: Bad configuration option: frob", SshUnusable, "frob"),
        ("Bad owner or permissions on /root/.ssh/config", SshUnusable, "permissions"),
        ("something new", Unreachable, "something new"),
        ("", Unreachable, "said nothing"),
    ],
)
def test_each_trouble_has_its_class_and_one_line_of_advice(said: str, kind: type[NodeError], advice: str) -> None:
    error = ssh_errors.classify("spark-b", "ops@192.0.2.2", said.encode())
    assert type(error) is kind
    assert str(error).startswith("spark-b: ")
    assert advice in str(error)
    assert "\n" not in str(error)
    assert isinstance(error, Refused)


@given(failures=st.integers(0, 200), jitter=st.floats(0, 1))
def test_the_back_off_grows_and_is_bounded(failures: int, jitter: float) -> None:
    pause_s = ssh_link.pause_s(failures, jitter)
    assert 0 <= pause_s <= ssh_link.PAUSE_MAX_S
    assert pause_s <= ssh_link.pause_s(failures + 1, jitter)


@pytest.mark.parametrize("target", ["-oProxyCommand=touch /tmp/x", "", "a b", "a\nb", "a\x00b"])
def test_a_target_that_ssh_would_misread_never_reaches_it(target: str) -> None:
    with pytest.raises(SshUnusable):
        ssh_link.Destination("spark-b", target)


def finished(status: int, took_s: float = 0.1) -> Printed:
    return Printed(
        f"{MARKS.begin}\nout\n{MARKS.end} {status}\n".encode(), f"{MARKS.begin}\nerr\n{MARKS.end} 0\n".encode(), took_s
    )


def test_a_whole_answer_is_taken_whatever_its_status() -> None:
    assert ssh_run.judge("b", ORDER, finished(255)) == (b"out", b"err", 255)


def test_a_status_of_timeout_counts_as_one_only_at_the_deadline() -> None:
    assert ssh_run.judge("b", ORDER, finished(124))[2] == 124
    with pytest.raises(DeadlinePassed, match="`true` did not end within 5 s"):
        ssh_run.judge("b", ORDER, finished(124, 5.1))


@pytest.mark.parametrize("out", [b"", b"motd\n", f"{MARKS.begin}\nhalf of".encode()])
def test_an_answer_without_an_end_is_a_lost_connection(out: bytes) -> None:
    with pytest.raises(ConnectionLost, match="`true`"):
        ssh_run.judge("b", ORDER, Printed(out, b"client_loop: send disconnect: Broken pipe\r\n", 1.0))


def test_a_failed_command_shows_the_last_line_it_said() -> None:
    spoken = case("ssh-locale-output")
    error = CommandFailed("spark-b", ["cat", spoken.expect["missing_file"]["path"]], 1, spoken.raw("input-nofile-de.txt"))
    assert error.status == 1
    assert error.argv[-1] == "/data/hf/MANIFEST"
    missing = CommandFailed("spark-b", [spoken.expect["missing_command"]["command"]], 127, spoken.raw("input-nocmd-de.txt"))
    assert missing.status == 127


def test_memory_is_read_where_no_language_reaches() -> None:
    spoken = case("ssh-locale-output")
    seen = meminfo(spoken.text("input-meminfo"))
    assert seen.total_bytes == spoken.expect["total_bytes"]
    assert seen.available_bytes == spoken.expect["available_bytes"]
