"""A part of a global array, brought together on one rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import agree, agreed
from onesided.collectives.errors import PatternError
from onesided.pencilfft.io.selection import Selection


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
