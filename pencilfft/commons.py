"""What belongs to a communicator and not to a plan: window memory, process grids, dropped plans.

MPI has room for some two thousand communicators and windows, and a program may make a plan for
every array that it meets. So plans take their window memory from that which the requests of a
communicator share, and the sub-communicators of a process grid are made once. What is dropped
without ``destroy`` cannot be freed there and then, because that is collective: it waits here until
the next collective call of this package on the communicator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import agree, agreed, largest
from onesided.collectives.arena import Arena, Share
from onesided.collectives.context import Context, Resources
from onesided.collectives.errors import RequestError, ResourceError
from onesided.collectives.memory import warn_of_plain_memory
from onesided.pencilfft.decomposition import array_in


class Piece:
    """Window memory of a plan on this rank, a part of what a communicator's requests share."""

    def __init__(self, comm: MPI.Comm, nbytes: int) -> None:
        """Collective. ``nbytes``, on each rank as many as it wants; in plain memory where a node
        has not enough that can be shared."""
        self.nbytes = nbytes
        context = Context.of(comm)
        self._share: Share | None = None
        try:
            self._share = Arena.of(context).claim(nbytes, "window memory")[0]
        except ResourceError as error:  # on all ranks
            with agreed(context.comm, "plain memory"):
                warn_of_plain_memory(comm, error)  # a warning may have been made an error
                self._memory = np.empty(nbytes, np.uint8)
        else:
            share = self._share
            self._memory = np.empty(0, np.uint8) if share is None else share.lend()

    def array(
        self, shape: Sequence[int], dtype: np.dtype[Any], order: Sequence[int] | None = None
    ) -> NDArray[Any]:
        """Local. The first bytes as an array, with its axes in this order of memory."""
        return array_in(self._memory, shape, dtype, order)

    def give(self) -> None:
        """Collective, in the same order on all ranks. Let others have it; it stays mapped as long
        as somebody holds a view."""
        del self._memory
        if self._share is not None:
            self._share.release()


class Commons:
    """What the plans on one communicator share; made by the first collective call that wants it.

    The communicator's context calls :meth:`detach` when the communicator is freed or MPI ends: an
    attribute of its own is no way, because MPICH 5.0 leaves attributes that it has deleted in the
    list which mpi4py searches for a topology on its way to the next deletion callback.
    """

    _all: ClassVar[dict[int, Commons]] = {}  # by the number of the context

    def __init__(self, context: Context) -> None:
        self.context = context
        context.attached.append(self)
        self._all[context.number] = self
        self._made: dict[Any, Any] = {}
        self._plans = 0
        self._dropped: dict[int, Callable[[], None]] = {}

    @classmethod
    def of(cls, comm: MPI.Comm) -> Commons:
        """Collective on the first call for a communicator, local afterwards.

        RequestError where the communicator has been freed.
        """
        if comm == MPI.COMM_NULL:
            raise RequestError("the communicator has been freed")
        context = Context.of(comm)
        return cls._all.get(context.number) or cls(context)

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """Collective on the first call for a key, local afterwards. What ``make`` makes; it is
        destroyed with the communicator's end."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    # -- plans -----------------------------------------------------------------------------------

    def count(self) -> int:
        """Local, in the same order on all ranks. A number for a plan, the same everywhere."""
        self._plans += 1
        return self._plans

    def drop(self, number: int, free: Callable[[], None]) -> None:
        """Local. Plan ``number`` is gone on this rank; what it leaves is freed by this, which is
        Collective."""
        self._dropped[number] = free

    def collect(self) -> None:
        """Collective. Free what plans have left behind that are gone on every rank."""
        comm = self.context.comm
        mine = sorted(self._dropped)
        if not largest(comm, None, "collect plans", [len(mine)])[0]:
            return
        everyone = agree(comm, what="collect plans", value=mine)
        with ExitStack() as end:  # all of them, whatever fails
            for number in sorted(set(everyone[0]).intersection(*everyone[1:]), reverse=True):
                end.callback(self._dropped.pop(number))

    def detach(self) -> None:
        """Collective. Give back what all ranks have."""
        self._all.pop(self.context.number, None)
        here = Resources(self.context)  # what is freed below must not close the context under us
        with ExitStack() as end:  # all of it from the last one on, whatever fails
            end.callback(here.release)
            for made in self._made.values():
                end.callback(made.destroy)
            end.callback(self._dropped.clear)
            if self.context.orphaned:
                self.collect()
