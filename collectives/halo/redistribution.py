"""Fields from one distribution to another: other cuts, distributed arrays, one rank, and grids of
twice the cells along every axis and back by the adjoint.

A persistent exchange of the boxes that two parts share brings one to the other. Weights of
refinement are products of those along each axis, so one axis is done after the other: on the
blocks of the coarse grid, which are brought to those of the fine one, or come from there, where
they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import agree, agreed, words_of_all
from onesided.collectives.context import Context, Scoped
from onesided.collectives.errors import PatternError
from onesided.collectives.exchanges import Alltoallw_init
from onesided.collectives.halo.exchange import complete_round
from onesided.collectives.halo.faces import Layers, extents, is_empty
from onesided.collectives.pattern import Box, one_piece
from onesided.collectives.request import Request


@runtime_checkable
class Placed(Protocol):
    """A NumPy array that is this rank's block of a global array, and tells which one."""

    global_shape: tuple[int, ...]

    def local_slice(self) -> Sequence[slice]:
        """Local. The block as slices of the global array."""


@dataclass(frozen=True)
class Part:
    """What this rank has of a global array of a ``shape``, and who has what.

    ``origin`` is where its own part begins in ``array``; ``boxes`` are the parts of all ranks, in
    global indices; ``staggered`` are the axes of the grid along which a field is.
    """

    comm: MPI.Intracomm
    array: NDArray[Any]
    origin: Sequence[int]
    boxes: Sequence[Box]
    shape: tuple[int, ...]
    staggered: Sequence[int] = ()

    @classmethod
    def of_one(
        cls, comm: MPI.Intracomm, root: int, array: NDArray[Any], box: Box, shape: tuple[int, ...]
    ) -> Part:
        """Local. A box that is in an array of one rank."""
        none: Box = (slice(0, 0),) * len(box)
        boxes = [box if rank == root else none for rank in range(comm.size)]
        return cls(comm, array, [0] * len(box), boxes, shape)

    @property
    def box(self) -> Box:
        """Local. What this rank has."""
        return self.boxes[self.comm.rank]

    @property
    def form(self) -> str:
        """Local. Of the global array, in words."""
        return f"{self.array.dtype} {self.shape}"

    def view(self, layers: int = 0, lead: int = 0) -> NDArray[Any]:
        """Local. This rank's part, with so many layers around it, but not along ``lead`` axes."""
        wide = [0] * lead + [layers] * (len(self.origin) - lead)
        ends = zip(self.origin, extents(self.box), wide, strict=True)
        found: NDArray[Any] = self.array[tuple(slice(at - w, at + n + w) for at, n, w in ends)]
        return found

    def shared(self, other: Part) -> list[Box | None]:
        """Local. By rank, the box of the array that shows what is in its other part, too."""
        found: list[Box | None] = []
        for theirs in other.boxes:
            box = tuple(
                slice(max(a.start, b.start) - a.start + at, min(a.stop, b.stop) - a.start + at)
                for a, b, at in zip(self.box, theirs, self.origin, strict=True)
            )
            found.append(None if is_empty(box) else box)
        return found


def part_of(comm: MPI.Intracomm, array: Any) -> Part:
    """Collective. A distributed array as what ranks own of its global array. Raises
    :class:`PatternError` on every rank where blocks do not make up the whole."""
    private = Context.of(comm).comm
    with agreed(private, "a distributed array"):  # of a class that is not ours
        mine = np.array([(part.start, part.stop) for part in array.local_slice()], np.int64)
        shape = tuple(array.global_shape)
    agree(private, None, f"a distributed array of shape {shape}, {len(mine)} axes")
    ends = words_of_all(mine.size * comm.size, np.int64)
    private.Allgather(mine, ends)
    boxes = [tuple(slice(*pair) for pair in box) for box in ends.reshape(comm.size, -1, 2).tolist()]
    count = sum(int(np.prod(extents(box))) for box in boxes)
    if count != int(np.prod(shape)):
        raise PatternError(f"blocks of {count} elements in all do not make up the shape {shape}")
    return Part(comm, array, [0] * len(mine), boxes, shape)


class Transfer(Scoped):
    """The way from one part to another, in ``steps``, one of which may use the ``request``;
    :meth:`exchange` goes it, ``once`` or again and again."""

    def __init__(
        self, result: NDArray[Any], steps: Sequence[Callable[[], object]],
        request: Request | Transfer | None, once: bool,
    ) -> None:
        self._result, self._steps, self._request, self.once = result, steps, request, once

    def exchange(self) -> NDArray[Any]:
        """Collective in the sense of MPI. Fill the target, and return it."""
        for step in self._steps:
            step()
        if self.once:
            self.Free()
        return self._result

    @property
    def state(self) -> str:
        """Local. That of the request."""
        return "inactive" if self._request is None else self._request.state

    def Free(self) -> None:
        """Collective. Give the request back, if there is one."""
        if self._request is not None:
            self._request.Free()


def redistribution(source: Part, target: Part, info: Any = None, once: bool = False) -> Transfer:
    """Collective. The way from one cut to another. Raises :class:`PatternError` on every rank where
    shapes or dtypes differ, and for a target that cannot be written."""
    unpack: list[Callable[[], object]] = []
    into = target
    with agreed(Context.of(source.comm).comm, f"redistribute {source.shape} {target.shape}"):
        if source.form != target.form:
            raise PatternError(f"a field of {source.form}, and one of {target.form}")
        if not target.array.flags.writeable:
            raise PatternError("the target cannot be written")
        if not one_piece(target.array):  # what comes is received beside it
            view, here = target.view(), extents(target.box)
            if view.shape != here:
                raise PatternError(f"an array of shape {target.array.shape} for a block of {here}")
            into = replace(target, array=np.empty(here, view.dtype), origin=[0] * len(here))
            unpack = [partial(np.copyto, view, into.array)]
    request = Alltoallw_init(
        source.comm, [source.array, source.shared(target)], [into.array, into.shared(source)],
        method="p2p" if once else "auto", info=info,
    )  # fmt: skip
    return Transfer(target.array, [partial(complete_round, request), *unpack], request, once)


def refinement(
    refines: bool, order: int, layers: Sequence[Layers], source: Part, target: Part,
    info: Any = None, once: bool = False,
) -> Transfer:
    """Collective. The way from a coarse field to a fine one, or back; ``layers`` are the ghosts
    of the coarse grid. Where a coarse field is read or written, so are ``order`` layers of ghosts.
    Raises :class:`PatternError` on every rank where one cannot be brought to the other."""
    coarse, fine = (source, target) if refines else (target, source)
    lead = len(coarse.shape) - len(layers)
    boxes = [(*box[:lead], *(slice(2 * part.start, 2 * part.stop) for part in box[lead:]))
             for box in coarse.boxes]
    moves = boxes != list(fine.boxes)
    steps: list[Callable[[], object]] = []
    with agreed(Context.of(source.comm).comm, f"refine {source.shape} {target.shape} {order}"):
        if source.staggered or target.staggered:
            raise PatternError("a field that is not in the middles of cells")
        twice = (*coarse.shape[:lead], *(2 * n for n in coarse.shape[lead:]))
        if fine.shape != twice or fine.array.dtype != coarse.array.dtype:
            raise PatternError(f"a field of {fine.form}, which has not twice as many cells along "
                               f"every axis as one of {coarse.form}")
        if coarse.array.dtype.kind not in "fc":
            raise PatternError(f"a field of {coarse.form}: only real and complex ones can be "
                               "refined")
        if order not in (0, 1) or min(*coarse.origin[lead:], *map(min, layers)) < order:
            raise PatternError(f"order {order} is not 0, or 1 with ghosts on every side of the "
                               f"coarse field; its grid has {layers}")
        if not target.array.flags.writeable:
            raise PatternError("the target cannot be written")
        view, last = coarse.view(order, lead), fine.view()
        if moves:
            last = np.zeros(extents(boxes[coarse.comm.rank]), view.dtype)
        for axis in range(lead, view.ndim):
            shape = (*last.shape[: axis + 1], *view.shape[axis + 1 :])
            fresh = last if axis == view.ndim - 1 else np.zeros(shape, view.dtype)
            ends = np.moveaxis(view, axis, 0), np.moveaxis(fresh, axis, 0)
            steps.append(partial(_spread if refines else _collect, *ends, order))
            view = fresh
    if not refines:
        steps.reverse()
        if order:
            steps.insert(0, partial(target.array.fill, 0))
    way: Transfer | None = None
    if moves:
        between = replace(fine, array=last, origin=[0] * last.ndim, boxes=boxes)
        way = redistribution(*((between, fine) if refines else (fine, between)), info, once)
        steps.insert(len(steps) if refines else 0, way.exchange)
    return Transfer(target.array, steps, way, once)


def _spread(coarse: NDArray[Any], fine: NDArray[Any], order: int) -> None:
    """Local. Interpolate along the first axis."""
    for side in (0, 1):
        part = fine[side::2]
        if not order:
            part[...] = coarse
            continue
        np.multiply(coarse[1:-1], 3, out=part)
        part += coarse[2:] if side else coarse[:-2]
        part *= 0.25


def _collect(coarse: NDArray[Any], fine: NDArray[Any], order: int) -> None:
    """Local. The adjoint of that, divided by two."""
    even, odd = fine[0::2], fine[1::2]
    inside = coarse[1:-1] if order else coarse
    np.add(even, odd, out=inside)
    if not order:
        inside *= 0.5
        return
    coarse[:1] = coarse[-1:] = 0
    inside *= 3
    coarse[:-2] += even
    coarse[2:] += odd
    coarse *= 0.125
