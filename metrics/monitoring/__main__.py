"""``python -m metrics.monitoring``: write dashboards, rules and configuration; ``--check`` only says which are stale."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from metrics.monitoring import files
from metrics.monitoring.promql import Unknown

CHECKOUT = Path(__file__).resolve().parents[2]


def main() -> int:
    """0 done, 1 stale or a query of something unknown."""
    parser = argparse.ArgumentParser(prog="python -m metrics.monitoring", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a file is stale")
    args = parser.parse_args()
    try:
        if not args.check:
            files.write(CHECKOUT)
            return 0
        old = files.stale(CHECKOUT)
    except Unknown as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if old:
        print(f"error: {', '.join(old)}: not what would be generated; run `python -m metrics.monitoring`", file=sys.stderr)
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
