"""The API's key: where it lies when nobody names a file, and how it is made on first use."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import secrets
import tempfile
from pathlib import Path

from build.errors import Refused
from supervisor.settings import Serve

NAME = "api-key"
KEY_BYTES = 32  # of randomness; 43 characters as text


def with_key_file(serve: Serve, state_dir: Path) -> Serve:
    """The same settings with the state folder's own key, where the API leaves loopback and nothing else is said."""
    named = serve.api_key_file is not None or serve.allow_unauthenticated
    if named or ipaddress.ip_address(serve.host).is_loopback:
        return serve
    return dataclasses.replace(serve, api_key_file=state_dir / NAME)


def made_key(state_dir: Path) -> Path | None:
    """The state folder's own key, where an earlier run made one; a gang on loopback does not ask for it, and minds it not."""
    path = state_dir / NAME
    return path if path.exists() else None


def make_own_key(serve: Serve, state_dir: Path) -> Path | None:
    """Make the state folder's own key if it is the one to use and is not there yet; its path when it was made.

    The file appears whole and with mode 0600: two that make it at once agree on one.
    """
    path = state_dir / NAME
    if serve.api_key_file != path or path.exists():
        return None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # mkstemp makes it 0600 before a byte is in it
        number, draft = tempfile.mkstemp(prefix=f".{NAME}.", dir=path.parent)
        with os.fdopen(number, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(KEY_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            return None
        finally:
            Path(draft).unlink()
    except OSError as error:
        raise Refused(f"{path}: the API key cannot be made there: {error.strerror}") from None
    return path
