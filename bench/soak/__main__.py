"""``python -m bench.soak``: the fault matrix, or with ``--minutes`` a mixed soak. As root; also as ``doit soak``."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from bench.hosts import two_hosts
from bench.soak import mixed, page, results
from bench.soak.fault import Fault
from bench.soak.kinds import KINDS
from bench.soak.rig import CLIENTS, Rig, say
from bench.soak.table import Circumstances, summary
from bench.soak.trial import Outcome, trial


def main() -> int:
    """1 where a trial did not hold; 2 for wrong usage; 3 where no testbed can be made."""
    args = _parser().parse_args()
    parts = [part.strip() for part in args.kinds.split(";") if part.strip()] or [""]
    kinds = [one for one in KINDS if any(part in one.name for part in parts)]
    if not kinds:
        print(f"error: no kind's name holds {args.kinds!r}: `--list` shows them", file=sys.stderr)
        return 2
    if args.list:
        print("\n".join(one.name for one in kinds))
        return 0
    try:
        outcomes = _made_before(args, kinds)
    except (OSError, ValueError) as error:  # before hours are spent
        print(f"error: {error}", file=sys.stderr)
        return 2
    if args.minutes:
        with rig(args.seed, args.keep) as made:
            return mixed.soak(made, kinds, args.minutes * 60.0, args.every, args.page)
    _make_the_rest(args, kinds, outcomes)
    _tell(outcomes, args.page)
    return 0 if outcomes and not any(one.complaints for one in outcomes) else 1


def _made_before(args: argparse.Namespace, kinds: Sequence[Fault]) -> list[Outcome]:
    """What the files hold. ``OSError`` or ``ValueError`` where a file or the page could not take what is to come."""
    found = results.read(args.results, kinds)
    for path in args.results[:1]:
        path.open("ab").close()
    if args.page:
        page.check(args.page)
    return found


def _make_the_rest(args: argparse.Namespace, kinds: Sequence[Fault], outcomes: list[Outcome]) -> None:
    rounds = missing(kinds, Counter(one.fault.name for one in outcomes), args.trials)
    if not rounds:
        return
    with rig(args.seed, args.keep) as made:
        made.chance.seed(f"{args.seed}, {len(outcomes)} made")  # a matrix that goes on does not do the same again
        for outcome in matrix(made, rounds, args.within * 60.0):
            outcomes.append(outcome)
            if args.results:
                results.append(args.results[0], outcome)


def _tell(outcomes: Sequence[Outcome], to: Path | None) -> None:
    at = Circumstances(CLIENTS, os.cpu_count() or 0)
    say(summary(outcomes, at))
    for one in outcomes:
        if one.complaints:
            say(f"did not hold: {one}")
    if to:
        page.write_matrix(to, outcomes, at)


@contextmanager
def rig(seed: int, keep: Path | None) -> Iterator[Rig]:
    """A testbed of its own with a gang that serves."""
    with two_hosts() as testbed, tempfile.TemporaryDirectory(prefix="tf-soak-") as made:
        folder = keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        with closing(Rig(testbed, folder, seed)) as one:
            yield one


def missing(kinds: Sequence[Fault], made: Mapping[str, int], trials: int) -> list[list[Fault]]:
    """The rounds that are left until every kind has had its trials; in each of them the kinds that it still wants."""
    rounds = [[one for one in kinds if made.get(one.name, 0) <= number] for number in range(trials)]
    return [one for one in rounds if one]


def matrix(made: Rig, rounds: Sequence[Sequence[Fault]], within_s: float) -> Iterator[Outcome]:
    """Round after round, each in an order of its own; it ends early where the time is up."""
    began_s = time.monotonic()
    for number, kinds in enumerate(rounds, 1):
        for fault in made.chance.sample(kinds, len(kinds)):
            if within_s and time.monotonic() - began_s > within_s:
                return
            outcome = trial(made, fault)
            say(f"[{number}] {outcome}")
            yield outcome


def _count(word: str) -> int:
    number = int(word)
    if number < 1:
        raise ValueError
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--trials", type=_count, default=20, help="trials of each kind (20)")
    parser.add_argument("--kinds", default="", help="only kinds whose name holds one of these parts; separated by ';'")
    parser.add_argument("--within", type=float, default=0.0, metavar="MIN", help="begin no trial after so many minutes")
    parser.add_argument("--minutes", type=float, default=0.0, help="a mixed soak of so many minutes instead of the matrix")
    parser.add_argument("--every", type=float, default=3.0, metavar="S", help="seconds between the soak's faults, about")
    parser.add_argument(
        "--results",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="keep every trial in this file, and count those in it as made; further files are read only",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--page", type=Path, default=None, help="write the figures into this page of the docs")
    parser.add_argument("--keep", type=Path, default=None, help="a folder for state and logs that is kept")
    parser.add_argument("--list", action="store_true", help="show the kinds")
    return parser


if __name__ == "__main__":
    sys.exit(main())
