"""An end that is told by its exit code, as the error that leaves with it."""

from __future__ import annotations

from build.errors import GaveUp, LaunchFailed, Refused, TwinfoldError

KINDS: dict[int, type[TwinfoldError]] = {kind.exit_code: kind for kind in (Refused, LaunchFailed, GaveUp)}


def error_of(exit_code: int, why: str) -> TwinfoldError:
    """The error whose line is ``why`` and whose exit code is this one."""
    error = KINDS.get(exit_code, TwinfoldError)(why)
    error.exit_code = exit_code
    return error
