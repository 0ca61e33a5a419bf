"""docs/settings.md, made from the settings themselves: ``python -m supervisor.settings_doc docs/settings.md`` writes it."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

from build.settings import AMBIENT, ENGINE_PREFIXES, LOCK_NAMES, PREFIX, Change, Places
from supervisor.settings import ENGINE_NAMES, GROUPS

COUNTS = {
    Change.LIVE: "at once",
    Change.RESTART: "`restart`",
    Change.RUN: "next `run`",
    Change.BUILD: "next build",
}
INTRODUCTION = f"""# Settings

Each setting has one key. Where several places name it the last of these counts: default, `config.toml`, environment, flag.

- In `config.toml` keys stand at the top level; only `engine_env` is a table. Unknown keys and values out of range are errors.
- In the environment `{PREFIX}<KEY>` in capitals always counts. The bare name counts where the table below says so.
- {", ".join(f"`{name}`" for name in sorted(AMBIENT))} are set by other software too: bare they are ignored.
- {", ".join(f"`{name}`" for name in sorted(LOCK_NAMES))} belong to the lock and are refused elsewhere.
- Variables of the environment that begin with {", ".join(f"`{prefix}`" for prefix in ENGINE_PREFIXES)}, and
  {", ".join(f"`{name}`" for name in sorted(ENGINE_NAMES))}, go to every rank as they are; an empty one counts as not set.
  Terraform's and TensorFlow's own `TF_` names are left out; the table `engine_env` passes any.

"Counts" says when a changed value takes effect: at once (within a second of a change of `config.toml`), with
`supervisor restart`, with the next `supervisor run`, or once `doit` has built for it. [reload.md](reload.md) tells more.
"""


def document(groups: tuple[type, ...] = (Places, *GROUPS)) -> str:
    """The whole page."""
    return INTRODUCTION + "".join(_section(group) for group in groups)


def main(argv: list[str]) -> int:
    """Write the page to the path given, or print it."""
    if argv:
        Path(argv[0]).write_text(document(), encoding="utf-8")
    else:
        sys.stdout.write(document())
    return 0


def _section(group: type) -> str:
    summary = (group.__doc__ or "").splitlines()[0]
    rows = "".join(_row(item) for item in dataclasses.fields(group))
    return f"\n## {group.__name__}\n\n{summary}\n\n| key | default | bare name | counts | what |\n|---|---|---|---|---|\n{rows}"


def _row(item: dataclasses.Field[Any]) -> str:
    upper = item.name.upper()
    bare = f"`{upper}`" if item.metadata["recipe"] and upper not in AMBIENT else ""
    what = str(item.metadata["help"]).replace("|", "\\|")
    return f"| `{item.name}` | {_default(item.default)} | {bare} | {COUNTS[item.metadata['change']]} | {what} |\n"


def _default(value: object) -> str:
    if value is None or value in {"", ()}:
        return "(empty)"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
