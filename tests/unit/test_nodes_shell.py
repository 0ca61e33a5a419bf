"""The command line that any login shell runs alike, and the answer among what shells print besides."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from build.nodes import remote_shell
from build.nodes.remote_shell import Marks
from tests.testbed.processes import gone, wait_until
from tests.testing.cases import case

MARKS = Marks.of("0123456789ab")
SHELLS = [shell for shell in ("bash", "dash", "fish", "zsh") if shutil.which(shell)]
WORDS = [
    "plain",
    "two words",
    "it's",
    'say "no"',
    "$HOME",
    "`id`",
    "\\n",
    "back\\",
    "*",
    "",
    "-n",
    "ünï",
    "line\nbreak",
    "!x",
    "(x)",
    "a;b",
    "{a,b}",
]


def through(shell: str, argv: list[str], deadline_s: float = 30.0, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run a command as sshd does with that login shell."""
    line = remote_shell.line(argv, MARKS, deadline_s)
    return subprocess.run([shell, "-c", line], input=stdin, capture_output=True, timeout=60, check=False)


@pytest.mark.parametrize("shell", SHELLS)
def test_words_arrive_as_they_were_given(shell: str) -> None:
    found = remote_shell.answer(through(shell, ["printf", "%s\\0", *WORDS]).stdout, MARKS)
    assert found is not None
    assert found.content.decode().split("\0")[:-1] == WORDS


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("status", [0, 1, 3, 124, 255])
def test_statuses_are_exact(shell: str, status: int) -> None:
    done = through(shell, ["sh", "-c", f"echo out; exit {status}"])
    assert remote_shell.answer(done.stdout, MARKS) == remote_shell.Answer(b"out\n", status)
    assert done.returncode == status


@pytest.mark.parametrize("shell", SHELLS)
def test_standard_input_reaches_the_command_byte_by_byte(shell: str) -> None:
    data = bytes(range(256)) * 100 + b"no line end"
    found = remote_shell.answer(through(shell, ["cat"], stdin=data).stdout, MARKS)
    assert found == remote_shell.Answer(data, 0)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_deadline_ends_the_whole_process_group(shell: str) -> None:
    stubborn = "trap '' TERM; sleep 300 & echo $!; wait; wait; sleep 300"
    found = remote_shell.answer(through(shell, ["sh", "-c", stubborn], 0.5).stdout, MARKS)
    assert found is not None
    assert found.status == 137
    wait_until(lambda: gone(int(found.content.split()[0])), 10, "a survivor of the group runs")


def test_what_ignores_the_polite_signal_is_killed_with_its_group() -> None:
    survivor = "(trap '' TERM; exec sleep 300) & echo $!; exec sleep 300"
    found = remote_shell.answer(through("sh", ["sh", "-c", survivor], 0.5).stdout, MARKS)
    assert found is not None
    assert found.status == 124
    wait_until(lambda: gone(int(found.content.split()[0])), 10, "a survivor of the group runs")


def test_answers_are_in_the_neutral_language_whatever_the_account_sets() -> None:
    done = through("bash", ["sh", "-c", "awk 'BEGIN { print 121690 / 1000 }'; echo $LC_ALL.$LANGUAGE"])
    found = remote_shell.answer(done.stdout, MARKS)
    assert found is not None
    assert found.content == b"121.69\nC.\n"


def test_a_command_longer_than_the_kernel_takes_is_refused() -> None:
    with pytest.raises(ValueError, match="standard input"):
        remote_shell.line(["echo", "x" * remote_shell.LINE_MAX_BYTES], MARKS, 1)


def test_noise_round_the_answer_is_ignored() -> None:
    noisy = case("ssh-banner-noise")
    found = remote_shell.answer(noisy.raw("input-stdout.txt"), Marks("@@BEGIN@@", "@@END@@"))
    assert found is not None
    assert found.status == noisy.expect["command_status"]
    assert json.loads(found.content) == noisy.expect["answer"]
    # stderr holds only noise: no mark, so nothing of it is shown as an error
    assert remote_shell.answer(noisy.raw("input-stderr.txt"), Marks("@@BEGIN@@", "@@END@@")) is None


@given(noise=st.binary(max_size=60), tail=st.binary(max_size=60), content=st.binary(max_size=200), status=st.integers(0, 255))
def test_any_content_comes_back_from_any_noise(noise: bytes, tail: bytes, content: bytes, status: int) -> None:
    printed = noise + f"{MARKS.begin}\n".encode() + content + f"\n{MARKS.end} {status}\n".encode() + tail
    assert remote_shell.answer(printed, MARKS) == remote_shell.Answer(content, status)


@given(cut=st.integers(0, 10_000))
def test_a_cut_stream_never_gives_a_status(cut: int) -> None:
    printed = f"motd\n{MARKS.begin}\nhello\n{MARKS.end} 0\n".encode()
    found = remote_shell.answer(printed[: cut % (len(printed) - 2)], MARKS)
    assert found is None or found.status is None
