"""Where a request receives: its own slots, memory from ``empty``, or NumPy's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import empty, free

Array = NDArray[Any]


@dataclass(frozen=True)
class Place:
    """How receive memory of so many doubles is made and freed, both Collective."""

    make: Callable[[MPI.Intracomm, int], Array | None]
    free: Callable[[Array | None], object]


def _free_window(array: Array | None) -> None:
    if array is not None:
        free(array)


#: By the words of ``--memory``; None is memory of the request, two slots that take turns.
PLACES: Mapping[str, Place] = {
    "slots": Place(lambda comm, count: None, lambda array: None),
    "empty": Place(lambda comm, count: empty(comm, count, np.float64), _free_window),
    "plain": Place(lambda comm, count: np.zeros(count), lambda array: None),
}


def receiving(comm: MPI.Intracomm, memory: str, nbytes: int, stack: ExitStack) -> Array:
    """Collective. So many bytes of a kind of :data:`PLACES`, zeros; freed with the stack."""
    place = PLACES[memory]
    array = place.make(comm, -(-nbytes // 8))
    stack.callback(place.free, array)
    if array is None:
        raise ValueError(f"{memory} is memory of a request")
    array[:] = 0
    return array.view(np.uint8)[:nbytes]
