"""The difference scheme as NumPy calls that are bound to their arrays once.

Every call writes into an array that exists and releases the interpreter lock while it computes, so
that threads compute at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.apps.heat.decomposition import HIGH, SIDES, Block, Box, shifted
from onesided.apps.heat.problem import Problem

#: A function and its arguments, the last of which is the array that it writes.
Call = tuple[Callable[..., object], tuple[Any, ...]]

#: NumPy collects rows of an array in a buffer of this many elements before it computes with them,
#: where rows do not follow each other in memory. Rows longer than the buffer are not copied, which
#: makes a step three times as fast.
BUFFER = 16


@contextmanager
def settings() -> Iterator[None]:
    """Local. NumPy's settings for the calls of a step, of this thread."""
    with np.errstate(all="ignore"):
        before = np.setbufsize(BUFFER)
        try:
            yield
        finally:
            np.setbufsize(before)


def update(problem: Problem, old: NDArray[Any], new: NDArray[Any], box: Box) -> list[Call]:
    """Local. What computes the points in ``box`` of ``new``, one time step after ``old``."""
    target = new[box]
    center, factor = problem.weights
    calls: list[Call] = [(np.multiply, (old[box], center, target))]
    for axis in range(len(box)):
        for offset in (-1, 1):
            calls.append((np.add, (target, old[shifted(box, axis, offset)], target)))
    calls.append((np.multiply, (target, factor, target)))
    return calls


def wrap(block: Block, new: NDArray[Any], box: Box) -> list[Call]:
    """Local. What copies the points in ``box`` to the ghosts of the same block that they are."""
    calls: list[Call] = []
    for axis in block.wraps:
        length = block.extent[axis]
        for side in SIDES:
            at, ghost = (length, 0) if side == HIGH else (1, length + 1)
            if box[axis].start <= at < box[axis].stop:
                source, target = (
                    (*box[:axis], slice(place, place + 1), *box[axis + 1 :])
                    for place in (at, ghost)
                )
                calls.append((np.copyto, (new[target], new[source])))
    return calls
