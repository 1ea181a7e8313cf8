"""The whole field on one rank: gathered from the blocks, and computed there from the start."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.heat.decomposition import Block, Box, extent
from onesided.apps.heat.problem import Problem
from onesided.apps.heat.stencil import settings

ROOT = 0


def gather(
    comm: MPI.Intracomm, block: Block, state: NDArray[Any], wanted: Box
) -> NDArray[Any] | None:
    """Collective. The part ``wanted`` of the grid on rank 0, None on the others."""
    boxes = comm.gather(block.box, root=ROOT)
    own, _ = _common(block.box, wanted)
    mine = np.ascontiguousarray(state[own])
    if comm.rank != ROOT or boxes is None:
        comm.Send(mine, ROOT)
        return None
    field = np.empty(extent(wanted), state.dtype)
    field[_common(block.box, wanted)[1]] = mine
    for rank in range(1, comm.size):
        _, place = _common(boxes[rank], wanted)
        part = np.empty_like(field[place], order="C")
        comm.Recv(part, rank)
        field[place] = part
    return field


def _common(box: Box, wanted: Box) -> tuple[Box, Box]:
    """Local. What two boxes share, as a part of the first and as one of the second."""
    starts = [max(a.start, b.start) for a, b in zip(box, wanted, strict=True)]
    stops = [min(a.stop, b.stop) for a, b in zip(box, wanted, strict=True)]
    stops = [max(pair) for pair in zip(starts, stops, strict=True)]
    first, second = (
        tuple(
            slice(start - part.start, stop - part.start)
            for start, stop, part in zip(starts, stops, whole, strict=True)
        )
        for whole in (box, wanted)
    )
    return first, second


def serial(problem: Problem, steps: int) -> NDArray[Any]:
    """Local. The state after so many steps, without blocks, tiles and halos."""
    whole = tuple(slice(0, length) for length in problem.shape)
    old = problem.initial(whole)
    new = old.copy()
    center, factor = problem.weights
    own = (slice(1, -1),) * len(whole)
    with settings():
        for _ in range(steps):
            target = new[own]
            np.multiply(old[own], center, out=target)
            for axis in range(len(whole)):
                for part in (slice(None, -2), slice(2, None)):
                    target += old[(*own[:axis], part, *own[axis + 1 :])]
            target *= factor
            for axis, around in enumerate(problem.periodic):
                if around:
                    layers = np.moveaxis(new, axis, 0)
                    layers[0], layers[-1] = layers[-2], layers[1]
            old, new = new, old
    return old[own]
