"""The demo tokenizer: one token a byte, and a few special tokens above them.

The same numbers stand in the stand-in engine (``build/zig/standin/src/layout.zig``); the checkpoint's ``config.json``
carries them, and the engine refuses a checkpoint whose numbers differ from its own.
"""

from __future__ import annotations

VOCAB_SIZE = 288  # divisible by 4: every world size the packer takes splits it evenly

BEGIN = 256
SYSTEM = 257
USER = 258
ASSISTANT = 259
TOOL = 260
END = 261
THINK = 262
END_THINK = 263
IMAGE = 264
TOOL_CALL = 265
END_TOOL_CALL = 266

SPECIAL = {
    "<|begin|>": BEGIN,
    "<|system|>": SYSTEM,
    "<|user|>": USER,
    "<|assistant|>": ASSISTANT,
    "<|tool|>": TOOL,
    "<|end|>": END,
    "<think>": THINK,
    "</think>": END_THINK,
    "<|image|>": IMAGE,
    "<tool_call>": TOOL_CALL,
    "</tool_call>": END_TOOL_CALL,
}


def byte_letters() -> dict[int, str]:
    """Byte -> the letter that byte-level BPE vocabularies print for it (GPT-2's table: printable bytes stand for
    themselves, the others for U+0100 upwards in byte order)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {byte: chr(byte) for byte in printable}
    others = [byte for byte in range(256) if byte not in letters]
    return letters | {byte: chr(0x100 + place) for place, byte in enumerate(others)}


def canonical(token: int) -> int:
    """The token that Engram keys are made from: a-z count as A-Z (the lower number of the two), others as themselves."""
    return token - 32 if 97 <= token <= 122 else token


def tokenizer_json() -> dict[str, object]:
    """``tokenizer.json`` in the form of the tokenizers library: byte-level BPE without merges."""
    letters = byte_letters()
    added = [
        {
            "id": number,
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for text, number in SPECIAL.items()
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "unk_token": None, "vocab": {letters[byte]: byte for byte in range(256)}, "merges": []},
    }


CHAT_TEMPLATE = (
    "<|begin|>{% for message in messages %}"
    "{% if message.role == 'system' %}<|system|>{{ message.content }}<|end|>"
    "{% elif message.role == 'user' %}<|user|>{{ message.content }}<|end|>"
    "{% elif message.role == 'tool' %}<|tool|>{{ message.content }}<|end|>"
    "{% elif message.role == 'assistant' %}<|assistant|></think>{{ message.content }}<|end|>"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% if enable_thinking %}<think>{% else %}</think>{% endif %}{% endif %}\n"
)
