"""Where a request receives: its own slots, memory from ``empty``, or NumPy's."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import empty, free

Array = NDArray[Any]


def made(comm: MPI.Intracomm, memory: str, count: int) -> Array | None:
    """Collective. So many doubles of a kind that ``--memory`` names; None is memory of the request,
    two slots that take turns."""
    if memory == "slots":
        return None
    return empty(comm, count, np.float64) if memory == "empty" else np.zeros(count)


def give_back(memory: str, array: Array | None) -> None:
    """Collective. What :func:`made` made."""
    if memory == "empty" and array is not None:
        free(array)


def receiving(comm: MPI.Intracomm, memory: str, nbytes: int, stack: ExitStack) -> Array:
    """Collective. So many bytes of a kind of memory, zeros; freed with the stack."""
    array = made(comm, memory, -(-nbytes // 8))
    if array is None:
        raise ValueError(f"{memory} is memory of a request")
    stack.callback(give_back, memory, array)
    array[:] = 0
    return array.view(np.uint8)[:nbytes]
