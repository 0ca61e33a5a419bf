"""``supervisor doctor``: examine, print, and say by the exit code whether a launch would be refused."""

from __future__ import annotations

import json
from argparse import Namespace

from build.errors import Refused
from supervisor import service
from supervisor.configuration import Configuration
from supervisor.doctor import folder, report
from supervisor.doctor.examine import Examination, from_folder, live
from supervisor.doctor.findings import warned
from supervisor.doctor.inquiry import inquire
from supervisor.doctor.probe import probe


def doctor(one: Configuration, args: Namespace) -> int:
    """The exit code: 3 where something forbids a launch, 1 under ``--strict`` on warnings, else 0."""
    found = _examined(one, args)
    print(json.dumps(report.as_dict(found), indent=1) if args.json else report.as_text(found))
    if found.forbidden:
        return Refused.exit_code
    return 1 if one.links.strict and warned(found.findings) else 0


def _examined(one: Configuration, args: Namespace) -> Examination:
    inquiry = inquire(one)
    if args.folder:
        return from_folder(inquiry, args.folder)
    opened = inquiry.open()
    try:
        found, raws = live(inquiry, opened, probe, serving=service.alive(one.run_dir) is not None)
    finally:
        for node in opened.values():
            node.close()
    if args.save:
        folder.save(args.save, raws, found.probed, inquiry.owner)
    return found
