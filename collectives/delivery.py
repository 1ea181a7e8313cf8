"""What a rank sends to its peers in a round of a one-sided transport."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.chunks import Chunk
from onesided.collectives.copies import LARGEST_PIECE, Copy, as_bytes
from onesided.collectives.outlets import Outlets
from onesided.collectives.pattern import Block


@dataclass
class Put:
    """A block, or a chunk of one, on its way through a window; cut in pieces where it is large."""

    window: MPI.Win
    peer: int
    pieces: list[tuple[Any, Any]]
    pack: Copy | None

    def issue(self) -> None:
        """Local. Pack, if need be, and Put; complete at the target after a flush or fence."""
        if self.pack is not None:
            target, source = self.pack
            target[:] = source
        for origin, target in self.pieces:
            self.window.Put(origin, self.peer, target)

    def send(self) -> None:
        """Local. Put what the caller has packed."""
        for origin, target in self.pieces:
            self.window.Put(origin, self.peer, target)


def puts_of(window: MPI.Win, peer: int, chunks: list[Chunk], offset: int) -> list[Put]:
    """Local. The chunks of a block, to be Put one after the other from ``offset``, in bytes."""
    puts = []
    for chunk in chunks:
        data = as_bytes(chunk.array)
        pieces = []
        for start in range(0, len(data), LARGEST_PIECE):
            part = data[start : start + LARGEST_PIECE]
            pieces.append(
                ([part, len(part), MPI.BYTE], [offset + start, len(part), MPI.BYTE])
            )
        puts.append(Put(window, peer, pieces, chunk.pack))
        offset += len(data)
    return puts


@dataclass
class Route:
    """How one block goes: stored into ``targets``, or Put from ``chunks``; by slot."""

    block: Block
    targets: list[NDArray[Any]] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    puts: list[list[Put]] = field(default_factory=list)


@dataclass
class Delivery:
    """All that this rank sends to one peer in a round, by slot; possibly nothing but a signal.

    ``shared`` tells that signals are stored too: the peer's counters are visible. ``cell`` is the
    offset in bytes of this rank's counters in the peer's control memory.
    """

    peer: int
    shared: bool
    cell: int
    stores: list[list[Copy]]
    puts: list[list[Put]]
    routes: list[Route] = field(default_factory=list)


class Filling:
    """A round that the caller fills: what leaves with every chunk, and what with the last one.

    Stored blocks are written by the caller where they belong. ``puts[slot][chunk]`` are sent when
    that chunk is ready, ``last[slot]`` and the copies of ``outlets`` are executed when all are.
    """

    def __init__(self, deliveries: list[Delivery], outlets: Outlets) -> None:
        self.outlets = outlets
        self.puts: list[list[list[Put]]] = [[[] for _ in chunks] for chunks in outlets.by_slot]
        self.last: list[list[Put]] = [[] for _ in outlets.by_slot]
        for delivery in deliveries:
            for route in delivery.routes:
                self._add(route)

    def _add(self, route: Route) -> None:
        for slot, target in enumerate(route.targets):
            self.outlets.into(route.block, slot, target)
        for slot, puts in enumerate(route.puts):
            if len(puts) == len(self.puts[slot]):
                arrays = [chunk.array for chunk in route.chunks]
                self.outlets.to(route.block, slot, arrays)
                for chunk, put in enumerate(puts):
                    self.puts[slot][chunk].append(put)
            else:
                self.outlets.to(route.block, slot, self.outlets.in_send_array(route.block))
                self.last[slot] += puts
