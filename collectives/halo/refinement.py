"""From a field to one of twice the cells along every axis, and back by the adjoint.

Weights are products of those along each axis, so one axis is done after the other: on the blocks of
the coarse grid, which are brought to those of the fine one, or come from there, where they differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.context import Scoped
from onesided.collectives.halo.faces import extents
from onesided.collectives.halo.redistribution import Part, Redistribution
from onesided.collectives.pattern import Box


class Refinement(Scoped):
    """The way from a coarse field to a fine one, or back; :meth:`exchange` goes it."""

    def __init__(
        self, comm: MPI.Comm, source: Part, target: Part, refines: bool, order: int, lead: int,
        info: Any = None,
    ) -> None:
        """Collective. The axes after the first ``lead`` ones are refined. Where a coarse field is
        read or written, so are ``order`` layers of ghosts."""
        coarse, fine = (source, target) if refines else (target, source)
        self._refines, self._order, self._lead, self._result = refines, order, lead, target.array
        here = extents(coarse.boxes[comm.Get_rank()])
        layers = [0] * lead + [order] * (len(here) - lead)
        view = coarse.array[_inside(coarse.origin, here, layers)]
        boxes = [_doubled(box, lead) for box in coarse.boxes]
        self._way: Redistribution | None = None
        if boxes == list(fine.boxes):
            there = extents(fine.boxes[comm.Get_rank()])
            last = fine.array[_inside(fine.origin, there, [0] * len(there))]
        else:
            shape = extents(boxes[comm.Get_rank()])
            last = np.zeros(shape, coarse.array.dtype)
            between = Part(last, [0] * len(shape), boxes)
            ways = (between, fine) if refines else (fine, between)
            self._way = Redistribution(comm, *ways, info)
        #: The field with more and more of its axes refined.
        self._steps = [view]
        for axis in range(lead, view.ndim - 1):
            shape = (*last.shape[: axis + 1], *view.shape[axis + 1 :])
            self._steps.append(np.zeros(shape, view.dtype))
        self._steps.append(last)

    def exchange(self) -> NDArray[Any]:
        """Collective in the sense of MPI. Fill the target, and return it."""
        steps = list(enumerate(zip(self._steps, self._steps[1:], strict=False), self._lead))
        if self._refines:
            for axis, (values, into) in steps:
                _spread(np.moveaxis(values, axis, 0), np.moveaxis(into, axis, 0), self._order)
        if self._way is not None:
            self._way.exchange()
        if not self._refines:
            if self._order:
                self._result[...] = 0
            for axis, (into, values) in reversed(steps):
                _collect(np.moveaxis(values, axis, 0), np.moveaxis(into, axis, 0), self._order)
        return self._result

    state = "inactive"

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
