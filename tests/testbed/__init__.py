"""Two (or four) hosts on one machine: network namespaces with real sshd, real dockerd and readings to rewrite.

``python -m tests.testbed up`` starts them for a person; the ``testbed`` fixture (:mod:`tests.testbed.fixtures`) for tests.
"""

from __future__ import annotations
