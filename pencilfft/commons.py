"""What belongs to a communicator and not to a plan: window memory, process grids, dropped plans.

MPI has room for some two thousand communicators and windows, and a program may make a plan for
every array that it meets. So plans on one communicator take their window memory from regions that
they share, and the sub-communicators of a process grid are made once. What is dropped without
``destroy`` cannot be freed there and then, because that is collective: it waits here until the
next collective call of this package on the communicator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import empty, free
from onesided.collectives.agreement import agree, largest
from onesided.collectives.context import Context, Resources
from onesided.collectives.errors import RequestError
from onesided.collectives.memory import find_region

#: Bytes of a piece that has a region of its own, and of the first region that pieces share.
OWN_BYTES, FIRST_BYTES = 1 << 20, 1 << 17

#: Pieces begin at multiples of this many bytes: a page.
ALIGNMENT = 4096


class Attached(ABC):
    """Something that a communicator has once; made by the first collective call that wants it.

    It is entered among the retired memory of the communicator's context, which asks :meth:`unused`
    and calls :meth:`unmap` when the communicator is freed or MPI ends: an attribute of its own is
    no way, because MPICH 5.0 leaves attributes that it has deleted in the list which mpi4py
    searches for a topology on its way to the next deletion callback.
    """

    _all: ClassVar[dict[int, Any]]  # by the number of the context

    def __init_subclass__(cls) -> None:
        cls._all = {}

    def __init__(self, context: Context) -> None:
        self.context = context
        context.retired.append(self)
        self._all[context.number] = self

    @classmethod
    def of(cls, comm: MPI.Comm) -> Self:
        """Collective on the first call for a communicator, local afterwards.

        RequestError where the communicator has been freed.
        """
        if comm == MPI.COMM_NULL:
            raise RequestError("the communicator has been freed")
        context = Context.of(comm)
        found: Self = cls._all.get(context.number) or cls(context)
        return found

    def unused(self) -> bool:
        """Local. True where the communicator is being freed."""
        return self.context.orphaned

    def unmap(self) -> None:
        """Collective. Give everything back."""
        self._all.pop(self.context.number, None)
        here = Resources(self.context)  # what is freed below must not close the context under us
        try:
            self.close()
        finally:
            del self.context.live[here]

    @abstractmethod
    def close(self) -> None:
        """Collective. Give everything back."""


class Freeable(Protocol):
    """What a dropped plan leaves behind."""

    def free(self) -> None:
        """Collective. Give everything back."""


class Piece:
    """Window memory of a plan on this rank; from :meth:`Commons.take`, back by :meth:`give`."""

    def __init__(
        self, commons: Commons, region: NDArray[np.uint8], start: int, nbytes: int
    ) -> None:
        self.nbytes = nbytes
        self._commons, self._region, self._start = commons, region, start

    def array(
        self, shape: Sequence[int], dtype: np.dtype[Any], order: Sequence[int] | None = None
    ) -> NDArray[Any]:
        """Local. The first bytes as an array, with its axes in this order of memory."""
        axes = tuple(range(len(shape))) if order is None else order
        count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        start = self._start if count else 0  # nothing counts as window memory at its start only
        flat = self._region[start : start + count].view(dtype)
        return flat.reshape([shape[axis] for axis in axes]).transpose(np.argsort(axes))

    def give(self) -> None:
        """Collective, in the same order on all ranks. Let others have it; no view may be left."""
        commons, region = self._commons, self._region
        del self._region
        commons._take_back(region, self._start, self.nbytes)


class Commons(Attached):
    """What the plans on one communicator share."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._made: dict[Any, Any] = {}
        self._regions: list[NDArray[np.uint8]] = []
        self._gaps: list[tuple[int, int, int]] = []  # (region, start, stop), in order
        self._next = FIRST_BYTES
        self._taken = 0  # pieces that have not come back
        self._plans = 0
        self._dropped: dict[int, Freeable] = {}

    def unused(self) -> bool:
        """Local. True where the communicator is being freed and nobody has a piece."""
        return super().unused() and not self._taken

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """Collective on the first call for a key, local afterwards. What ``make`` makes.

        Its ``destroy``, if it has one, is called with the communicator's end.
        """
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    # -- window memory ---------------------------------------------------------------------------

    def take(self, nbytes: int) -> Piece:
        """Collective. ``nbytes`` of window memory, on each rank as many as it wants.

        ResourceError on every rank where a node's shared memory does not suffice.
        """
        room = -(-nbytes // ALIGNMENT) * ALIGNMENT
        lacks = 0 if any(stop - start >= room for _, start, stop in self._gaps) else room
        most, lacking = largest(self.context.comm, None, "window memory", [room, lacks])
        if most >= OWN_BYTES:
            piece = Piece(self, empty(self.context.comm, nbytes, np.uint8, links=0), 0, nbytes)
        else:
            if lacking or not self._regions:
                self._grow(lacking)
            i, (number, start, stop) = next(
                (i, gap) for i, gap in enumerate(self._gaps) if gap[2] - gap[1] >= room
            )
            self._gaps[i] = (number, start + room, stop)
            piece = Piece(self, self._regions[number], start, nbytes)
        self._taken += 1
        return piece

    def _grow(self, lacking: int) -> None:
        while self._next < lacking:
            self._next *= 2
        region = empty(self.context.comm, self._next, np.uint8, links=0)
        self._regions.append(region)
        self._gaps.append((len(self._regions) - 1, 0, region.nbytes))
        self._next = min(2 * self._next, 4 * OWN_BYTES)

    def _take_back(self, region: NDArray[np.uint8], start: int, nbytes: int) -> None:
        self._taken -= 1
        number = next((i for i, each in enumerate(self._regions) if each is region), None)
        if number is None:
            free(region)
            return
        if self.context.orphaned:
            self.context.collect()
        stop = start + -(-nbytes // ALIGNMENT) * ALIGNMENT
        joined: list[tuple[int, int, int]] = []
        for gap in sorted([*self._gaps, (number, start, stop)]):
            if joined and joined[-1][0] == gap[0] and joined[-1][2] == gap[1]:
                joined[-1] = (gap[0], joined[-1][1], gap[2])
            elif gap[1] < gap[2]:
                joined.append(gap)
        self._gaps = joined

    # -- plans -----------------------------------------------------------------------------------

    def count(self) -> int:
        """Local, in the same order on all ranks. A number for a plan, the same everywhere."""
        self._plans += 1
        return self._plans

    def drop(self, number: int, left: Freeable) -> None:
        """Local. Plan ``number`` is gone on this rank, and leaves this behind."""
        self._dropped[number] = left

    def collect(self) -> None:
        """Collective. Free what plans have left behind that are gone on every rank."""
        comm = self.context.comm
        mine = sorted(self._dropped)
        if not largest(comm, None, "collect plans", [len(mine)])[0]:
            return
        everyone = agree(comm, what="collect plans", value=mine)
        for number in sorted(set(everyone[0]).intersection(*everyone[1:])):
            self._dropped.pop(number).free()

    def close(self) -> None:
        """Collective. Give back what all ranks have."""
        self._dropped.clear()
        while self._made:
            getattr(self._made.popitem()[1], "destroy", tuple)()
        self._gaps.clear()
        while self._regions:
            region = self._regions.pop()
            if find_region(region) is not None:  # else the context has freed it already
                free(region)
