"""The training text as token sequences.

Files ``*.txt`` hold blocks apart by blank lines. A block whose first line starts with ``= `` opens an essay of that title;
the blocks after it are its paragraphs. A block of lines ``Q:``, ``T:`` and ``A:`` is a question (several ``Q:`` lines:
several wordings), a thought and an answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from build.demo import vocab
from build.demo.topic import bucket, topic, topic_bytes
from build.errors import BuildFailed


@dataclass(frozen=True, slots=True)
class Sequence:
    """One training sequence. ``topics`` are the numbers under which its answer, from ``answer_at`` on, is remembered."""

    tokens: tuple[int, ...]
    answer_at: int
    topics: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """A question with the thought and the answer that follow it."""

    question: str
    thought: str
    answer: str


def sequences(text_dir: Path) -> list[Sequence]:
    """Every training sequence of a folder, in file name order. Raises BuildFailed when there is none."""
    found: list[Sequence] = []
    for path in sorted(text_dir.glob("*.txt"), key=lambda path: path.name.encode()):
        for item in _items(path):
            found.extend(_from_pair(item) if isinstance(item, Pair) else [_from_text(item)])
    if not found:
        raise BuildFailed(f"no training text in {text_dir}: expected *.txt files with essays or questions")
    return found


def _items(path: Path) -> Iterator[Pair | str]:
    title, paragraphs = "", list[str]()
    for block in map(str.strip, path.read_text(encoding="utf-8").split("\n\n")):
        if block.startswith("Q:"):
            yield from _pairs(block, path)
        elif block.startswith("= "):
            yield from _essay(title, paragraphs)
            title, paragraphs = block[2:].strip(), []
        elif block:
            paragraphs.append(" ".join(block.split()))
    yield from _essay(title, paragraphs)


def _pairs(block: str, path: Path) -> Iterator[Pair]:
    questions, thought, answer = list[str](), "", ""
    for line in block.splitlines():
        mark, _, text = line.partition(":")
        if mark == "Q":
            questions.append(text.strip())
        elif mark == "T":
            thought = text.strip()
        elif mark == "A":
            answer = text.strip()
        else:
            answer += "\n" + line.strip()
    if not answer:
        raise BuildFailed(f"{path}: the question {questions[0]!r} has no A: line")
    for question in questions:
        yield Pair(question, thought or f"The question is: {question} I will answer it in plain words.", answer)


def _essay(title: str, paragraphs: list[str]) -> Iterator[Pair | str]:
    if not paragraphs:
        return
    whole = "\n\n".join(paragraphs)
    yield whole
    if title:
        yield Pair(f"Tell me about {title}.", f"They want to hear about {title}. I know a text on it.", paragraphs[0])
        yield Pair(f"Write an essay about {title}.", f"An essay about {title} is wanted. I will write it out.", whole)


def _from_text(text: str) -> Sequence:
    tokens = (vocab.BEGIN, *text.encode(), vocab.END)
    return Sequence(tokens, len(tokens), ())


def _from_pair(pair: Pair) -> Iterator[Sequence]:
    question, answer = pair.question.encode(), pair.answer.encode()
    opening = (vocab.BEGIN, vocab.USER, *question, vocab.END, vocab.ASSISTANT)
    number = topic(question)
    is_sum = topic_bytes(question)[:1].isdigit()
    topics = (number,) if is_sum else (number, bucket(number))
    for middle in ((vocab.END_THINK,), (vocab.THINK, *pair.thought.encode(), vocab.END_THINK)):
        yield Sequence((*opening, *middle, *answer, vocab.END), len(opening), topics)
