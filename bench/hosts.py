"""The testbed's two hosts, for one bench alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.testbed import bed
from tests.testbed.bed import Busy, Testbed
from tests.testbed.layout import Layout

LOCK_WAIT_S = 600.0


@contextmanager
def two_hosts() -> Iterator[Testbed]:
    """A testbed of the bench's own, gone afterwards. Where none can be made the bench ends with 3 and the reason."""
    with ExitStack() as stack:
        try:
            testbed = stack.enter_context(bed.own(Layout.here(os.environ), LOCK_WAIT_S))
        except Busy as error:
            print(f"error: {error}", file=sys.stderr)
            raise SystemExit(3) from None
        yield testbed
