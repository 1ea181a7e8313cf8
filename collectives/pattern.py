"""Who sends which block to whom, and what of an array that is: pure geometry, no MPI call.

A *block* is a part of an array with one peer at the other end. Counts and displacements
(``Alltoallv``) and boxes of an n-dimensional array (``Alltoallw``) are both blocks, so
everything behind the initialization functions knows one form only.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.errors import PatternError

#: Largest count or displacement of the MPI-3 interface.
INT_MAX = 2**31 - 1

#: A box: half-open index ranges, one slice per leading dimension of an array.
Box = tuple[slice, ...]


@dataclass(frozen=True)
class Block:
    """A part of the local array that one peer sends or receives.

    ``box`` selects it from the local array; ``key`` tells several blocks of one pair of ranks
    apart (both sides give matching blocks the same key); ``shape`` is the box's. ``element`` is
    what travels where that is not the dtype of the array, which then holds bytes.
    """

    peer: int
    key: int
    box: Box
    shape: tuple[int, ...]
    element: np.dtype[Any] | None = None

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Cuts:
    """Where a rank cuts all blocks that it sends: along ``axis``, up to each of ``stops``.

    One chunk can leave while the next is being made. Cuts are the sender's business: ranks may
    give different ones, and receivers learn them at initialization.
    """

    axis: int
    stops: tuple[int, ...]

    def parts(self, box: Box) -> list[Box]:
        """The chunks of a box, in the indices of the box."""
        before, after = box[: self.axis], box[self.axis + 1 :]
        start = box[self.axis].start
        edges = [start, *(start + stop for stop in self.stops)]
        return [(*before, slice(a, b), *after) for a, b in pairwise(edges)]


def whole(shape: tuple[int, ...]) -> Box:
    """The box of a whole array of this shape."""
    return tuple(slice(0, extent) for extent in shape)


def read_cuts(chunks: Any, blocks: tuple[Block, ...], dimensions: int) -> Cuts | None:
    """Local. The cuts that ``(axis, stops)`` means for these send blocks; None for one chunk.

    Raises :class:`PatternError` where the axis does not exist, a block is of another extent than
    the others, or ``stops`` is not an increasing sequence that ends with the extent. A rank that
    sends nothing may give any stops; their number is that of its chunks.
    """
    if chunks is None:
        return None
    try:
        axis, stops = chunks
        axis, stops = operator.index(axis), tuple(operator.index(stop) for stop in stops)
    except (TypeError, ValueError):
        raise PatternError(f"chunks is {chunks!r:.60}, not (axis, stops)") from None
    if not -dimensions <= axis < dimensions:
        raise PatternError(f"chunks along axis {axis} of an array of {dimensions} dimensions")
    cuts = Cuts(axis % dimensions, stops)
    for block in blocks:
        extent, first = block.shape[cuts.axis], blocks[0].shape[cuts.axis]
        if extent != first:
            raise PatternError(
                f"chunks along axis {cuts.axis}, where the send box for rank {block.peer} has "
                f"extent {extent} and that for rank {blocks[0].peer} {first}"
            )
        edges = (0, *stops)
        if edges[-1] != extent or any(a >= b for a, b in pairwise(edges)):
            raise PatternError(f"chunks up to {stops} do not increase to the extent {extent}")
    return cuts


def check_root(root: Any, size: int) -> int:
    """The root as a rank; raises :class:`PatternError` for what is none."""
    try:
        number = operator.index(root)
    except TypeError:
        raise PatternError(f"the root is {root!r}, not a rank") from None
    if not 0 <= number < size:
        raise PatternError(f"the root is {number}, the ranks are 0 to {size - 1}")
    return number


def blocks_of_counts(
    counts: Sequence[int], displs: Sequence[int], peers: Sequence[int], keys: Sequence[int]
) -> tuple[Block, ...]:
    """Blocks of a one-dimensional array; ``counts`` and ``displs`` in elements.

    A negative peer is ``MPI.PROC_NULL``: nothing travels.
    """
    return tuple(
        Block(peer, key, (slice(start, start + count),), (count,))
        for count, start, peer, key in zip(counts, displs, peers, keys, strict=True)
        if count and peer >= 0
    )


def blocks_of_boxes(
    boxes: Sequence[Sequence[slice] | None], shape: tuple[int, ...], role: str,
    peers: Sequence[int], keys: Sequence[int],
) -> tuple[Block, ...]:
    """Blocks of an n-dimensional array; one box, or None, for each of the peers.

    Raises :class:`PatternError` for a box that is no tuple of slices, has a step, more slices
    than the array has dimensions, or reaches beyond the array.
    """
    blocks = []
    for peer, key, box in zip(peers, keys, boxes, strict=True):
        if box is None:
            continue
        full = full_box(box, shape, f"{role} box for rank {peer}")
        extents = tuple(part.stop - part.start for part in full)
        block = Block(peer, key, full, extents)
        if block.size and peer >= 0:
            blocks.append(block)
    return tuple(blocks)


def full_box(box: Sequence[slice], shape: tuple[int, ...], name: str) -> Box:
    """One slice per axis of the array, with both ends; ``name`` is for the error's words.

    Raises :class:`PatternError` as :func:`blocks_of_boxes` does.
    """
    if isinstance(box, slice):
        box = (box,)
    if not isinstance(box, tuple | list) or not all(isinstance(part, slice) for part in box):
        raise PatternError(f"{name} is {box!r}, not a tuple of slices or None")
    if len(box) > len(shape):
        raise PatternError(f"{name} has {len(box)} slices, the array {len(shape)} dimensions")
    full = []
    for axis, extent in enumerate(shape):
        part = box[axis] if axis < len(box) else slice(None)
        if part.step not in (None, 1):
            raise PatternError(f"{name} has step {part.step} on axis {axis}; only 1 is possible")
        try:
            start = 0 if part.start is None else operator.index(part.start)
            stop = extent if part.stop is None else operator.index(part.stop)
        except TypeError:
            raise PatternError(f"{name} has {part!r:.60} on axis {axis}, not integers") from None
        if not 0 <= start <= stop <= extent:
            raise PatternError(
                f"{name} is [{start}, {stop}) on axis {axis}, out of bounds of its extent {extent}"
            )
        full.append(slice(start, stop))
    return tuple(full)


def check_counts(
    counts: Sequence[int], displs: Sequence[int], length: int, role: str
) -> None:
    """Raise :class:`PatternError` for a block that is negative or reaches beyond the array."""
    for peer, (count, start) in enumerate(zip(counts, displs, strict=True)):
        if count < 0:
            raise PatternError(f"{role}counts[{peer}] is {count}, negative")
        if count and (start < 0 or start + count > length):
            raise PatternError(
                f"{role} block {peer} is [{start}, {start + count}), out of bounds of the "
                f"{length} elements of the buffer"
            )


def check_disjoint(blocks: Sequence[Block]) -> None:
    """Raise :class:`PatternError` where two receive blocks overlap, naming both peers."""
    if len(blocks) < 2:
        return
    starts = np.array([[part.start for part in block.box] for block in blocks])
    stops = np.array([[part.stop for part in block.box] for block in blocks])
    order = np.argsort(starts[:, 0], kind="stable")
    starts, stops = starts[order], stops[order]
    # Blocks that begin before this one ends along the first axis are the only candidates.
    reach = np.searchsorted(starts[:, 0], stops[:, 0], side="left")
    for here in range(len(blocks)):
        there = slice(here + 1, int(reach[here]))
        if there.start >= there.stop:
            continue
        clash = np.all(
            (starts[there] < stops[here]) & (starts[here] < stops[there]), axis=1
        ).nonzero()[0]
        if clash.size:
            first = blocks[int(order[here])]
            second = blocks[int(order[here + 1 + int(clash[0])])]
            raise PatternError(
                f"the receive blocks from rank {first.peer} {text(first.box)} and from rank "
                f"{second.peer} {text(second.box)} overlap"
            )


def text(box: Box) -> str:
    """A box for the words of an error."""
    return "x".join(f"[{part.start}, {part.stop})" for part in box)


def one_piece(array: NDArray[Any]) -> bool:
    """True where the memory of ``array`` is one contiguous block in some order of its axes."""
    expected = array.itemsize
    axes = [axis for axis in range(array.ndim) if array.shape[axis] != 1]
    for axis in sorted(axes, key=lambda axis: array.strides[axis]):
        if array.strides[axis] != expected:
            return array.size == 0
        expected *= array.shape[axis]
    return True


def row_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Local. The strides in bytes of an array of this form in C order."""
    strides = []
    for extent in reversed(shape):
        strides.append(itemsize)
        itemsize *= max(extent, 1)
    return tuple(reversed(strides))


# -- copies of blocks ----------------------------------------------------------------------------

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
