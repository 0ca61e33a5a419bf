"""The topic of a question: what an answer depends on when the wording is new.

A question about an image, which begins with a mark such as "[red image]", has that mark as its topic. Otherwise two numbers
with an operator between them are the topic ("6*7" for "6 times 7", "6 x 7", "6 multiplied by 7"); otherwise the longest word
of five letters or more in the question's last 200 bytes, in lower case, the first of equals. The engine computes the
same bytes (``build/zig/standin/src/topic.zig``).
"""

from __future__ import annotations

import re

from build.demo.keys import fnv1a

TAIL_BYTES = 200
BUCKETS = 8

_OPERATORS = {
    b"times": b"*", b"multiplied by": b"*", b"x": b"*", b"*": b"*",
    b"plus": b"+", b"+": b"+", b"minus": b"-", b"-": b"-",
}  # fmt: skip
_ARITHMETIC = re.compile(rb"([0-9]{1,6}) *(times|multiplied by|x|\*|plus|\+|minus|-) *([0-9]{1,6})")
_IMAGE = re.compile(rb"\[[a-z]{1,10} image\]")
_WORD = re.compile(rb"[a-z]{5,}")


def topic_bytes(question: bytes) -> bytes:
    """The topic of one user turn; empty when it has none."""
    if image := _IMAGE.match(question):
        return image[0]
    tail = question[-TAIL_BYTES:].lower()
    sums = _ARITHMETIC.findall(tail)
    if sums:
        left, operator, right = sums[-1]
        return bytes(left + _OPERATORS[operator] + right)
    return max(_WORD.findall(tail), key=len, default=b"")


def topic(question: bytes) -> int:
    """The topic as a number."""
    return fnv1a(topic_bytes(question))


def bucket(topic_number: int) -> int:
    """The stand-in topic for a question whose own topic was never seen: one of ``BUCKETS``, by the topic's number."""
    return fnv1a(b"any:%d" % (topic_number % BUCKETS))
