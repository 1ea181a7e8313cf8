"""What the caller of a filled round writes: by slot and chunk, where every part belongs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from onesided.collectives.chunks import whole
from onesided.collectives.copies import Copy, copies_between
from onesided.collectives.exchange import Exchange
from onesided.collectives.pattern import Block, Box

#: The receiving rank, a part of the send array, and the array that takes this part.
Outlet = tuple[int, Box, NDArray[Any]]


class Outlets:
    """The outlets of one request, ``by_slot[slot][chunk]``.

    A block that cannot travel in chunks is written to the send array, and leaves as a whole when
    the last chunk is ready.
    """

    def __init__(self, exchange: Exchange, slots: int) -> None:
        self._exchange = exchange
        self.by_slot: list[list[list[Outlet]]] = [
            [[] for _ in range(exchange.chunks)] for _ in range(slots)
        ]
        #: By slot, copies of blocks that this rank keeps and that could not be written in place.
        self.copies: list[list[Copy]] = [[] for _ in range(slots)]

    def parts(self, block: Block) -> list[Box]:
        """The parts of the send array that are the chunks of a block."""
        cuts = self._exchange.cuts
        return [block.box] if cuts is None else cuts.parts(block.box)

    def to(self, block: Block, slot: int, arrays: Sequence[NDArray[Any]]) -> None:
        """Chunk k of a block goes to ``arrays[k]``."""
        for chunk, part in enumerate(self.parts(block)):
            self.by_slot[slot][chunk].append((block.peer, part, arrays[chunk]))

    def into(self, block: Block, slot: int, target: NDArray[Any]) -> None:
        """The chunks of a block go to those of ``target``, an array of the block's shape."""
        cuts, box = self._exchange.cuts, whole(block.shape)
        parts = [box] if cuts is None else cuts.parts(box)
        self.to(block, slot, [target[part] for part in parts])

    def in_send_array(self, block: Block) -> list[NDArray[Any]]:
        """The chunks of a block where the caller of ``Start`` would write them."""
        array = self._exchange.send.array
        if array is None:
            raise ValueError("no send array")
        return [array[part] for part in self.parts(block)]

    def keep(self, arrays: Sequence[NDArray[Any]]) -> None:
        """The blocks that this rank sends to itself; ``arrays`` is the receive memory by slot."""
        rank, send = self._exchange.rank, self._exchange.send.array
        blocks = zip(
            self._exchange.blocks_to(rank), self._exchange.blocks_from(rank), strict=True
        )
        for out, into in blocks:
            for slot, array in enumerate(arrays):
                if out.shape == into.shape:
                    self.into(out, slot, array[into.box])
                elif send is not None:
                    self.to(out, slot, self.in_send_array(out))
                    self.copies[slot] += copies_between(array[into.box], send[out.box])


def in_the_send_array(exchange: Exchange, slots: int) -> list[list[list[Outlet]]]:
    """Local. The outlets of a method without a direct way: parts of the send array."""
    outlets = Outlets(exchange, slots)
    for block in exchange.send.blocks:
        for slot in range(slots):
            outlets.to(block, slot, outlets.in_send_array(block))
    return outlets.by_slot
