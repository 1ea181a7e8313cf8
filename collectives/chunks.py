"""Where send blocks are cut, so that one chunk can leave while the next is being made.

A rank cuts all blocks that it sends along one axis, at the same offsets. Cuts are the sender's
business: ranks may give different ones, and receivers learn them at initialization.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.copies import Copy, copy_of
from onesided.collectives.errors import PatternError
from onesided.collectives.pattern import Block, Box

if TYPE_CHECKING:
    from onesided.collectives.exchange import Exchange


@dataclass(frozen=True)
class Cuts:
    """The chunks of every send block of a rank: along ``axis``, up to each of ``stops``."""

    axis: int
    stops: tuple[int, ...]

    def parts(self, box: Box) -> list[Box]:
        """The chunks of a box, in the indices of the box."""
        before, after = box[: self.axis], box[self.axis + 1 :]
        start = box[self.axis].start
        edges = [start, *(start + stop for stop in self.stops)]
        return [(*before, slice(a, b), *after) for a, b in pairwise(edges)]


@dataclass(frozen=True)
class Chunk:
    """A part of a block as contiguous memory: its own, or a buffer with the copy that fills it."""

    array: NDArray[Any]
    pack: Copy | None

    @property
    def unpack(self) -> Copy | None:
        """The copy from the buffer to the part."""
        return None if self.pack is None else (self.pack[1], self.pack[0])


def whole(shape: tuple[int, ...]) -> Box:
    """The box of a whole array of this shape."""
    return tuple(slice(0, extent) for extent in shape)


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
            chunks.append(Chunk(buffer, copy_of(buffer, view)))
    return chunks


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


def learn_cuts(exchange: Exchange) -> None:
    """Collective. Tell all ranks how this one cuts its blocks.

    A block travels in chunks where both of its boxes have the same shape, because then the
    receiver knows where a chunk belongs.
    """
    comm = exchange.context.comm
    sent = {block.peer: block.shape for block in exchange.send.blocks}
    expected = {block.peer: block.shape for block in exchange.recv.blocks}
    words = [(exchange.cuts, sent.get(peer), expected.get(peer)) for peer in range(comm.size)]
    for peer, (cuts, theirs, wanted) in enumerate(comm.alltoall(words)):
        count = 1 if cuts is None else len(cuts.stops)
        exchange.most_chunks = max(exchange.most_chunks, count)
        if exchange.cuts is not None and wanted is not None and wanted == sent.get(peer):
            exchange.cuts_to[peer] = exchange.cuts
        if cuts is not None and theirs is not None and theirs == expected.get(peer):
            exchange.cuts_from[peer] = cuts
