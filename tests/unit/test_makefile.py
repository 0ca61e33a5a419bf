"""`make venv`, which both commands begin with: made once, made again when it must be, and one clear line when it cannot be.

The project here is the real Makefile and script over a lock of nothing and a build backend of a few lines, so that no test needs
the network; the folder's name holds a space.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ["cat", "cut", "echo", "flock", "grep", "head", "make", "mkdir", "mv", "rm", "sed", "sh", "sha256sum", "tail", "uname"]
PYTHON = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
BACKEND = """
import zipfile
def build_editable(folder, config_settings=None, metadata_directory=None):
    name = "made-1.0-py3-none-any.whl"
    with zipfile.ZipFile(folder + "/" + name, "w") as wheel:
        wheel.writestr("made-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: made\\nVersion: 1.0\\n")
        wheel.writestr("made-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nGenerator: x\\nTag: py3-none-any\\n")
        wheel.writestr("made-1.0.dist-info/RECORD", "")
    return name
def build_wheel(*args, **kwargs):
    raise NotImplementedError
"""
PYPROJECT = (
    '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n[project]\nname = "made"\nversion = "1.0"\n'
)


class Checkout:
    """A small project with the real Makefile, and a PATH that holds what the test put there."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a checkout"
        self.bin = folder / "bin"
        self.env = {"PATH": str(self.bin), "HOME": str(folder), "PIP_CACHE_DIR": str(folder / "cache"), "LC_ALL": "C"}
        (self.root / "lockfiles").mkdir(parents=True)
        self.bin.mkdir()
        shutil.copy(ROOT / "Makefile", self.root)
        shutil.copy(ROOT / "lockfiles" / "venv.sh", self.root / "lockfiles")
        self.lock = self.root / "lockfiles" / "python.txt"
        self.lock.write_text("# nothing\n")
        (self.root / "backend.py").write_text(BACKEND)
        (self.root / "pyproject.toml").write_text(PYPROJECT)
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool) or tool)

    def python(self, name: str = "python3", pretending: str = "") -> None:
        """Put a Python on PATH; ``pretending`` is code it runs before any other, to be less than it is."""
        place = self.bin / name
        if not pretending:
            place.symlink_to(PYTHON)
            return
        place.write_text(f"#!{self.bin}/sh\nexec '{PYTHON}' -I -c '{pretending}\nimport sys; exec(sys.argv[1])' \"$3\"\n")
        place.chmod(0o755)

    def tool(self, name: str, script: str) -> None:
        (self.bin / name).unlink(missing_ok=True)
        (self.bin / name).write_text(f"#!{self.bin}/sh\n{script}\n")
        (self.bin / name).chmod(0o755)

    def make(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["make", *(arguments or ("venv",))],
            check=False,
            cwd=self.root,
            env=self.env | env,
            capture_output=True,
            text=True,
            timeout=280,
        )

    def refusal(self, *arguments: str, **env: str) -> str:
        """The one line of a make that fails, without what make itself says of it."""
        done = self.make(*arguments, **env)
        assert done.returncode != 0
        lines = [line for line in done.stderr.splitlines() if not line.startswith("make: ***")]
        assert len(lines) == 1, done.stderr
        return lines[0]

    @property
    def stamp(self) -> Path:
        return self.root / ".venv" / "twinfold-stamp"


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """One whose .venv is made; tests leave it current."""
    checkout = Checkout(tmp_path_factory.mktemp("made"))
    checkout.python()
    done = checkout.make()
    assert done.returncode == 0, done.stderr + (checkout.root / ".venv/install.log").read_text()
    return checkout


OLD = 'import sys, platform; sys.version_info = (3, 9, 2); platform.python_version = lambda: "3.9.2"'
WITHOUT_VENV = 'import sys; sys.modules["{}"] = None'


def test_no_python_is_one_line(checkout: Checkout) -> None:
    assert checkout.refusal() == "error: no Python 3.11 or later on PATH: install one, or name it with PYTHON=/path/to/python3"


def test_a_too_old_python_is_one_line_that_says_its_version(checkout: Checkout) -> None:
    checkout.python(pretending=OLD)
    assert checkout.refusal() == (
        "error: no Python 3.11 or later on PATH (python3 is version 3.9.2): install one, or name it with PYTHON=/path/to/python3"
    )


def test_a_named_python_that_is_too_old_or_none_is_one_line(checkout: Checkout) -> None:
    checkout.python()
    checkout.python("old", pretending=OLD)
    assert checkout.refusal("venv", "PYTHON=old") == "error: PYTHON=old is version 3.9.2: twinfold needs Python 3.11 or later"
    assert (
        checkout.refusal("venv", "PYTHON=none")
        == "error: PYTHON=none is no Python that runs here: name one of version 3.11 or later"
    )


@pytest.mark.parametrize("module", ["venv", "ensurepip"])
def test_a_missing_venv_module_is_one_line_that_names_the_package(checkout: Checkout, module: str) -> None:
    checkout.python(pretending=WITHOUT_VENV.format(module))
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert checkout.refusal() == (
        f"error: python3 lacks the venv or ensurepip module: install it (Debian and Ubuntu: apt-get install python{version}-venv)"
    )


@pytest.mark.parametrize(("system", "machine"), [("Linux", "riscv64"), ("Darwin", "arm64")])
def test_another_machine_is_one_line(checkout: Checkout, system: str, machine: str) -> None:
    checkout.python()
    checkout.tool("uname", f'[ "$1" = -s ] && echo {system} || echo {machine}')
    assert checkout.refusal() == f"error: twinfold runs on Linux on x86_64 or aarch64, and this is {system} on {machine}"


def test_no_network_is_one_line_that_names_the_log(checkout: Checkout) -> None:
    checkout.python()
    checkout.lock.write_text("absent==1.0 --hash=sha256:" + "0" * 64 + "\n")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: a connection is refused
        said = checkout.refusal(PIP_INDEX_URL=f"http://127.0.0.1:{closed.getsockname()[1]}/simple")
    assert said == (
        "error: .venv could not be made: no network: the package index cannot be reached; connect, or set PIP_INDEX_URL to a"
        " mirror (log: .venv/install.log)"
    )
    assert "absent" in (checkout.root / ".venv" / "install.log").read_text()
    assert not checkout.stamp.exists()


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """A package index on loopback with one package, ``thing`` 1.0."""
    folder = tmp_path / "index" / "thing"
    folder.mkdir(parents=True)
    name = "thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(folder / name, "w") as wheel:
        wheel.writestr("thing.py", "")
        wheel.writestr("thing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n")
        wheel.writestr(
            "thing-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr("thing-1.0.dist-info/RECORD", "")
    (folder / "index.html").write_text(f'<!doctype html><a href="{name}">{name}</a>')

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "index")))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_download_that_differs_from_the_lock_is_one_line(checkout: Checkout, index: str) -> None:
    checkout.python()
    checkout.lock.write_text("thing==1.0 --hash=sha256:" + "0" * 64 + "\n")
    said = checkout.refusal(PIP_INDEX_URL=index)
    assert (
        said
        == "error: .venv could not be made: a download does not match its hash in lockfiles/python.txt (log: .venv/install.log)"
    )


def test_what_the_lock_names_is_installed(checkout: Checkout, index: str, tmp_path: Path) -> None:
    checkout.python()
    wheel = tmp_path / "index" / "thing" / "thing-1.0-py3-none-any.whl"
    checkout.lock.write_text(f"thing==1.0 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
    assert checkout.make(PIP_INDEX_URL=index).returncode == 0
    subprocess.run([checkout.root / ".venv/bin/python", "-I", "-c", "import thing"], check=True, timeout=60)


def test_a_made_one_is_left_as_it_is(made: Checkout) -> None:
    before = made.stamp.stat()
    done = made.make()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    after = made.stamp.stat()  # its access time moves: it is read
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def remade(checkout: Checkout, **env: str) -> bool:
    """Whether make makes .venv anew."""
    witness = checkout.root / ".venv" / "witness"
    witness.touch()
    assert checkout.make(**env).returncode == 0
    return not witness.exists()


def test_a_changed_lock_makes_it_anew(made: Checkout) -> None:
    made.lock.write_text(made.lock.read_text() + "# still nothing\n")
    assert remade(made)
    assert not remade(made)


def test_another_interpreter_makes_it_anew_only_where_one_is_named(made: Checkout) -> None:
    made.tool("python3.13", f"exec '{PYTHON}' \"$@\"")
    assert not remade(made)
    assert not remade(made, PYTHON=PYTHON)
    stamp = made.stamp.read_text()
    made.stamp.write_text(stamp.replace(PYTHON, "/elsewhere/python3.11"))
    assert remade(made, PYTHON=PYTHON)
    assert made.stamp.read_text() == stamp


def test_a_moved_checkout_makes_it_anew(made: Checkout) -> None:
    made.root = made.root.rename(made.root.parent / "moved here")
    assert remade(made)


def test_a_changed_project_installs_only_the_project_again(made: Checkout) -> None:
    log = made.root / ".venv" / "install.log"
    said = len(log.read_text())
    with (made.root / "pyproject.toml").open("a") as pyproject:
        pyproject.write("# changed\n")
    assert not remade(made)
    assert "made" in log.read_text()[said:]
    said = len(log.read_text())
    assert not remade(made)
    assert len(log.read_text()) == said


def test_one_that_was_killed_while_being_made_is_made_anew(checkout: Checkout) -> None:
    checkout.python()
    checkout.lock.write_text("absent==1.0 --hash=sha256:" + "0" * 64 + "\n")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        making = subprocess.Popen(
            ["make", "venv"],
            cwd=checkout.root,
            env=checkout.env | {"PIP_INDEX_URL": f"http://127.0.0.1:{mute.getsockname()[1]}/"},
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        mute.settimeout(120)
        mute.accept()[0].close()  # pip asks: the venv is there, the packages are not
        os.killpg(making.pid, signal.SIGKILL)
        making.wait(60)
    assert (checkout.root / ".venv" / "bin" / "python").exists()
    checkout.lock.write_text("# nothing\n")
    assert remade(checkout)
    assert checkout.stamp.exists()


def test_a_venv_of_another_origin_is_refused_and_left_alone(checkout: Checkout) -> None:
    checkout.python()
    theirs = checkout.root / ".venv" / "theirs"
    theirs.parent.mkdir()
    theirs.write_text("kept")
    assert checkout.refusal() == "error: .venv is there and was not made by this Makefile: move it away"
    assert theirs.read_text() == "kept"


def test_of_two_at_once_one_makes_it(checkout: Checkout) -> None:
    checkout.python()
    both = [
        subprocess.Popen(
            ["make", "venv"], cwd=checkout.root, env=checkout.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for _ in range(2)
    ]
    said = [process.communicate(timeout=280)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted(bool(lines) for lines in said) == [False, True]


def test_neither_command_runs_before_the_venv_is_there(checkout: Checkout) -> None:
    for command in ("run", "test"):
        assert checkout.refusal(command).startswith("error: no Python")


def commands(checkout: Checkout) -> None:
    """Stand in for what make hands over to; each notes how it was called."""
    for name in ("doit", "supervisor", "pytest"):
        program = checkout.root / ".venv" / "bin" / name
        program.write_text(f'#!/bin/sh\necho "{name}|$*"\n[ "$FAIL" != {name} ]\n')
        program.chmod(0o755)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("run",), ["doit|", "supervisor|run"]),
        (("run", "TARGET=dsv41"), ["doit|target=dsv41", "supervisor|run --target dsv41"]),
        (("run", "ARGS=--set port=9000"), ["doit|", "supervisor|run --set port=9000"]),
        (("test",), ["pytest|-n auto --maxprocesses 4 --dist loadscope"]),
        (("test", "ARGS=-k exporter"), ["pytest|-n auto --maxprocesses 4 --dist loadscope -k exporter"]),
    ],
    ids=" ".join,
)
def test_make_hands_over(made: Checkout, arguments: tuple[str, ...], expected: list[str]) -> None:
    commands(made)
    done = made.make(*arguments)
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (0, expected, "")


def test_a_build_that_fails_serves_nothing(made: Checkout) -> None:
    commands(made)
    done = made.make("run", FAIL="doit")
    assert (done.returncode, done.stdout.splitlines()) == (2, ["doit|"])


def test_make_alone_says_what_there_is(checkout: Checkout) -> None:
    done = checkout.make("help")
    assert done.returncode == 0
    assert "make run" in done.stdout
    assert (
        done.stdout
        == subprocess.run(["make"], check=True, cwd=checkout.root, env=checkout.env, capture_output=True, text=True).stdout
    )
