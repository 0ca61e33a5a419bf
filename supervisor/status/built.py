"""What is known of how the served bundle was built: its artefacts' records, and when the store was last verified."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from build.errors import StoreDamaged
from build.store.store import Store
from build.store.verified import verified_unix_s
from supervisor.status.view import Built, BuiltArtefact


def built(state_dir: Path, store_root: Path, bundle_entry: str) -> Built:
    """Read the records. One that is gone or damaged is left out: `doit verify` is who complains."""
    store = Store(store_root)
    found: dict[str, BuiltArtefact] = {}
    waiting, seen = [bundle_entry], {bundle_entry}
    while waiting:
        entry = waiting.pop()
        with suppress(StoreDamaged, OSError):
            record = store.need(entry)
            name = record.name if record.name not in found else f"{record.name} {record.key[:8]}"
            found[name] = BuiltArtefact(name, record.duration_s, record.size_bytes)
            fresh = {one.entry for one in record.inputs.values()} - seen
            seen |= fresh
            waiting += sorted(fresh)
    times = [verified_unix_s(state_dir)]
    with suppress(OSError):
        times.append(store.record_path(bundle_entry).stat().st_mtime)
    known = [time for time in times if time is not None]
    return Built(tuple(found[name] for name in sorted(found)), max(known, default=None))
