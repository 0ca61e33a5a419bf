"""Which supervisor a command means, also while ``config.toml`` cannot be taken."""

from __future__ import annotations

import re
import sys
import tomllib

from build.errors import UsageError
from build.settings import PREFIX, Sources
from supervisor import control, service
from supervisor.configuration import Configuration, configure
from supervisor.control import Answers

PLACE = "state_dir"
_SAYS_PLACE = re.compile(rf"""^\s*["']?{PLACE}\b""", re.MULTILINE)


class Reach:
    """What is known of the supervisor that a command is for.

    ``one`` is the configuration. Of a file that cannot be taken only the state folder counts, which is told on stderr: a gang
    that serves must be reached also while somebody edits the file. ``UsageError`` where its folder cannot be known, or no
    supervisor serves from there.
    """

    def __init__(self, sources: Sources) -> None:
        self._trouble: UsageError | None = None
        try:
            self.one = configure(sources)
        except UsageError as error:
            self._trouble, self.one = error, _found(sources, error)

    def ask(self, request: dict[str, object]) -> Answers | None:
        """As :func:`supervisor.control.ask`. ``UsageError`` where none listens and the settings cannot be taken: what is done
        without a supervisor needs all of them.
        """
        answers = control.ask(self.one.run_dir, request)
        if answers is None and self._trouble:
            raise self._trouble
        return answers


def _found(sources: Sources, error: UsageError) -> Configuration:
    try:
        found = configure(_but_for_the_file(sources, error))
    except UsageError:
        raise error from None
    if service.alive(found.run_dir) is None:
        raise error
    print(f"warning: {error}; this goes to the supervisor of {found.state_dir} all the same", file=sys.stderr)
    return found


def _but_for_the_file(sources: Sources, error: UsageError) -> Sources:
    """Flags and the environment win over the file, as ever; what they do not say must be known from it."""
    bare = Sources(None, sources.environ, sources.flags)
    if PLACE in sources.flags or {PLACE.upper(), PREFIX + PLACE.upper()} & sources.environ.keys():
        return bare
    try:
        text = sources.file.read_text("utf-8-sig") if sources.file and sources.file.is_file() else ""
    except (OSError, ValueError):
        raise error from None
    try:
        said = tomllib.loads(text)
    except (ValueError, RecursionError):
        if _SAYS_PLACE.search(text):
            raise error from None
        return bare
    return Sources(None, sources.environ, {PLACE: said[PLACE], **sources.flags}) if PLACE in said else bare
