"""Refs to pins, over the network: git commits, registry images, hub snapshots, patch series.

What is pinned already stays as it is, unless it is asked for by name or the target wants another repository now: a lock changes
where a person wants it to.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from build.errors import BuildFailed, TwinfoldError
from build.graph.dsv41 import PATCHES, HubWish, Wanted
from build.hub.files import COMMIT, GIT_BLOB, SHA256, Snapshot
from build.locks.pins import FilePin, GitPin, HubPin, ImagePin, Lock, PatchPin
from build.store.hashing import sha256_file

GIT = ("env", "GIT_TERMINAL_PROMPT=0", "git")
GIT_LIMIT_S = 600.0
BASE_IMAGE = "base_image"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The lock as far as refs could be resolved, a line for each that was, and the errors of those that were not."""

    lock: Lock
    lines: tuple[str, ...]
    errors: tuple[TwinfoldError, ...]


def names(wanted: Wanted) -> tuple[str, ...]:
    """What can be pinned, by name."""
    base = (BASE_IMAGE,) if wanted.base_image else ()
    return (*wanted.hubs, *wanted.gits, *base)


def resolve(wanted: Wanted, lock: Lock, only: frozenset[str], snapshot: Callable[[str, str], Snapshot]) -> Outcome:
    """Pin what is missing, or what ``only`` names. ``snapshot``: (repo, ref) -> what the hub has there."""
    lines: list[str] = []
    errors: list[TwinfoldError] = []
    steps: Mapping[str, Callable[[Lock], Lock]] = {
        **{n: (lambda old, n=n, w=w: _hub(old, n, w, snapshot)) for n, w in wanted.hubs.items()},  # type: ignore[misc]
        **{n: (lambda old, n=n, w=w: _git(old, n, *w)) for n, w in wanted.gits.items()},  # type: ignore[misc]
        **({BASE_IMAGE: lambda old: _image(old, wanted)} if wanted.base_image else {}),
    }
    for name, step in steps.items():
        if not (name in only if only else _due(wanted, lock, name)):
            continue
        try:
            lock = step(lock)
            if name == PATCHES and wanted.patches:
                lock = _patches(lock, wanted.patches.folder)
            lines.append(f"pinned  {name}: {_told(lock, name)}")
        except TwinfoldError as error:
            errors.append(error)
    return Outcome(lock, tuple(lines), tuple(errors))


def _due(wanted: Wanted, lock: Lock, name: str) -> bool:
    """True where the lock has no pin of that name, or one of another repository than is wanted."""
    if name in wanted.hubs:
        pin, wish, there = lock.hub(name), wanted.hubs[name], {f.path for f in lock.files_of(name)}
        return pin is None or pin.repo != wish.repo or not there or not set(wish.files) <= there
    if name in wanted.gits:
        git = lock.git(name)
        return git is None or git.repo != wanted.gits[name][0] or (name == PATCHES and not lock.series(PATCHES))
    base = wanted.base_image
    image = lock.image(BASE_IMAGE, base.platform) if base else None
    return base is not None and (image is None or image.reference != base.reference or not image.config)


def _hub(lock: Lock, name: str, wish: HubWish, snapshot: Callable[[str, str], Snapshot]) -> Lock:
    found = snapshot(wish.repo, wish.ref)
    lacks = sorted(set(wish.files) - {f.path for f in found.files})
    if lacks:
        raise BuildFailed(f"{wish.repo} at {found.revision[:12]} has no {', '.join(lacks)}")
    files = [
        FilePin(
            name,
            f.path,
            f.size,
            sha256=f.proof.hex if f.proof.kind == SHA256 else "",
            git_blob=f.proof.hex if f.proof.kind == GIT_BLOB else "",
        )
        for f in found.files
        if not wish.files or f.path in wish.files
    ]
    return replace(
        lock,
        hubs=(*(h for h in lock.hubs if h.name != name), HubPin(name, wish.repo, found.revision)),
        files=(*(f for f in lock.files if f.hub != name), *files),
    )


def _git(lock: Lock, name: str, repo: str, ref: str) -> Lock:
    commit = ref if COMMIT.fullmatch(ref) else commit_of(repo, ref)
    return replace(lock, gits=(*(g for g in lock.gits if g.name != name), GitPin(name, repo, commit)))


def commit_of(repo: str, ref: str) -> str:
    """The commit that a branch or a tag of a repository names now."""
    listed = _run([*GIT, "ls-remote", repo, ref, f"{ref}^{{}}"], repo)
    rows = {name: commit for commit, _, name in (line.partition("\t") for line in listed.splitlines())}
    for name in (f"refs/tags/{ref}^{{}}", f"refs/heads/{ref}", f"refs/tags/{ref}", ref):
        if COMMIT.fullmatch(rows.get(name, "")):
            return rows[name]
    raise BuildFailed(f"{repo} has no branch or tag {ref}")


def _image(lock: Lock, wanted: Wanted) -> Lock:
    from build.image import registry
    from build.image.oci import parse_platform

    base = wanted.base_image
    assert base is not None
    old = lock.image(BASE_IMAGE, base.platform)
    # A digest that was pinned is completed, not moved: tags of base images move.
    same = old is not None and old.reference == base.reference and not old.config
    reference = f"{base.reference.partition('@')[0]}@{old.digest}" if same and old else base.reference
    found = registry.Registry(registry.parse(reference)).find(parse_platform(base.platform))
    new = ImagePin(
        BASE_IMAGE, base.platform, base.reference, found.digest, found.manifest_digest, found.config_digest,
        tuple(layer.digest for layer in found.layers), found.diff_ids,
    )  # fmt: skip
    return replace(lock, images=(*(i for i in lock.images if (i.name, i.platform) != (BASE_IMAGE, base.platform)), new))


def _patches(lock: Lock, folder: str) -> Lock:
    """The files of the series at its commit."""
    pin = lock.git(PATCHES)
    assert pin is not None
    with tempfile.TemporaryDirectory(prefix="twinfold-patches-") as name:
        _run([*GIT, "init", "-q", name], pin.repo)
        _run([*GIT, "-C", name, "fetch", "-q", "--depth", "1", pin.repo, pin.commit], pin.repo)
        _run([*GIT, "-C", name, "checkout", "-q", pin.commit], pin.repo)
        files = sorted((Path(name) / folder).glob("*.patch"))
        if not files:
            raise BuildFailed(f"{pin.repo} at {pin.commit[:12]} has no *.patch in {folder}")
        series = tuple(PatchPin(PATCHES, f.name, sha256_file(f)) for f in files)
    return replace(lock, patches=(*(p for p in lock.patches if p.series != PATCHES), *series))


def _told(lock: Lock, name: str) -> str:
    hub, git = lock.hub(name), lock.git(name)
    if hub:
        return f"{hub.repo} {hub.revision[:12]}, {len(lock.files_of(name))} files"
    if git:
        return f"{git.repo} {git.commit[:12]}"
    image = next(i for i in lock.images if i.name == name)
    return f"{image.reference} {image.digest[:19]}"


def _run(argv: Iterable[str], what: str) -> str:
    try:
        done = subprocess.run(list(argv), capture_output=True, text=True, timeout=GIT_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildFailed(f"{what}: git: {error}") from None
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise BuildFailed(f"{what}: git ended with {done.returncode}: {said}")
    return done.stdout
