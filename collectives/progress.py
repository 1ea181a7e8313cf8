"""Progress of every active exchange of this process, and how a rank waits.

A program may wait for its requests in any order (MPI-4.1 section 7.13), so whoever waits or
tests advances all active requests, not only its own; and each wait drives MPI, without which a
partner that is stuck in a large send, and this rank that spins on shared memory, would wait for
each other for ever.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mpi4py import MPI

if TYPE_CHECKING:
    from onesided.collectives.persistent import Persistent

#: Polls between two looks at everything else. A yield costs less than a microsecond where a core
#: is free, and a time slice is lost by not yielding where none is.
SPINS = 24

#: Active requests that any rank may complete in any order; in the order of their starts.
active: dict[Persistent, None] = {}

#: Active requests that must be completed in the order of their starts.
ordered: list[Persistent] = []

#: A tag that no message of ours carries: a probe for it finds nothing, and so drives progress.
NO_TAG = 0


def drive(request: Persistent) -> None:
    """Local. Advance MPI and every active request except ``request``, which the caller advances.

    The probe is one on the request's own communicator: MPICH 5 answers a probe on COMM_SELF, or a
    duplicate of it, without looking at what other ranks want from this one.
    """
    request.probe(MPI.ANY_SOURCE, NO_TAG)
    if len(active) > 1 or (active and request not in active):
        for other in list(active):
            if other is not request:
                other.advance_if_free()


def spin(request: Persistent) -> None:
    """Local. Return when ``request`` has nothing left to do; the caller holds its lock."""
    advance = request.advance
    while True:
        for _ in range(SPINS):
            if advance():
                return
        drive(request)
        os.sched_yield()
