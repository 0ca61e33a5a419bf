"""What is asked while measuring: prose and code, and long prompts that no cache knows. Pure.

Drafts are taken more often in ordinary prose and code than in random words, so random words would measure another engine. Timed
prompts begin with a mark that no earlier prompt had: a prompt that shares its beginning with an earlier one would be found in the
engine's prefix cache, and its prefill would cost nothing. A mark has no hyphens between digits: it is no sum to be worked out.
"""

from __future__ import annotations

import random

PROSE, CODE = "prose", "code"
KINDS = (PROSE, CODE)
ASKED = {
    PROSE: (
        "Write a long essay about how a river shapes the land along its way, from its spring to the sea.",
        "Tell the history of the printing press at length, and what it changed for those who could read.",
        "Explain in long paragraphs how two machines can share the work of one large model.",
        "Describe a day in a small harbour town from early morning until night, with its people and their work.",
    ),
    CODE: (
        "Write a Python module with a priority queue of jobs: add, pop, cancel, and tests. Give the whole code.",
        "Write a C program that reads lines from standard input and prints the ten most frequent words. Give the whole code.",
        "Write a JavaScript class for a least-recently-used cache with comments and a usage example. Give the whole code.",
        "Write a Python script that parses an access log and prints requests a minute by status. Give the whole code.",
    ),
}
SENTENCES = (
    "The {a} of the old {b} was kept in a ledger that nobody had opened for {n} years.",
    "In the {n} days after the storm, every {a} along the coast was counted against its {b}.",
    "A {a} without a {b} is of little use, as the report said on page {n}.",
    "She wrote down {n} reasons why the {a} should stay where the {b} had always been.",
    "By evening the {b} had crossed {n} miles of open country with the {a} behind it.",
    "Nothing in the {a} explained why the {b} came back {n} times before winter.",
    "The committee gave the {b} a budget of {n} and asked for a new {a} by spring.",
    "When the {a} failed, {n} households went without a {b} until the road was clear.",
)
WORDS = (
    "bridge", "lantern", "harbour", "orchard", "engine", "letter", "museum", "valley", "station", "garden",
    "archive", "market", "river", "window", "workshop", "library", "compass", "kitchen", "tower", "meadow",
    "factory", "cellar", "journal", "island", "theatre", "quarry", "stable", "mirror", "chapel", "granary",
)  # fmt: skip


def decode_prompt(kind: str, number: int, mark: str = "") -> str:
    """A request for a long reply; ``mark`` "" gives the text that is the same in every bench, for comparing tokens."""
    asked = ASKED[kind][number % len(ASKED[kind])]
    again = number // len(ASKED[kind])  # more streams than texts: still no two alike
    return f"{f'[{mark}] ' if mark else ''}{f'({again + 1}) ' if again else ''}{asked}"


def prefill_prompt(mark: str, characters: int) -> str:
    """A text of about so many characters, which shares nothing with that of another mark: its sentences are drawn by the mark."""
    draw = random.Random(mark)  # noqa: S311 - a text to read, no secret
    parts = [f"[{mark}]"]
    size = len(parts[0])
    while size < characters:
        sentence = draw.choice(SENTENCES).format(a=draw.choice(WORDS), b=draw.choice(WORDS), n=draw.randint(2, 9999))
        parts.append(sentence)
        size += len(sentence) + 1
    return " ".join(parts)[: max(characters, len(parts[0]))]
