"""The error tree: each class is one exit code of the command line.

An error carries one readable line that says what was found, where, and what to do about it. The edges
(``supervisor.cli`` and ``build.commands``) print it as ``error: <line>`` and leave with ``exit_code``.
"""

from __future__ import annotations


class TwinfoldError(Exception):
    """Base of every error a user can cause. ``str(error)`` is the whole message."""

    exit_code = 1


class CheckFailed(TwinfoldError):
    """A check said no: ``lock --check``, ``validate``, warnings under ``--strict``."""

    exit_code = 1


class UsageError(TwinfoldError):
    """Wrong arguments or settings."""

    exit_code = 2


class Refused(TwinfoldError):
    """Refused before a launch: preflight, memory, a taken port, a second run."""

    exit_code = 3


class LaunchFailed(TwinfoldError):
    """The gang was started and did not come up."""

    exit_code = 4


class GaveUp(TwinfoldError):
    """The restart bound was reached, or a rank could not be stopped."""

    exit_code = 5


class StoreDamaged(TwinfoldError):
    """A store path is missing bytes, has others, or lost its record."""

    exit_code = 6


class PinsMissing(TwinfoldError):
    """The lock lacks pins that the target needs."""

    exit_code = 7


class BuildFailed(TwinfoldError):
    """An artefact could not be made: compiler, full disk, read-only store."""

    exit_code = 8


class OutputDiffers(TwinfoldError):
    """An output differs from its lock, or from a rebuild of itself."""

    exit_code = 9
