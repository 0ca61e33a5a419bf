"""Which supervisor a command means, also while ``config.toml`` cannot be taken."""

from __future__ import annotations

import sys
import tomllib

from build.errors import UsageError
from build.settings import PREFIX, Sources
from supervisor import service
from supervisor.configuration import Configuration, configure

PLACE = "state_dir"


def reach(sources: Sources) -> Configuration:
    """As :func:`~supervisor.configuration.configure`. Of a file that cannot be taken only the state folder counts, which is told
    on stderr: a gang that serves must be reached also while somebody edits it. ``UsageError`` where none serves from there.
    """
    try:
        return configure(sources)
    except UsageError as error:
        try:
            found = configure(_but_for_the_file(sources))
        except UsageError:
            raise error from None
        if service.alive(found.run_dir) is None:
            raise
        print(f"warning: {error}; this goes to the supervisor of {found.state_dir} all the same", file=sys.stderr)
        return found


def _but_for_the_file(sources: Sources) -> Sources:
    try:
        said = tomllib.loads(sources.file.read_text("utf-8-sig")) if sources.file and sources.file.is_file() else {}
    except (OSError, ValueError, RecursionError):
        said = {}
    place = {PLACE: said[PLACE]} if PLACE in said and f"{PREFIX}{PLACE.upper()}" not in sources.environ else {}
    return Sources(None, sources.environ, {**place, **sources.flags})
