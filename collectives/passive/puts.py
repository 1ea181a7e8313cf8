"""Bytes into windows: Puts in pieces that every MPI takes, and stores into a rank's own part."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

#: Most bytes of a Put: an MPI-3 takes fewer than 2^31.
PIECE = 1 << 30


def put_bytes(
    window: MPI.Win, data: NDArray[np.uint8], target: int, displacement: int, unit: int
) -> None:
    """Local. Put ``data``, which the caller keeps, at ``displacement`` units of the target."""
    step = max(PIECE // unit, 1)  # in units, so that every piece begins at one
    for start in range(0, data.size, step * unit):
        piece = data[start : start + step * unit]
        place = (displacement + start // unit, piece.size, MPI.BYTE)
        window.Put([piece, piece.size, MPI.BYTE], target, place)


def memory_of(window: MPI.Win) -> NDArray[np.uint8]:
    """Local. This rank's part of the window; not to be kept beyond the window."""
    memory: Any = window.tomemory()
    return np.asarray(memoryview(memory), dtype=np.uint8)


def store(window: MPI.Win, data: NDArray[np.uint8], start: int) -> NDArray[np.uint8]:
    """Local, within an epoch. Store ``data`` from byte ``start`` of this rank's own part on.

    Returns that memory, which is to be sent instead of the data: they may overlap with it.
    """
    place = memory_of(window)[start : start + data.size]
    place[:] = data
    window.Sync()
    return place
