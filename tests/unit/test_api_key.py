from __future__ import annotations

import stat
from pathlib import Path

import pytest

from build.errors import Refused
from build.settings import Sources
from supervisor.api_key import NAME, make_own_key, with_key_file
from supervisor.configuration import configure
from supervisor.engine.probes import read_api_key
from supervisor.settings import Serve


def configured(state: Path, **environ: str) -> Serve:
    names = {f"TWINFOLD_{name.upper()}": value for name, value in environ.items()}
    return configure(Sources(None, {"TWINFOLD_STATE_DIR": str(state), **names})).serve


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1"])
def test_loopback_needs_no_key(tmp_path: Path, host: str) -> None:
    serve = configured(tmp_path, host=host)
    assert serve.api_key_file is None
    assert make_own_key(serve, tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_elsewhere_a_key_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    state = tmp_path / "state"
    serve = configured(state, host="0.0.0.0")
    made = make_own_key(serve, state)
    assert made == serve.api_key_file == state / NAME
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    key = read_api_key(made)
    assert len(key) == 43
    assert make_own_key(serve, state) is None
    assert read_api_key(made) == key
    assert [path.name for path in state.iterdir()] == [NAME]


def test_each_state_folder_has_a_key_of_its_own(tmp_path: Path) -> None:
    made = [make_own_key(with_key_file(Serve(host="0.0.0.0"), tmp_path / name), tmp_path / name) for name in "ab"]
    assert len({read_api_key(path) for path in made}) == 2


def test_a_named_key_or_no_key_at_all_is_the_users_to_choose(tmp_path: Path) -> None:
    named = tmp_path / "mine"
    assert configured(tmp_path, host="0.0.0.0", api_key_file=str(named)).api_key_file == named
    assert configured(tmp_path, host="0.0.0.0", allow_unauthenticated="true").api_key_file is None
    assert make_own_key(Serve(host="0.0.0.0", api_key_file=named), tmp_path) is None
    assert not named.exists()


def test_where_no_key_can_be_made_one_line_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    state = tmp_path / "file" / "state"
    with pytest.raises(Refused, match=r"api-key: the API key cannot be made there: "):
        make_own_key(with_key_file(Serve(host="0.0.0.0"), state), state)
