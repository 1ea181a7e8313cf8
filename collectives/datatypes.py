"""MPI types for NumPy element types and for blocks."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.collectives.context import Resources
from onesided.collectives.pattern import Block

#: Largest count or displacement of the MPI-3 interface.
INT_MAX = 2**31 - 1


def element_type(dtype: np.dtype[Any], resources: Resources) -> MPI.Datatype:
    """Local. The MPI type of an element; bytes where MPI has none (they are moved as they are)."""
    if dtype.fields is None and dtype.isnative and dtype.kind in "?biufc":
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return MPI.Datatype.fromcode(dtype.char)  # a predefined one: nothing to free
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
        kind = _replace(kind, _repeated(kind, block.shape[axis], strides[axis]), element)
        offset += block.box[axis].start * strides[axis]
    kind = _replace(kind, kind.Create_hindexed_block(1, [offset]), element)
    resources.on_release(kind.Commit().Free)
    return kind


def _repeated(kind: MPI.Datatype, count: int, stride: int) -> MPI.Datatype:
    """``count`` elements ``stride`` bytes apart; in two levels where the count is no int."""
    if count <= INT_MAX:
        return kind.Create_hvector(count, 1, stride)
    pieces, rest = divmod(count, INT_MAX)
    piece = kind.Create_hvector(INT_MAX, 1, stride)
    parts = [piece.Create_hvector(pieces, 1, INT_MAX * stride)]
    if rest:
        parts.append(kind.Create_hvector(rest, 1, stride))
    offsets = [0, pieces * INT_MAX * stride][: len(parts)]
    whole = MPI.Datatype.Create_struct([1] * len(parts), offsets, parts)
    for part in (piece, *parts):
        part.Free()
    return whole


def _replace(old: MPI.Datatype, new: MPI.Datatype, element: MPI.Datatype) -> MPI.Datatype:
    if old is not element:
        old.Free()
    return new
