"""Commands that write files: a configuration out of a recipe, units and manifests out of a configuration."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

from build.errors import UsageError
from build.settings import Sources
from build.store import durable
from supervisor.configuration import configure

CHECKOUT = Path(__file__).resolve().parents[2]


def import_recipe(args: Namespace, sources: Sources) -> int:
    """``supervisor import-recipe``: each value with what became of it, then the file."""
    from build.facts.memory import read_meminfo
    from build.settings import Places, names
    from supervisor.configuration import without_file
    from supervisor.recipe import importer
    from supervisor.recipe.values import Machine, rank_needs
    from supervisor.settings import GROUPS

    here = configure(without_file(sources))
    memory = read_meminfo(here.memory.proc_root)
    machine = Machine(
        memory.total_bytes, memory.available_bytes, rank_needs(memory.total_bytes), here.serve.api_key_file is not None
    )
    found = importer.import_recipe(args.folder, sources.environ, machine, names(Places, *GROUPS))
    for line in found.report():
        print(line)
    importer.refuse_failed(found)
    if args.dry_run:
        print(found.config(), end="")
        return 0
    assert sources.file is not None
    importer.write_config(sources.file, found.config(), replace=args.force)
    print(f"written: {sources.file}")
    return 0


def export(args: Namespace, sources: Sources) -> int:
    """``supervisor export``: printed, or written to a folder."""
    from supervisor.export import writing

    if args.form == "systemd":
        made = {"twinfold.service": writing.systemd_unit(sources, CHECKOUT)}
    elif args.form == "compose":
        made = writing.compose_files(sources)
    else:
        made = {"twinfold.yaml": writing.lws_manifest(sources)}
    if args.output:
        _write(Path(args.output), made)
    else:
        print("---\n".join(made.values()), end="")
    return 0


def _write(folder: Path, made: Mapping[str, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in made.items():
            durable.replace_file(folder / name, content.encode(), 0o644)
            print(folder / name)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written to: {error.strerror or error}: name another folder with --output") from None
