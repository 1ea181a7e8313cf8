"""Persistent point-to-point messages: the reference implementation, works on every MPI."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.context import Resources
from onesided.collectives.exchange import Exchange, ExchangeTransport, Outlets
from onesided.collectives.pattern import Block, Chunk, Copy, chunks_of, pieces
from onesided.collectives.steps import Chain, Plan, call, copy
from onesided.collectives.transport import Outlet


class Messages:
    """``Send_init`` and ``Recv_init`` between this rank and some peers, started together.

    Contiguous blocks are sent and received in place; boxes are packed into buffers that belong
    to the request. Messages are matched by the order of initialization: every request has tags
    of its own on the private communicator, one for every chunk, so that chunks leave in any
    order; blocks of one pair of ranks go in the order of keys.
    """

    def __init__(
        self, exchange: Exchange, resources: Resources, arrays: Sequence[NDArray[Any]],
        peers: Sequence[int],
    ) -> None:  # fmt: skip
        """Local, but called in the same order on all ranks."""
        self._exchange, self._resources = exchange, resources
        more = range(1, exchange.most_chunks)
        self._tags = [exchange.number, *(exchange.context.next_tag() for _ in more)]
        self._packs: list[Copy] = []
        self._last_packs: list[Copy] = []  # of blocks that do not travel in chunks
        self._last: list[MPI.Prequest] = []
        self._of_chunk: list[list[MPI.Prequest]] = [[] for _ in range(exchange.chunks)]
        self._blocks: list[tuple[Block, list[Chunk]]] = []
        for peer in peers:
            for block in exchange.blocks_to(peer):
                self._send(block)
        self._unpacks: list[list[Copy]] = []
        self._receives: list[list[MPI.Prequest]] = []
        for array in arrays:
            self._receive(array, peers)
        sends = [*(m for messages in self._of_chunk for m in messages), *self._last]
        self._all = [receives + sends for receives in self._receives]

    def _send(self, block: Block) -> None:
        exchange = self._exchange
        chunks = chunks_of(exchange.source(block), exchange.cuts_to(block))
        packs = [chunk.pack for chunk in chunks if chunk.pack is not None]
        self._resources.keep += [buffer for buffer, _ in packs]
        self._packs += packs
        self._blocks.append((block, chunks))
        in_chunks = len(chunks) == exchange.chunks
        if not in_chunks:
            self._last_packs += packs
        start = exchange.context.comm.Send_init
        for number, chunk in enumerate(chunks):
            for piece in pieces(chunk.array):
                message = start([piece, MPI.BYTE], block.peer, self._tags[number])
                self._resources.on_release(message.Free)
                (self._of_chunk[number] if in_chunks else self._last).append(message)

    def _receive(self, array: NDArray[Any], peers: Sequence[int]) -> None:
        exchange = self._exchange
        start = exchange.context.comm.Recv_init
        unpacks: list[Copy] = []
        receives = []
        for peer in peers:
            for block in exchange.blocks_from(peer):
                chunks = chunks_of(array[block.box], exchange.cuts_from(block))
                self._resources.keep += [chunk.array for chunk in chunks if chunk.pack is not None]
                unpacks += [chunk.unpack for chunk in chunks if chunk.unpack is not None]
                for number, chunk in enumerate(chunks):
                    for piece in pieces(chunk.array):
                        message = start([piece, MPI.BYTE], block.peer, self._tags[number])
                        self._resources.on_release(message.Free)
                        receives.append(message)
        self._unpacks.append(unpacks)
        self._receives.append(receives)

    def chains(self, turn: int, filled: bool) -> list[Chain]:
        """Local. A round: pack, start all, wait for all, unpack; or the rest of a filled round."""
        slot = turn % len(self._all)
        messages, packs, start = self._all[slot], self._packs, self._all[slot]
        if not messages:
            return []
        if filled:
            packs, start = self._last_packs, self._last
        chain = [copy(target, source) for target, source in packs]
        if start:
            chain.append(call(partial(MPI.Prequest.Startall, start), once=True))
        chain.append(call(partial(MPI.Prequest.Testall, messages), serves=False))
        chain += [copy(target, source) for target, source in self._unpacks[slot]]
        return [chain]

    def receive(self, turn: int) -> None:
        """Local. A filled round begins: its messages may come."""
        MPI.Prequest.Startall(self._receives[turn % len(self._receives)])

    def send_chunk(self, chunk: int) -> bool:
        """Local. A chunk leaves; false where there is nothing to send."""
        MPI.Prequest.Startall(self._of_chunk[chunk])
        return bool(self._of_chunk[chunk])

    def lay_outlets(self, outlets: Outlets, slot: int) -> None:
        """Local. Where the caller of a filled round writes: the buffers of the messages."""
        for block, chunks in self._blocks:
            if len(chunks) == self._exchange.chunks:
                outlets.put(block, slot, [chunk.array for chunk in chunks])
            else:
                outlets.in_send_array(block, slot)


class PointToPoint(ExchangeTransport):
    """Messages to and from all peers.

    The caller of an opened round, which is always possible, packs: the outlets are the buffers.
    """

    direct = True

    def __init__(self, operation: Exchange, resources: Resources) -> None:
        super().__init__(operation, resources)
        self.serve(self.plain_arrays())
        exchange = self.operation
        self._messages = Messages(exchange, resources, self.arrays, exchange.peers)
        self._local = exchange.to_itself(self.arrays)
        self._outlets: Outlets | None = None

    def plans(self) -> list[Plan]:
        return [[*self._messages.chains(slot, False), self._local[slot]]
                for slot in range(len(self.arrays))]

    def filled_plans(self) -> list[Plan]:
        copies = self._laid().copies
        return [[*self._messages.chains(slot, True), copies[slot]]
                for slot in range(len(self.arrays))]

    def outlets(self) -> list[list[list[Outlet]]]:
        return self._laid().by_slot

    def _laid(self) -> Outlets:
        if self._outlets is None:
            self._outlets = Outlets(self.operation, len(self.arrays))
            for slot in range(len(self.arrays)):
                self._messages.lay_outlets(self._outlets, slot)
            self._outlets.keep(self.arrays)
        return self._outlets

    def may_open(self, rounds: int) -> bool:
        self._messages.receive(rounds % len(self.arrays))
        return True

    def send_chunk(self, slot: int, chunk: int) -> bool:
        return self._messages.send_chunk(chunk)
