"""A field of one grid to a field of another, or to a distributed array: one persistent exchange of
the boxes they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import words_of_all
from onesided.collectives.context import Scoped
from onesided.collectives.errors import PatternError
from onesided.collectives.exchanges import Alltoallw_init
from onesided.collectives.halo.faces import common, extents, is_empty
from onesided.collectives.pattern import Box


@runtime_checkable
class Placed(Protocol):
    """A NumPy array that is this rank's block of a global array, and tells which one."""

    global_shape: tuple[int, ...]

    def local_slice(self) -> Sequence[slice]:
        """Local. The block as slices of the global array."""


@dataclass(frozen=True)
class Part:
    """What this rank has of a global array, and who has what.

    ``origin`` is where its own part begins in ``array``; ``boxes`` are the parts of all ranks, in
    global indices.
    """

    array: NDArray[Any]
    origin: Sequence[int]
    boxes: Sequence[Box]

    def shared(self, mine: Box, theirs: Sequence[Box]) -> list[Box | None]:
        """Local. By rank, the box of the array that shows what is in its part, too."""
        found: list[Box | None] = []
        for box in theirs:
            both = common(mine, box)
            found.append(None if is_empty(both) else tuple(
                slice(part.start - own.start + at, part.stop - own.start + at)
                for part, own, at in zip(both, mine, self.origin, strict=True)
            ))
        return found


def part_of(comm: MPI.Intracomm, array: Any) -> Part:
    """Collective. A distributed array as what ranks own of its global array.

    Raises :class:`PatternError` on every rank where blocks do not make up the whole.
    """
    mine = np.array([(part.start, part.stop) for part in array.local_slice()], np.int64)
    ends = words_of_all(mine.size * comm.size, np.int64)
    comm.Allgather(mine, ends)
    boxes = [tuple(slice(*pair) for pair in box)
             for box in ends.reshape(comm.size, -1, 2).tolist()]
    count = sum(int(np.prod(extents(box))) for box in boxes)
    if count != int(np.prod(array.global_shape)):
        raise PatternError(f"blocks of {count} elements in all do not make up a distributed array "
                           f"of shape {array.global_shape}")
    return Part(np.asarray(array), [0] * len(mine), boxes)


class Redistribution(Scoped):
    """The way from one part to another; :meth:`exchange` goes it."""

    def __init__(self, comm: MPI.Comm, source: Part, target: Part, info: Any = None) -> None:
        """Collective."""
        rank = comm.Get_rank()
        out = source.shared(source.boxes[rank], target.boxes)
        into = target.shared(target.boxes[rank], source.boxes)
        self._target = target.array
        self._request = Alltoallw_init(comm, [source.array, out], [target.array, into], info=info)

    def exchange(self) -> NDArray[Any]:
        """Collective in the sense of MPI. Fill the target, and return it."""
        self._request.Start()
        self._request.Wait()
        return self._target

    @property
    def state(self) -> str:
        """Local. That of the request."""
        return self._request.state

    def Free(self) -> None:
        """Collective. Give the request back."""
        self._request.Free()
