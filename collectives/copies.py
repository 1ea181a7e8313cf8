"""Copies between blocks, prepared once so that a round only executes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from onesided.collectives.exchange import Exchange

#: A copy, ``target[:] = source``: memoryviews of bytes where both are contiguous, else arrays.
Copy = tuple[Any, Any]

#: Most bytes in one message or Put: counts of the MPI-3 interface are 32-bit (Open MPI up to 5.0).
LARGEST_PIECE = 1 << 30


def copy_of(target: NDArray[Any], source: NDArray[Any]) -> Copy:
    """Local. The copy ``target[:] = source`` in its fastest form."""
    if target.flags.c_contiguous and source.flags.c_contiguous:
        return as_bytes(target), as_bytes(source)
    if source.shape != target.shape:
        raise ValueError(f"blocks of shapes {source.shape} and {target.shape}")
    return target, source


def as_bytes(array: NDArray[Any]) -> memoryview:
    """Local. The memory of an array that is one contiguous block, as bytes."""
    if not array.flags.c_contiguous:
        order = np.argsort([-stride for stride in array.strides], kind="stable")
        array = array.transpose(order)
    flat: Any = array.reshape(-1).view(np.uint8)
    return memoryview(flat)


def allocate_slots(exchange: Exchange) -> list[NDArray[Any]]:
    """Local. The caller's array, or plain arrays that the request owns, one per slot."""
    recv = exchange.recv
    if recv.array is not None:
        return [recv.array]
    return [np.zeros(recv.shape, recv.dtype) for _ in range(exchange.slots)]


def copies_to_self(exchange: Exchange, arrays: Sequence[NDArray[Any]]) -> list[list[Copy]]:
    """Local. By slot, how the blocks that this rank sends to itself are copied."""
    rank, send = exchange.rank, exchange.send.array
    copies: list[list[Copy]] = [[] for _ in arrays]
    if send is None:
        return copies
    for out, into in zip(exchange.blocks_to(rank), exchange.blocks_from(rank), strict=True):
        for turn, array in enumerate(arrays):
            copies[turn] += copies_between(array[into.box], send[out.box])
    return copies


def copies_between(target: NDArray[Any], source: NDArray[Any]) -> list[Copy]:
    """Local. The copy of a block; elements are matched in C order where the shapes differ."""
    if target.shape == source.shape:
        return [copy_of(target, source)]
    between = np.empty(source.shape, source.dtype)
    return [(between, source), (target, between.reshape(target.shape))]
