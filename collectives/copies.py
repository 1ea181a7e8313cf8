"""Copies and contiguous pieces of blocks, prepared once so that a round only executes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.pattern import Cuts, whole

#: A copy, ``target[...] = source``: arrays of one shape.
Copy = tuple[NDArray[Any], NDArray[Any]]

#: Most bytes in one message or Put: counts of the MPI-3 interface are 32-bit (Open MPI up to 5.0).
LARGEST_PIECE = 1 << 30


def as_bytes(array: NDArray[Any]) -> memoryview:
    """Local. The memory of an array that is one contiguous block, as bytes."""
    return memoryview(flat_bytes(array))  # type: ignore[arg-type]


def flat_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Local. The memory of an array that is one contiguous block in some order of its axes."""
    if not array.flags.c_contiguous:
        order = np.argsort([-stride for stride in array.strides], kind="stable")
        array = array.transpose(order)
    return array.reshape(-1).view(np.uint8)


def pieces(array: NDArray[Any]) -> list[NDArray[np.uint8]]:
    """Local. A contiguous array in pieces that one MPI call can carry."""
    flat = array.reshape(-1).view(np.uint8)
    return [flat[i : i + LARGEST_PIECE] for i in range(0, flat.size, LARGEST_PIECE)]


def copies_between(target: NDArray[Any], source: NDArray[Any]) -> list[Copy]:
    """Local. The copy of a block; elements are matched in C order where the shapes differ."""
    if target.shape == source.shape:
        return [(target, source)]
    between = np.empty(source.shape, source.dtype)
    return [(between, source), (target, between.reshape(target.shape))]


@dataclass(frozen=True)
class Chunk:
    """A part of a block as contiguous memory: its own, or a buffer with the copy that fills it."""

    array: NDArray[Any]
    pack: Copy | None

    @property
    def unpack(self) -> Copy | None:
        """The copy from the buffer to the part."""
        return None if self.pack is None else (self.pack[1], self.pack[0])


def chunks_of(block: NDArray[Any], cuts: Cuts | None) -> list[Chunk]:
    """Local. The chunks of a block, contiguous, one after the other; one chunk without cuts."""
    parts = [whole(block.shape)] if cuts is None else cuts.parts(whole(block.shape))
    chunks = []
    for part in parts:
        view = block[part]
        if view.flags.c_contiguous:
            chunks.append(Chunk(view, None))
        else:
            buffer = np.empty(view.shape, view.dtype)
            chunks.append(Chunk(buffer, (buffer, view)))
    return chunks
