"""The bundle's builder: names what a launch needs, from the entries that the bundle is made from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from build.artefacts import images as image_artefacts
from build.store.generations import BUNDLE_FILE

if TYPE_CHECKING:
    from build.bundle import ImageRef, StoreRef
    from build.graph.jobs import Job

BUILDER, VERSION = "bundle", 3
TOKEN_MAP = "dsv41_token_map.json"  # noqa: S105 - a file's name


def write(job: Job) -> None:
    """Write ``bundle.json``."""
    from build.bundle import Bundle, Engine, Needs, NodeTool, StoreRef, to_json

    params, records = job.artefact.params, job.records

    def ref(role: str, inside: str = "") -> StoreRef:
        return StoreRef(records[role].entry, inside)

    def image(role: str) -> ImageRef:
        return image_artefacts.reference(job.inputs[role], records[role].entry)

    ranks = [f"rank{r}" for r in range(params["world_size"])]
    bundle = Bundle(
        target=params["target"],
        variant=params["variant"],
        served_name=params["served_name"],
        world_size=params["world_size"],
        window_tokens=params["window_tokens"],
        prefill_tokens_per_s=params["prefill_tokens_per_s"],
        engine=Engine(**{role: ref(role, name) for role, name in params["binaries"].items()}),
        model=ref("model"),
        rank_caches=tuple(ref(r) for r in ranks),
        rank_cache_bytes=tuple(records[r].size_bytes for r in ranks),
        kit=ref("kit"),
        token_map=ref("token_map", TOKEN_MAP),
        engram=ref("engram"),
        image={job.artefact.platform: image("image")},
        node_tool={job.artefact.platform: NodeTool(ref("node_tool", params["node_tool"]), image("node_image"))},
        needs=Needs(**params.get("needs", {})),
        smoke=(params["smoke"][0], params["smoke"][1]),
        model_revision=params.get("model_revision") or records["model"].output[:40],
    )
    job.out.mkdir()
    (job.out / BUNDLE_FILE).write_text(to_json(bundle), encoding="utf-8")
