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
    from .request import PersistentRequest

#: Polls between two looks at everything else. A yield costs less than a microsecond where a core
#: is free, and a time slice is lost by not yielding where none is.
SPINS = 24

#: Active requests that any rank may complete in any order; in the order of their starts.
active: dict[int, PersistentRequest] = {}

#: Active requests that must be completed in the order of their starts.
ordered: list[PersistentRequest] = []

_probe: MPI.Intracomm | None = None


def prepare() -> None:
    """Local. Make the communicator whose probes drive MPI's progress."""
    global _probe
    if _probe is None:
        _probe = MPI.COMM_SELF.Dup()


def drive(but: PersistentRequest | None = None) -> None:
    """Local. Advance MPI and every active request except ``but``, which the caller advances."""
    if _probe is not None:
        _probe.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG)
    if len(active) > 1 or but is None:
        for request in list(active.values()):
            if request is not but:
                request.advance_if_free()


def spin(request: PersistentRequest) -> None:
    """Local. Return when ``request`` has nothing left to do; the caller holds its lock."""
    advance = request.advance
    while True:
        for _ in range(SPINS):
            if advance():
                return
        drive(request)
        os.sched_yield()
