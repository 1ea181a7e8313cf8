"""mpi4py's buffer specifications, read once: what the caller passed becomes array and blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from mpi4py.util import dtlib
from numpy.typing import NDArray

from onesided.collectives.errors import PatternError, UnsupportedError
from onesided.collectives.pattern import (
    Block,
    blocks_of_boxes,
    blocks_of_counts,
    check_counts,
    check_disjoint,
    one_piece,
)

#: Steps after which NumPy gives up deciding whether two strided blocks overlap.
_EFFORT: Any = 10_000


@dataclass
class Side:
    """One side of an exchange on one rank.

    ``array`` is the memory (None: the request owns it), ``shape`` and ``dtype`` its form,
    ``blocks`` the parts of it that travel, ``given`` what the caller passed as data.
    """

    array: NDArray[Any] | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    blocks: tuple[Block, ...]
    given: Any


@dataclass
class Vector:
    """A vector specification taken apart: flat data, counts and displacements in elements."""

    flat: NDArray[Any]
    counts: list[int]
    displs: list[int]
    given: Any

    def side(self, peers: Sequence[int], keys: Sequence[int]) -> Side:
        """The blocks, block ``i`` with rank ``peers[i]``."""
        blocks = blocks_of_counts(self.counts, self.displs, peers, keys)
        return Side(self.flat, self.flat.shape, self.flat.dtype, blocks, self.given)


def vector(spec: Any, blocks: int, role: str) -> Vector:
    """Read a vector specification with ``blocks`` blocks.

    ``[data, counts]``, ``[data, counts, displs]``, ``[data, counts, displs, type]``,
    ``[data, (counts, displs)]``, the latter with a type, and plain data with even blocks.
    Raises :class:`PatternError` naming the values that do not fit.
    """
    if isinstance(spec, list | tuple):
        data, counts, displs, kind = _parts(spec, role)
    else:
        data, counts, displs, kind = spec, None, None, None
    flat, factor = _flat(data, kind, role)
    length = flat.size // factor
    if counts is None:
        if blocks and length % blocks:
            raise PatternError(
                f"the {length} elements of the {role} buffer cannot be split evenly into "
                f"{blocks} blocks"
            )
        counts = [length // blocks] * blocks if blocks else []
    numbers = _integers(counts, blocks, f"{role}counts")
    if displs is None:
        starts = [0] * blocks
        for i in range(1, blocks):
            starts[i] = starts[i - 1] + numbers[i - 1]
    else:
        starts = _integers(displs, blocks, f"{role}displs")
    check_counts(numbers, starts, length, role)
    numbers, starts = [factor * n for n in numbers], [factor * n for n in starts]
    return Vector(flat, numbers, starts, data)


def _parts(spec: Sequence[Any], role: str) -> tuple[Any, Any, Any, Any]:
    """Data, counts, displacements and type: mpi4py's rules, and ``[data, counts, displs]``."""
    parts = list(spec)
    kind = None
    if len(parts) > 1 and isinstance(parts[-1], MPI.Datatype | str):
        kind = parts.pop()
    if not 1 <= len(parts) <= 3:
        raise PatternError(f"the {role} buffer is a list of {len(spec)} items, not 1 to 4")
    data, counts, displs = (*parts, None, None)[:3]
    if isinstance(counts, tuple) and len(counts) == 2 and displs is None:
        if all(isinstance(part, Sequence | np.ndarray) or part is None for part in counts):
            counts, displs = counts
    return data, counts, displs, kind


def _integers(values: Any, length: int, name: str) -> list[int]:
    if isinstance(values, int | np.integer):
        values = [values] * length
    array = np.asarray(values)
    if array.ndim != 1 or array.size != length:
        raise PatternError(f"{name} has {array.size} entries, {length} are needed")
    if array.size and array.dtype.kind not in "iu":
        raise PatternError(f"{name} has entries of type {array.dtype}, not integers")
    return [int(value) for value in array]


def as_array(data: Any, role: str) -> NDArray[Any]:
    """Local. The data as an array of the same memory."""
    if data is MPI.IN_PLACE or data is MPI.BOTTOM:
        raise UnsupportedError(f"the {role} buffer is {data!r}; give separate arrays")
    if data is None:
        raise PatternError(f"the {role} buffer is None; an array is needed")
    if hasattr(data, "__cuda_array_interface__"):
        raise UnsupportedError(
            f"the {role} buffer is in the memory of an accelerator; copy it to an array of the host"
        )
    if not isinstance(data, np.ndarray):
        try:
            if hasattr(data, "__dlpack__"):
                data = np.from_dlpack(data)
            else:
                data = np.asarray(memoryview(data))
        except (TypeError, BufferError) as error:
            raise PatternError(f"the {role} buffer is no buffer: {error}") from error
    data = np.asarray(data)  # subclasses keep their own shapes
    if data.dtype.hasobject:
        raise PatternError(f"the {role} buffer has dtype {data.dtype}: Python objects")
    if role == "recv" and not data.flags.writeable:
        raise PatternError("the receive buffer is read-only")
    array: NDArray[Any] = data
    return array


def _flat(
    data: Any, kind: MPI.Datatype | str | None, role: str
) -> tuple[NDArray[Any], int]:
    """The data as basic elements, and how many of them are one element of the type."""
    array = as_array(data, role)
    if not array.flags.c_contiguous:
        if not array.flags.f_contiguous:
            raise PatternError(f"the {role} buffer is not contiguous")
        array = array.T
    flat = array.reshape(-1)
    if kind is None:
        return flat, 1
    dtype = _element(kind, role)
    factor = dtype.itemsize // dtype.base.itemsize
    if dtype.base == flat.dtype:
        return flat, factor
    if flat.nbytes % dtype.itemsize:
        raise PatternError(
            f"{flat.nbytes} bytes of {role} data are no whole number of {dtype} elements"
        )
    return flat.view(dtype.base), factor


def _element(kind: MPI.Datatype | str, role: str) -> np.dtype[Any]:
    """The NumPy form of an MPI type without holes; others belong to Alltoallw_init."""
    if isinstance(kind, str):
        try:
            kind = MPI.Datatype.fromcode(kind)
        except (KeyError, ValueError):
            raise PatternError(f"{role} type {kind!r} is no MPI type code") from None
    if kind == MPI.DATATYPE_NULL:
        raise PatternError(f"the {role} type is MPI_DATATYPE_NULL")
    lower, extent = kind.Get_extent()
    if lower != 0 or extent != kind.Get_size():
        raise UnsupportedError(
            f"the {role} type has holes ({kind.Get_size()} bytes in an extent of {extent}); "
            "describe such blocks as boxes with Alltoallw_init"
        )
    try:
        dtype = np.dtype(dtlib.to_numpy_dtype(kind))
    except (ValueError, TypeError, KeyError):
        dtype = np.dtype((np.void, extent))
    if dtype.itemsize != extent:
        dtype = np.dtype((np.void, extent))
    return dtype


def send_boxes(spec: Any, ranks: int) -> Side:
    """Read ``[array, boxes]``; the array may have any strides."""
    array, boxes = _pair(spec, ranks, "send")
    data = as_array(array, "send")
    return Side(data, data.shape, data.dtype, blocks_of_boxes(boxes, data.shape, "send"), array)


def recv_boxes(spec: Any, ranks: int) -> Side:
    """Read ``[array, boxes]`` or ``[(shape, dtype), boxes]``, the request's own memory."""
    given, boxes = _pair(spec, ranks, "recv")
    if isinstance(given, tuple):
        if len(given) != 2:
            raise PatternError(f"the receive buffer is {given!r}, not (shape, dtype)")
        dtype = np.dtype(given[1])
        if dtype.hasobject:
            raise PatternError(f"the receive buffer has dtype {dtype}: Python objects")
        sizes = (given[0],) if isinstance(given[0], int | np.integer) else tuple(given[0])
        shape = tuple(int(extent) for extent in sizes)
        if any(extent < 0 for extent in shape):
            raise PatternError(f"the receive buffer has negative dimensions: {shape}")
        array = None
    else:
        array = as_array(given, "recv")
        shape, dtype = array.shape, array.dtype
        if not one_piece(array):
            raise PatternError("the receive buffer is not contiguous in any order of its axes")
    blocks = blocks_of_boxes(boxes, shape, "recv")
    check_disjoint(blocks)
    return Side(array, shape, dtype, blocks, given)


def _pair(spec: Any, ranks: int, role: str) -> tuple[Any, Sequence[Any]]:
    if not isinstance(spec, list | tuple) or len(spec) != 2:
        raise PatternError(f"the {role} buffer is not a list [array, boxes]: {spec!r:.60}")
    array, boxes = spec
    if not isinstance(boxes, Sequence) or len(boxes) != ranks:
        count = len(boxes) if isinstance(boxes, Sequence) else "no"
        raise PatternError(f"{count} {role} boxes, one for each of the {ranks} ranks is needed")
    return array, boxes


def check_separate(send: Side, recv: Side) -> None:
    """Raise :class:`PatternError` where a send and a receive block overlap in memory."""
    if send.array is None or recv.array is None:
        return
    if not np.may_share_memory(send.array, recv.array):
        return
    for mine in send.blocks:
        for theirs in recv.blocks:
            try:
                here, there = send.array[mine.box], recv.array[theirs.box]
                clash = np.shares_memory(here, there, max_work=_EFFORT)
            except np.exceptions.TooHardError:
                continue  # not decided: the caller's word is taken
            if clash:
                raise PatternError(
                    f"the send block for rank {mine.peer} and the receive block from rank "
                    f"{theirs.peer} overlap in memory"
                )
