"""``supervisor run --dry-run``: the nodes are asked what the doctor asks, and what a launch would do is shown."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from build.errors import Refused
from supervisor.configuration import Configuration
from supervisor.doctor.collect import collect
from supervisor.doctor.inquiry import inquire

if TYPE_CHECKING:
    from supervisor.doctor.preview import Preview


def dry_run(one: Configuration, *, as_json: bool) -> int:
    """The exit code that a launch would begin with: 3 where it would be refused."""
    found = _preview(one)
    from supervisor.doctor import preview

    print(json.dumps(preview.as_dict(found), indent=1) if as_json else "\n".join(preview.as_text(found)))
    return Refused.exit_code if found.examined.forbidden or found.refused else 0


def _preview(one: Configuration) -> Preview:
    """What would be launched. All that needs no answer is loaded and planned while the nodes answer."""
    inquiry = inquire(one)
    opened = inquiry.open()
    try:
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(collect, inquiry.asked(opened))
            from supervisor.doctor import examine
            from supervisor.doctor.preview import preview
            from supervisor.gang.launch import blueprint

            planned = blueprint(one)
            # full-size probes are a launch's own: listeners are started for them
            return preview(planned, inquiry, examine.told(inquiry, asked.result()))
    finally:
        for node in opened.values():
            node.close()
