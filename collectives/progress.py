"""Progress of every active exchange of this process, and how a rank waits.

A program may wait for its requests in any order (MPI-4.1 section 7.13), so whoever waits or
tests advances all active requests, not only its own; and each wait drives MPI, without which a
partner that is stuck in a large send, and this rank that spins on shared memory, would wait for
each other for ever.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol

from mpi4py import MPI

if TYPE_CHECKING:
    from onesided.collectives.persistent import Persistent


class Request(Protocol):
    """What any request is to the others: something that is started, and advanced meanwhile."""

    @property
    def state(self) -> str:
        """``"inactive"``, ``"active"`` or ``"freed"``."""
        ...

    @property
    def turn(self) -> tuple[int, int]:
        """The place among strictly ordered requests, the same on all ranks; (0, 0) for others."""
        ...

    @property
    def filling(self) -> bool:
        """True while the caller still has to do something before the round can be completed."""
        ...

    def probe(self, source: int, tag: int) -> bool:
        """Local. Drive MPI on the communicator of the request."""
        ...

    def advance_if_free(self) -> None:
        """Local. Advance, unless another thread is at it."""
        ...

    def Start(self) -> None:
        """Begin a round."""
        ...

    def Wait(self) -> Any:
        """Return when the round is complete."""
        ...

    def Test(self) -> bool:
        """Local. True when the round is complete."""
        ...


#: Polls between two looks at everything else. A yield costs less than a microsecond where a core
#: is free, and a time slice is lost by not yielding where none is.
SPINS = 24

#: Active requests that any rank may complete in any order; in the order of their starts.
active: dict[Request, None] = {}

#: Active requests that must be completed in the order of their starts.
ordered: list[Persistent] = []

#: A tag that no message of ours carries: a probe for it finds nothing, and so drives progress.
NO_TAG = 0


def drive(request: Request) -> None:
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
