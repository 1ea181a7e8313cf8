"""Persistent point-to-point messages: the reference implementation, works on every MPI."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.chunks import Chunk, chunks_of
from onesided.collectives.context import Resources
from onesided.collectives.copies import LARGEST_PIECE, Copy, allocate_slots, copies_to_self
from onesided.collectives.exchange import Exchange
from onesided.collectives.outlets import Outlet, Outlets
from onesided.collectives.pattern import Block
from onesided.collectives.request import PersistentRequest


class PointToPoint(PersistentRequest):
    """``Send_init`` and ``Recv_init`` among the ranks that exchange data, started together.

    Contiguous blocks are sent and received in place; boxes are packed into buffers that belong
    to the request. Messages are matched by the order of initialization: every request has tags
    of its own on the private communicator, one for every chunk, so that chunks leave in any
    order; blocks of one pair of ranks go in the order of keys.

    The caller of an opened round, which is always possible, packs: the outlets are the buffers.
    """

    direct = True

    def __init__(self, exchange: Exchange, resources: Resources) -> None:
        super().__init__(exchange, resources)
        self.serve(allocate_slots(exchange))
        more = range(1, exchange.most_chunks)
        self._tags = [exchange.number, *(exchange.context.next_tag() for _ in more)]
        self._packs: list[Copy] = []
        self._last_packs: list[Copy] = []  # of blocks that do not travel in chunks
        self._last: list[MPI.Prequest] = []
        self._of_chunk: list[list[MPI.Prequest]] = [[] for _ in range(exchange.chunks)]
        self._chunks: list[tuple[Block, list[Chunk]]] = []
        for block in sorted(exchange.send.blocks, key=lambda block: block.key):
            self._send(block)
        sends = [*(m for messages in self._of_chunk for m in messages), *self._last]
        self._unpacks: list[list[Copy]] = []
        self._receives: list[list[MPI.Prequest]] = []
        for array in self.arrays:
            self._receive(array)
        self._messages = [receives + sends for receives in self._receives]
        self._local = copies_to_self(exchange, self.arrays)
        self._own: list[list[Copy]] = []
        self._pending: list[MPI.Prequest] = []

    def _send(self, block: Block) -> None:
        exchange = self.exchange
        if block.peer == exchange.rank or exchange.send.array is None:
            return
        chunks = chunks_of(exchange.send.array[block.box], exchange.cuts_to.get(block.peer))
        self._packs += [chunk.pack for chunk in chunks if chunk.pack is not None]
        self._chunks.append((block, chunks))
        in_chunks = len(chunks) == exchange.chunks
        if not in_chunks:
            self._last_packs += [chunk.pack for chunk in chunks if chunk.pack is not None]
        start = exchange.context.comm.Send_init
        for number, chunk in enumerate(chunks):
            for piece in _pieces(chunk.array):
                message = start([piece, MPI.BYTE], block.peer, self._tags[number])
                self.resources.on_release(message.Free)
                (self._of_chunk[number] if in_chunks else self._last).append(message)

    def _receive(self, array: NDArray[Any]) -> None:
        exchange = self.exchange
        start = exchange.context.comm.Recv_init
        unpacks: list[Copy] = []
        receives = []
        for block in sorted(exchange.recv.blocks, key=lambda block: block.key):
            if block.peer == exchange.rank:
                continue
            chunks = chunks_of(array[block.box], exchange.cuts_from.get(block.peer))
            unpacks += [chunk.unpack for chunk in chunks if chunk.unpack is not None]
            for number, chunk in enumerate(chunks):
                for piece in _pieces(chunk.array):
                    message = start([piece, MPI.BYTE], block.peer, self._tags[number])
                    self.resources.on_release(message.Free)
                    receives.append(message)
        self._unpacks.append(unpacks)
        self._receives.append(receives)

    def begin(self, slot: int) -> None:
        for target, source in self._packs:
            target[:] = source
        MPI.Prequest.Startall(self._messages[slot])
        for target, source in self._local[slot]:
            target[:] = source
        self._pending = self._messages[slot]

    def lay_outlets(self) -> list[list[list[Outlet]]]:
        outlets = Outlets(self.exchange, self.exchange.slots)
        for slot in range(self.exchange.slots):
            for block, chunks in self._chunks:
                if len(chunks) == self.exchange.chunks:
                    outlets.to(block, slot, [chunk.array for chunk in chunks])
                else:
                    outlets.to(block, slot, outlets.in_send_array(block))
        outlets.keep(self.arrays)
        self._own = outlets.copies
        return outlets.by_slot

    def open(self, slot: int) -> bool:
        MPI.Prequest.Startall(self._receives[slot])
        self._pending = self._messages[slot]
        return True

    def send_chunk(self, slot: int, chunk: int) -> bool:
        MPI.Prequest.Startall(self._of_chunk[chunk])
        return bool(self._of_chunk[chunk])

    def close(self, slot: int) -> None:
        for target, source in (*self._last_packs, *self._own[slot]):
            target[:] = source
        MPI.Prequest.Startall(self._last)

    def advance(self) -> bool:
        return MPI.Prequest.Testall(self._pending)

    def complete(self) -> None:
        for target, source in self._unpacks[self._slot]:
            target[:] = source

    def waiting_for(self) -> str:
        return "messages from or to " + ", ".join(f"rank {peer}" for peer in self.exchange.peers)

    def forget(self) -> None:
        self._packs, self._last_packs, self._unpacks, self._local = [], [], [], []
        self._messages, self._receives, self._of_chunk, self._last = [], [], [], []
        self._chunks, self._own, self._pending = [], [], []


def _pieces(view: NDArray[Any]) -> list[NDArray[np.uint8]]:
    flat = view.reshape(-1).view(np.uint8)
    return [flat[i : i + LARGEST_PIECE] for i in range(0, flat.size, LARGEST_PIECE)]
