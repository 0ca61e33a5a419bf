"""``python -m tests.testbed up|down|status``: the testbed for a person."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from pathlib import Path

from build.settings import default_state_dir
from tests.testbed import bed
from tests.testbed.bed import Testbed
from tests.testbed.layout import NETWORKS, SIZES, Layout


def main(argv: list[str]) -> int:
    """Parse, do, and say what is there now."""
    parser = argparse.ArgumentParser(prog="python -m tests.testbed", description=__doc__)
    parser.add_argument("verb", choices=("up", "down", "status"))
    parser.add_argument("--hosts", type=int, choices=SIZES, default=2, help="how many hosts (up)")
    parser.add_argument("--wait", type=float, default=0.0, metavar="S", help="seconds to wait for another user of the testbed")
    args = parser.parse_args(argv)
    layout = Layout.here(os.environ, args.hosts)
    if reason := bed.why_not():
        print(f"error: {reason}", file=sys.stderr)
        return 3
    try:
        return _status(layout) if args.verb == "status" else _change(args.verb, layout, args.wait)
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 3


def _change(verb: str, layout: Layout, wait_s: float) -> int:
    began = time.monotonic()
    with bed.locked(layout, wait_s):
        if verb == "down":
            bed.down(layout)
            print(f"down in {time.monotonic() - began:.1f} s")
            return 0
        made = bed.up(layout, keep=True)
    print(f"up in {time.monotonic() - began:.1f} s")
    _show(made)
    return 0


def _status(layout: Layout) -> int:
    found = bed.opened(layout)
    if found is None:
        print(f"no testbed is up in {layout.folder}")
        return 1
    _show(found)
    return 0


def _show(found: Testbed) -> None:
    for host in found.hosts:
        addresses = "  ".join(f"{n.name} {host.plan.address(n)}" for n in NETWORKS)
        print(f"{host.name}  {addresses}  docker unix://{host.plan.docker_socket}  proc {host.plan.proc}  sys {host.plan.sys}")
    head, checkout = found.head, Path.cwd()
    sockets = " ".join(str(worker.plan.docker_socket) for worker in found.workers)
    settings = {
        "TWINFOLD_RUNNER": "docker",
        "TWINFOLD_DOCKER_SOCKET": head.plan.docker_socket,
        "TWINFOLD_WORKER": " ".join(worker.name for worker in found.workers),
        "TWINFOLD_WORKER_DOCKER_SOCKET": sockets,
        "TWINFOLD_WORLD": len(found.hosts),
        "TWINFOLD_MIN_AVAIL_GIB": 0.25,
        "TWINFOLD_STATE_DIR": os.environ.get("TWINFOLD_STATE_DIR", default_state_dir(os.environ)),
    }
    print(f"\nThe gang over these hosts, once `doit world={len(found.hosts)}` has built it:")
    shown = [f"{name}={shlex.quote(str(value))}" for name, value in settings.items()]
    inner = ["env", f"HOME={head.plan.home}", f"PATH={head.plan.path}"]
    print("  " + " ".join([*head.command(inner, checkout), *shown, str(Path(sys.executable).parent / "supervisor"), "run"]))
    print(f"\nA shell on the head ({', '.join(w.name for w in found.workers)} answer to ssh there):")
    print("  " + " ".join(head.command(["env", f"HOME={head.plan.home}", f"PATH={head.plan.path}", "bash"], checkout)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
