"""Who a state folder is: an id kept in it, by which ranks on a shared Docker daemon are told from another gang's.

The id moves with the folder. A folder made anew in the place of a lost one has another: what the lost one's gang left is not its
to end. The file's second line says where the folder lay when it last served, so that a copy is told from a folder that moved: it
would end the gang of its original, or take it over.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import secrets
from pathlib import Path

from build.errors import Refused
from build.store import durable
from supervisor.runners.protocol import Owner

FILE = "id"
_ID = re.compile(r"[0-9a-f]{16}")


def read(state_dir: Path) -> Owner | None:
    """The folder's identity; None where it has none yet. ``Refused`` where the file is no id, or the folder a copy."""
    said = _said(state_dir)
    if said is None:
        return None
    if (original := _original(state_dir, *said)) is not None:
        raise Refused(
            f"{state_dir} is a copy of {original} and would take that one's gang for its own: remove `{FILE}` and `run` from the"
            f" copy, or `{FILE}` from {original} where that one is to serve no more"
        )
    return Owner(said[0], place(state_dir))


def _said(state_dir: Path) -> tuple[str, str] | None:
    """The id, and where the folder lay then ("" where that is not said)."""
    file = state_dir / FILE
    try:
        found, _, lay = os.fsdecode(file.read_bytes()).partition("\n")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Refused(f"{file} cannot be read: {error.strerror}") from None
    if not _ID.fullmatch(found.strip()):
        raise Refused(f"{file} is no id (16 hex digits): remove it, and stop by hand what an earlier supervisor left in Docker")
    return found.strip(), lay.removesuffix("\n")


def _original(state_dir: Path, own_id: str, lay: str) -> Path | None:
    """The folder that this one was copied from, where it is still there, as far as this host can see."""
    host, _, folder = lay.partition(":")
    if host != platform.node() or not folder:
        return None
    other = Path(folder)
    try:
        same = other.samefile(state_dir)
        theirs = _said(other)
    except (OSError, ValueError, Refused):
        return None
    return other if not same and theirs is not None and theirs[0] == own_id else None


def place(state_dir: Path) -> str:
    """Where it lies, for people: host and path."""
    return f"{platform.node()}:{state_dir}"


def own(state_dir: Path) -> Owner:
    """The same, made on first use. Two that make it at once agree on one."""
    while (found := read(state_dir)) is None:
        try:
            _make(state_dir)
        except OSError as error:
            raise Refused(f"{state_dir}: its id cannot be made there: {error.strerror}") from None
    if _said(state_dir) != (found.id, place(state_dir.resolve())):
        with contextlib.suppress(OSError):  # a later copy of it is not told from it then
            durable.replace_file(state_dir / FILE, _content(state_dir, found.id), 0o644)
    return found


def _content(state_dir: Path, its_id: str) -> bytes:
    return os.fsencode(f"{its_id}\n{place(state_dir.resolve())}\n")


def _make(state_dir: Path) -> None:
    state_dir.mkdir(parents=True, exist_ok=True)
    draft = state_dir / f".{FILE}.{secrets.token_hex(4)}"
    durable.replace_file(draft, _content(state_dir, secrets.token_hex(8)), 0o644)
    try:
        os.link(draft, state_dir / FILE)
    except FileExistsError:
        return
    finally:
        draft.unlink()
