"""Train the demo model: text in, a Hugging-Face-shaped checkpoint and its Engram folder out."""

from __future__ import annotations

from pathlib import Path

from build.demo import tables, vocab
from build.demo.corpus import sequences
from build.demo.safetensors import Tensor, write_json, write_shards

CONTEXT_TOKENS = 65536
COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
COLOUR_BYTES = 16


def train(text_dir: Path, out_model: Path, out_engram: Path) -> None:
    """Read ``text_dir``/*.txt; write the checkpoint to ``out_model`` and the Engram shards to ``out_engram``.

    Deterministic: integer counts, sorted iteration, no clock. Both folders are created when missing.
    """
    trained = tables.count(sequences(text_dir))
    out_model.mkdir(parents=True, exist_ok=True)
    out_engram.mkdir(parents=True, exist_ok=True)
    _write_model(out_model, trained)
    _write_engram(out_engram, trained)


def _write_model(folder: Path, trained: tables.Trained) -> None:
    dense = {f"layers.{order}.ngram.weight": _dense(order, data) for order, data in trained.dense.items()}
    draft = Tensor("U16", (len(trained.draft) // 2,), trained.draft)
    words = b"".join(name.encode().ljust(COLOUR_BYTES, b"\0") for name in COLOURS)
    vision = Tensor("U8", (len(COLOURS), COLOUR_BYTES), words)
    low = {f"layers.{order}.ngram.weight" for order in (0, 1, 2, 3)}
    write_shards(
        folder,
        {
            "model-00001-of-00004.safetensors": {name: dense[name] for name in sorted(low)},
            "model-00002-of-00004.safetensors": {name: dense[name] for name in sorted(set(dense) - low)},
            "model-00003-of-00004.safetensors": {"draft.next.weight": draft},
            "model-00004-of-00004.safetensors": {"vision.colours.weight": vision},
        },
    )
    write_json(folder / "config.json", _config())
    write_json(folder / "generation_config.json", _generation_config())
    write_json(folder / "tokenizer.json", vocab.tokenizer_json())
    write_json(folder / "tokenizer_config.json", _tokenizer_config())
    (folder / "chat_template.jinja").write_text(vocab.CHAT_TEMPLATE, encoding="utf-8")


def _write_engram(folder: Path, trained: tables.Trained) -> None:
    shards = {
        f"model-{3 + place:05d}-of-00004.safetensors": {
            f"engram.{place}.table": Tensor("U8", (tables.BLOCKS, tables.BLOCK_BYTES), data)
        }
        for place, data in enumerate(trained.engram)
    }
    write_shards(folder, shards)
    write_json(folder / "config.json", _config())


def _dense(order: int, data: bytes) -> Tensor:
    return Tensor("U8", (tables.DENSE_ROWS[order], vocab.VOCAB_SIZE), data)


def _config() -> dict[str, object]:
    return {
        "architectures": ["TwinfoldNgramForCausalLM"],
        "model_type": "twinfold_ngram",
        "vocab_size": vocab.VOCAB_SIZE,
        "max_position_embeddings": CONTEXT_TOKENS,
        "bos_token_id": vocab.BEGIN,
        "eos_token_id": vocab.END,
        "dense_rows": [tables.DENSE_ROWS[order] for order in sorted(tables.DENSE_ROWS)],
        "engram_orders": [list(orders) for orders in tables.ENGRAM_ORDERS],
        "engram_blocks": tables.BLOCKS,
        "engram_block_bytes": tables.BLOCK_BYTES,
    }


def _generation_config() -> dict[str, object]:
    return {
        "bos_token_id": vocab.BEGIN,
        "eos_token_id": vocab.END,
        "do_sample": True,
        "temperature": 1.0,
        "top_p": 0.95,
        "top_k": 20,
    }


def _tokenizer_config() -> dict[str, object]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|begin|>",
        "eos_token": "<|end|>",
        "model_max_length": CONTEXT_TOKENS,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
    }
