"""Small sums that belong to a communicator: one persistent Allreduce for all who ask for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike, NDArray

from onesided.collectives.context import Context
from onesided.collectives.reduction.operation import Allreduce_init

#: Numbers of 8 bytes that travel in one cache line with the counter that tells of them.
FEW = 7


class Sums:
    """The sums over all ranks of a few numbers: write them to ``own``, call ``start`` and
    ``finish``, and find them in ``total``.

    Made by :func:`sums`; it lives as long as its communicator. One sum is under way at a time.
    """

    def __init__(self, comm: MPI.Comm, count: int, dtype: np.dtype[Any]) -> None:
        """Collective."""
        self.own: NDArray[Any] = np.zeros(count, dtype)
        self.total: NDArray[Any] = np.zeros(count, dtype)
        self.request = Allreduce_init(comm, self.own, self.total)
        self.start, self.finish = self.request.Start, self.request.Wait

    def of(self, *numbers: Any) -> list[Any]:
        """Collective. The sums of some numbers, at most as many as there is room for."""
        count = len(numbers)
        self.own[:count] = numbers
        self.start()
        self.finish()
        found: list[Any] = self.total[:count].tolist()
        return found


def sums(comm: MPI.Comm, count: int = FEW, dtype: DTypeLike = np.float64) -> Sums:
    """Collective on the first call for a communicator, a count and a dtype; local afterwards.

    The sums of up to ``count`` numbers of this dtype. What is asked for again is the same object.
    """
    context, kind = Context.of(comm), np.dtype(dtype)
    key = (count, kind.str)
    if key not in context.shared:
        context.shared[key] = Sums(comm, count, kind)
    found: Sums = context.shared[key]
    return found
