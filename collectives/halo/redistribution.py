"""A field of one grid to a field of another: one persistent exchange of the boxes they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.context import Scoped
from onesided.collectives.exchanges import Alltoallw_init
from onesided.collectives.halo.faces import common, is_empty
from onesided.collectives.pattern import Box


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


class Redistribution(Scoped):
    """Collective. The way from one part to another; :meth:`move` goes it."""

    def __init__(self, comm: MPI.Comm, source: Part, target: Part, info: Any = None) -> None:
        rank = comm.Get_rank()
        out = source.shared(source.boxes[rank], target.boxes)
        into = target.shared(target.boxes[rank], source.boxes)
        self._target = target.array
        self._request = Alltoallw_init(comm, [source.array, out], [target.array, into], info=info)

    def move(self) -> NDArray[Any]:
        """Collective in the sense of MPI. Fill the target, and return it."""
        self._request.Start()
        self._request.Wait()
        return self._target

    @property
    def freed(self) -> bool:
        """Local. Whether it can move nothing any more."""
        return bool(self._request.state == "freed")

    def Free(self) -> None:
        """Collective. Give the request back."""
        self._request.Free()
