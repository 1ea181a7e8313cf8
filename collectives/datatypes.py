"""MPI types for NumPy element types and for blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from mpi4py.util import dtlib

from onesided.collectives.context import Resources
from onesided.collectives.pattern import Block


def element_type(dtype: np.dtype[Any], resources: Resources) -> MPI.Datatype:
    """Local. The MPI type of an element; bytes where MPI has none (they are moved as they are)."""
    if dtype.fields is None and dtype.isnative and dtype.kind in "?biufc":
        try:
            return dtlib.from_numpy_dtype(dtype)
        except (ValueError, KeyError, TypeError):
            pass
    kind = MPI.BYTE.Create_contiguous(dtype.itemsize).Commit()
    resources.on_release(kind.Free)
    return kind


def box_type(
    block: Block | None,
    shape: Sequence[int],
    strides: Sequence[int],
    element: MPI.Datatype,
    resources: Resources,
) -> MPI.Datatype:
    """Local. The type that picks a box out of an array with these strides (in bytes).

    Strides of any size and order are possible; offsets are bytes from the array's first element.
    """
    if block is None:
        return MPI.BYTE
    kind, offset = element, 0
    for axis in reversed(range(len(shape))):
        kind = _replace(kind, kind.Create_hvector(block.shape[axis], 1, strides[axis]), element)
        offset += block.box[axis].start * strides[axis]
    kind = _replace(kind, kind.Create_hindexed_block(1, [offset]), element)
    resources.on_release(kind.Commit().Free)
    return kind


def _replace(old: MPI.Datatype, new: MPI.Datatype, element: MPI.Datatype) -> MPI.Datatype:
    if old is not element:
        old.Free()
    return new
