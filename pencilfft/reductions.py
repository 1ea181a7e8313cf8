"""What all ranks make together of their blocks: numbers, or a part of the global array.

Numbers are the same bits on every rank: the parts of the ranks are gathered and combined in the
order of the ranks, because MPI may combine them in any order and need not carry a NaN through
MPI.MAX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import agree, agreed
from onesided.collectives.errors import PatternError
from onesided.pencilfft.io.selection import Selection


def total(comm: MPI.Comm, block: NDArray[Any]) -> Any:
    """Collective. The sum of all elements of all blocks."""
    return np.sum(agree(comm, what="total", value=np.sum(block)), axis=0)


def extreme(comm: MPI.Comm, block: NDArray[Any], function: Callable[..., Any]) -> Any:
    """Collective. The least or largest element of all blocks; empty ones count for nothing.

    PatternError on every rank where all are empty.
    """
    parts = agree(comm, what="extreme", value=function(block) if block.size else None)
    parts = [part for part in parts if part is not None]
    if not parts:
        raise PatternError("an array without elements has no least and no largest one")
    return function(parts)


def dot(comm: MPI.Comm, left: NDArray[Any], right: NDArray[Any]) -> Any:
    """Collective. The sum of conj(left) * right over all elements of all blocks."""
    error = None
    part: Any = 0
    if left.shape != right.shape:
        error = PatternError(f"blocks of shapes {left.shape} and {right.shape} have no product")
    else:
        part = np.vdot(left, right)
    return np.sum(agree(comm, error, "dot", part), axis=0)


def gather(
    comm: MPI.Comm,
    block: NDArray[Any],
    where: tuple[slice, ...],
    shape: Sequence[int],
    gslice: Any,
    root: int,
) -> NDArray[Any] | None:
    """Collective. The part ``gslice`` of the global array on rank ``root``, None elsewhere.

    ``block`` is this rank's, at ``where`` in the global array of this ``shape``.
    """
    with agreed(comm):
        entries = tuple(gslice) if isinstance(gslice, tuple | list) else (gslice,)
        missing = (slice(None),) * (len(shape) - len(entries))
        selection = Selection.of(shape, entries + missing)
        if not 0 <= root < comm.size:
            raise PatternError(f"root {root} is no rank of {comm.size}")
    agree(comm, what=f"get({selection.name}, root={root})")
    cut = selection.cut(where)
    piece = None if cut is None else (cut[1], np.ascontiguousarray(block[cut[0]]))
    pieces = comm.gather(piece, root)
    if pieces is None:
        return None
    part = np.empty(selection.result, block.dtype)
    for there, values in filter(None, pieces):
        part[there] = values.reshape(part[there].shape)
    return part
