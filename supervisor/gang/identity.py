"""Who a state folder is: an id kept in it, by which ranks on a shared Docker daemon are told from another gang's.

The id moves with the folder. A folder made anew in the place of a lost one has another: what the lost one's gang left is not its
to end.
"""

from __future__ import annotations

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
    """The folder's identity; None where it has none yet. ``Refused`` where the file is no id."""
    file = state_dir / FILE
    try:
        found = file.read_text(encoding="ascii", errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Refused(f"{file} cannot be read: {error.strerror}") from None
    if not _ID.fullmatch(found):
        raise Refused(f"{file} is no id (16 hex digits): remove it, and stop by hand what an earlier supervisor left in Docker")
    return Owner(found, place(state_dir))


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
    return found


def _make(state_dir: Path) -> None:
    state_dir.mkdir(parents=True, exist_ok=True)
    draft = state_dir / f".{FILE}.{secrets.token_hex(4)}"
    durable.replace_file(draft, f"{secrets.token_hex(8)}\n".encode(), 0o644)
    try:
        os.link(draft, state_dir / FILE)
    except FileExistsError:
        return
    finally:
        draft.unlink()
