"""Generations of a target: numbered bundles, and ``current``, which names one.

``generations/<target>/<number>.json`` is written once and never changed; ``current`` is a link to one of them, replaced
atomically. A number is used once, also after its generation was removed by ``gc``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from build.errors import Refused, StoreDamaged, TwinfoldError, UsageError
from build.store import durable

if TYPE_CHECKING:  # a build only compares the names of bundles
    from build.bundle import Bundle

CURRENT = "current"
BUNDLE_FILE = "bundle.json"  # in the bundle's store entry


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation. ``bundle_entry`` is its store path, ``made_s`` the Unix time it was made at."""

    target: str
    number: int
    bundle_entry: str
    made_s: float
    store: Path

    @property
    def bundle(self) -> Bundle:
        """Read the bundle; ``StoreDamaged`` where it is gone or not readable."""
        from build.bundle import from_json

        file = self.store / self.bundle_entry / BUNDLE_FILE
        try:
            return from_json(file.read_text(encoding="utf-8"), str(file))
        except OSError as error:
            raise StoreDamaged(f"generation {self.number} of {self.target} needs {file} ({error.strerror}): run `doit`") from None


def current_link(state_dir: Path, target: str) -> Path:
    """Where ``current`` is; it leads to another file with each new choice."""
    return _folder(state_dir, target) / CURRENT


def current(state_dir: Path, target: str) -> Generation:
    """The generation that ``current`` names; ``UsageError`` where nothing was built yet. A launch takes :func:`chosen`."""
    link = current_link(state_dir, target)
    try:
        name = link.readlink()
    except OSError:
        raise UsageError(f"target {target} has no generation yet in {state_dir}: run `doit target={target}`") from None
    found = _read(link.parent / name, state_dir, target)
    if found is None:
        raise StoreDamaged(f"{link} names {name}, which is not there: run `doit target={target}`, or `doit rollback`")
    return found


def current_or_none(state_dir: Path, target: str) -> Generation | None:
    """The same, where "nothing yet" is an answer."""
    try:
        return current(state_dir, target)
    except (UsageError, StoreDamaged):
        return None


def chosen(state_dir: Path, target: str, variant: str) -> Generation:
    """The generation that whoever wants ``variant`` takes: the current one, or where that is of the other, the newest of its own.

    ``UsageError`` where nothing was built yet, ``Refused`` where nothing of that variant was.
    """
    here = current(state_dir, target)
    if here.bundle.variant == variant:
        return here
    own = [g for g in every(state_dir, target) if g.bundle_entry != here.bundle_entry and g.bundle.variant == variant]
    if not own:
        ablit = int(variant != "base")
        raise Refused(f"target {target} has no generation of its {variant} variant: run `doit target={target} ablit={ablit}`")
    return own[-1]


def chosen_or_none(state_dir: Path, target: str, variant: str) -> Generation | None:
    """The same, where "none that can be read" is an answer."""
    try:
        return chosen(state_dir, target, variant)
    except TwinfoldError:
        return None


def every(state_dir: Path, target: str) -> tuple[Generation, ...]:
    """All generations of a target, oldest first."""
    try:
        numbers = sorted(int(p.stem) for p in _folder(state_dir, target).glob("*.json") if p.stem.isdigit())
    except FileNotFoundError:
        numbers = []
    found = (_read(_folder(state_dir, target) / f"{n}.json", state_dir, target) for n in numbers)
    return tuple(g for g in found if g is not None)


def targets(state_dir: Path) -> tuple[str, ...]:
    """Targets that have generations."""
    folder = state_dir / "generations"
    return tuple(sorted(p.name for p in folder.iterdir() if p.is_dir())) if folder.is_dir() else ()


def is_newest(state_dir: Path, target: str, bundle_entry: str) -> bool:
    """True where the newest generation is this bundle: nothing changed since, even if ``current`` was rolled back."""
    made = every(state_dir, target)
    return bool(made) and made[-1].bundle_entry == bundle_entry and current_or_none(state_dir, target) is not None


def make(state_dir: Path, target: str, bundle_entry: str, now: Callable[[], float] = time.time) -> Generation:
    """Add a generation and make it current. The caller holds the build lock."""
    folder = _folder(state_dir, target)
    folder.mkdir(parents=True, exist_ok=True)
    made = every(state_dir, target)
    if made and made[-1].bundle_entry == bundle_entry:
        return select(state_dir, target, made[-1].number)
    number = max([_last_number(folder), *(g.number for g in made)]) + 1
    raw = {"number": number, "bundle": bundle_entry, "made_s": round(now(), 3)}
    durable.replace_file(folder / f"{number}.json", (json.dumps(raw) + "\n").encode())
    return select(state_dir, target, number)


def find(state_dir: Path, target: str, number: int) -> Generation:
    """A generation by number; ``UsageError`` where there is none."""
    found = _read(_folder(state_dir, target) / f"{number}.json", state_dir, target)
    if found is None:
        raise UsageError(f"target {target} has no generation {number}: `doit generations` lists them")
    return found


def select(state_dir: Path, target: str, number: int) -> Generation:
    """Make a generation current; ``UsageError`` where there is none of that number."""
    folder, found = _folder(state_dir, target), find(state_dir, target, number)
    durable.replace_link(folder / CURRENT, f"{number}.json")
    return found


def remove(state_dir: Path, generation: Generation) -> None:
    """Forget one; its number stays used. Never the current one."""
    here = current_or_none(state_dir, generation.target)
    if here is not None and here.number == generation.number:
        raise UsageError(f"generation {generation.number} of {generation.target} is the current one")
    folder = _folder(state_dir, generation.target)
    durable.replace_file(folder / "last", f"{max(_last_number(folder), generation.number)}\n".encode())
    (folder / f"{generation.number}.json").unlink(missing_ok=True)
    durable.sync_folder(folder)


def _folder(state_dir: Path, target: str) -> Path:
    return state_dir / "generations" / target


def _last_number(folder: Path) -> int:
    try:
        return int((folder / "last").read_text())
    except (OSError, ValueError):
        return 0


def _read(path: Path, state_dir: Path, target: str) -> Generation | None:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return Generation(target, int(raw["number"]), str(raw["bundle"]), float(raw["made_s"]), state_dir / "store")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreDamaged(f"{path} is no readable generation ({error}): remove it, then run `doit target={target}`") from None
