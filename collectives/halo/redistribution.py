"""Fields from one distribution to another: other cuts, distributed arrays, one rank, and grids of
twice the cells along every axis and back by the adjoint.

A persistent exchange of the boxes that two parts share brings one to the other. Weights of
refinement are products of those along each axis, so one axis is done after the other: on the
blocks of the coarse grid, which are brought to those of the fine one, or come from there, where
they differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import agreed, words_of_all
from onesided.collectives.context import Context, Scoped
from onesided.collectives.errors import PatternError
from onesided.collectives.exchanges import Alltoallw_init
from onesided.collectives.halo.faces import Layers, common, empty_box, extents, is_empty
from onesided.collectives.pattern import Box, one_piece


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
    global indices. ``owner`` is what the array belongs to, and is kept with it.
    """

    array: NDArray[Any]
    origin: Sequence[int]
    boxes: Sequence[Box]
    owner: Any = None

    @classmethod
    def of_one(cls, size: int, root: int, array: NDArray[Any], box: Box) -> Part:
        """Local. A box that is in an array of one rank, of ``size`` ranks."""
        boxes = [box if rank == root else empty_box(len(box)) for rank in range(size)]
        return cls(array, [0] * len(box), boxes)

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
    return Part(np.asarray(array), [0] * len(mine), boxes, array)


class Redistribution(Scoped):
    """The way from one part to another; :meth:`exchange` goes it, ``once`` or again and again."""

    def __init__(
        self, comm: MPI.Comm, source: Part, target: Part, info: Any = None, once: bool = False
    ) -> None:
        """Collective."""
        rank = comm.Get_rank()
        self._source, self._target, self.once = source, target, once
        self._beside: tuple[NDArray[Any], NDArray[Any]] | None = None
        with agreed(Context.of(comm).comm, "memory of a redistribution"):
            check_writable(target.array)
            if not one_piece(target.array):  # what comes is received beside it
                here = extents(target.boxes[rank])
                view = target.array[_inside(target.origin, here, [0] * len(here))]
                if view.shape != tuple(here):
                    raise PatternError(f"an array of shape {target.array.shape} for a block of "
                                       f"{tuple(here)}")
                target = Part(np.empty(here, view.dtype), [0] * len(here), target.boxes)
                self._beside = view, target.array
        out = source.shared(source.boxes[rank], target.boxes)
        into = target.shared(target.boxes[rank], source.boxes)
        self._request = Alltoallw_init(
            comm, [source.array, out], [target.array, into], method="p2p" if once else "auto",
            info=info,
        )  # fmt: skip

    def exchange(self) -> NDArray[Any]:
        """Collective in the sense of MPI. Fill the target, and return it."""
        self._request.Start()
        self._request.Wait()
        if self._beside is not None:
            view, come = self._beside
            view[...] = come
        if self.once:
            self.Free()
        return self._target.array

    @property
    def state(self) -> str:
        """Local. That of the request."""
        return self._request.state

    def Free(self) -> None:
        """Collective. Give the request back."""
        self._request.Free()


class Refinement(Scoped):
    """The way from a coarse field to a fine one, or back; :meth:`exchange` goes it, ``once`` or
    again and again."""

    def __init__(
        self, comm: MPI.Comm, source: Part, target: Part, refines: bool, order: int, lead: int,
        info: Any = None, once: bool = False,
    ) -> None:
        """Collective. The axes after the first ``lead`` ones are refined. Where a coarse field is
        read or written, so are ``order`` layers of ghosts."""
        coarse, fine = (source, target) if refines else (target, source)
        self._refines, self._order, self._result = refines, order, target.array
        self.state, self.once = "inactive", once
        rank = comm.Get_rank()
        here, there = extents(coarse.boxes[rank]), extents(fine.boxes[rank])
        boxes = [_doubled(box, lead) for box in coarse.boxes]
        moves = boxes != list(fine.boxes)
        layers = [0] * lead + [order] * (len(here) - lead)
        view = coarse.array[_inside(coarse.origin, here, layers)]
        last = fine.array[_inside(fine.origin, there, [0] * len(there))]
        #: By axis, the field before it is refined, and after that, with this axis first.
        self._steps: list[tuple[NDArray[Any], NDArray[Any]]] = []
        with agreed(Context.of(comm).comm, "memory of a refinement"):
            if moves:
                last = np.zeros(extents(boxes[rank]), view.dtype)
            for axis in range(lead, view.ndim):
                shape = (*last.shape[: axis + 1], *view.shape[axis + 1 :])
                fresh = last if axis == view.ndim - 1 else np.zeros(shape, view.dtype)
                self._steps.append((np.moveaxis(view, axis, 0), np.moveaxis(fresh, axis, 0)))
                view = fresh
        self._way: Redistribution | None = None
        if moves:
            between = Part(last, [0] * last.ndim, boxes)
            ways = (between, fine) if refines else (fine, between)
            self._way = Redistribution(comm, *ways, info, once)

    def exchange(self) -> NDArray[Any]:
        """Collective in the sense of MPI. Fill the target, and return it."""
        if self._refines:
            for before, after in self._steps:
                _spread(before, after, self._order)
        if self._way is not None:
            self._way.exchange()
        if not self._refines:
            if self._order:
                self._result[...] = 0
            for before, after in reversed(self._steps):
                _collect(after, before, self._order)
        if self.once:
            self.Free()
        return self._result

    def Free(self) -> None:
        """Collective. Give the request back, if there is one."""
        self.state = "freed"
        if self._way is not None:
            self._way.Free()


def _inside(origin: Any, shape: Any, layers: Any) -> Box:
    """The index of a part of an array, with so many layers around it."""
    return tuple(slice(at - wide, at + extent + wide)
                 for at, extent, wide in zip(origin, shape, layers, strict=True))


def _doubled(box: Box, lead: int) -> Box:
    """Where the cells of a box are on the fine grid."""
    return (*box[:lead], *(slice(2 * part.start, 2 * part.stop) for part in box[lead:]))


def _spread(values: NDArray[Any], into: NDArray[Any], order: int) -> None:
    """Local. Interpolate along the first axis."""
    for side in (0, 1):
        part = into[side::2]
        if not order:
            part[...] = values
            continue
        np.multiply(values[1:-1], 3, out=part)
        part += values[2:] if side else values[:-2]
        part *= 0.25


def _collect(values: NDArray[Any], into: NDArray[Any], order: int) -> None:
    """Local. The adjoint of that, divided by two."""
    even, odd = values[0::2], values[1::2]
    inside = into[1:-1] if order else into
    np.add(even, odd, out=inside)
    if not order:
        inside *= 0.5
        return
    into[:1] = into[-1:] = 0
    inside *= 3
    into[:-2] += even
    into[2:] += odd
    into *= 0.125


def check_writable(target: NDArray[Any]) -> None:
    """Local. Raise :class:`PatternError` for an array that cannot be written to."""
    if not target.flags.writeable:
        raise PatternError("the target cannot be written")


def check_alike(comm: MPI.Intracomm, other: MPI.Intracomm) -> None:
    """Local. Raise :class:`PatternError` for grids of other ranks."""
    if MPI.Comm.Compare(comm, other) not in (MPI.IDENT, MPI.CONGRUENT):
        raise PatternError("the grids are of other ranks, or of ranks in other orders")


def check_refined(
    coarse: Sequence[int], fine: Sequence[int], layers: Sequence[Layers], order: int,
    dtype: np.dtype[Any],
) -> None:
    """Local. Raise :class:`PatternError` where a grid cannot be refined to the other; ``layers``
    are the ghosts of the coarse one."""
    if list(fine) != [2 * n for n in coarse]:
        raise PatternError(f"a grid of {fine} cells has not twice as many along every axis as one "
                           f"of {coarse}")
    if dtype.kind not in "fc":
        raise PatternError(f"a field of {dtype}: only real and complex ones can be refined")
    if order not in (0, 1) or any(min(each) < order for each in layers):
        raise PatternError(f"order {order} is not 0, or 1 with ghosts on every side of the coarse "
                           f"grid, which has {layers}")
