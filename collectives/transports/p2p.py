"""Persistent point-to-point messages: the reference implementation, works on every MPI."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.context import Resources
from onesided.collectives.copies import LARGEST_PIECE, Copy, allocate_slots, copies_to_self, copy_of
from onesided.collectives.exchange import Exchange
from onesided.collectives.pattern import Block
from onesided.collectives.request import PersistentRequest


class PointToPoint(PersistentRequest):
    """``Send_init`` and ``Recv_init`` among the ranks that exchange data, started together.

    Contiguous blocks are sent and received in place; boxes are packed into buffers that belong
    to the request. Messages are matched by the order of initialization: every request has a tag
    of its own on the private communicator; blocks of one pair of ranks go in the order of keys.
    """

    def __init__(self, exchange: Exchange, resources: Resources) -> None:
        super().__init__(exchange, resources)
        self.serve(allocate_slots(exchange))
        self._packs: list[Copy] = []
        self._unpacks: list[list[Copy]] = []
        self._messages: list[list[MPI.Prequest]] = []
        outgoing = sorted(exchange.send.blocks, key=lambda block: block.key)
        incoming = sorted(exchange.recv.blocks, key=lambda block: block.key)
        sends = [m for block in outgoing for m in self._send(block)]
        for array in self.arrays:
            unpacks: list[Copy] = []
            recvs = [m for block in incoming for m in self._recv(block, array, unpacks)]
            self._messages.append(recvs + sends)
            self._unpacks.append(unpacks)
        self._local = copies_to_self(exchange, self.arrays)

    def _send(self, block: Block) -> list[MPI.Prequest]:
        if block.peer == self.exchange.rank or self.exchange.send.array is None:
            return []
        view = self.exchange.send.array[block.box]
        if not view.flags.c_contiguous:
            packed = np.empty(view.shape, view.dtype)
            self._packs.append(copy_of(packed, view))
            view = packed
        start = self.exchange.context.comm.Send_init
        return [
            self._owned(start([piece, MPI.BYTE], block.peer, self.exchange.number))
            for piece in _pieces(view)
        ]

    def _recv(
        self, block: Block, array: NDArray[Any], unpacks: list[Copy]
    ) -> list[MPI.Prequest]:
        if block.peer == self.exchange.rank:
            return []
        view = array[block.box]
        if not view.flags.c_contiguous:
            packed = np.empty(view.shape, view.dtype)
            unpacks.append(copy_of(view, packed))
            view = packed
        start = self.exchange.context.comm.Recv_init
        return [
            self._owned(start([piece, MPI.BYTE], block.peer, self.exchange.number))
            for piece in _pieces(view)
        ]

    def _owned(self, message: MPI.Prequest) -> MPI.Prequest:
        self.resources.on_release(message.Free)
        return message

    def begin(self, slot: int) -> None:
        for target, source in self._packs:
            target[:] = source
        MPI.Prequest.Startall(self._messages[slot])
        for target, source in self._local[slot]:
            target[:] = source
        self._open = self._messages[slot]

    def advance(self) -> bool:
        return MPI.Prequest.Testall(self._open)

    def complete(self) -> None:
        for target, source in self._unpacks[self._slot]:
            target[:] = source

    def waiting_for(self) -> str:
        return "messages from or to " + ", ".join(f"rank {peer}" for peer in self.exchange.peers)

    def forget(self) -> None:
        self._packs, self._unpacks, self._messages, self._local = [], [], [], []
        self._open = []


def _pieces(view: NDArray[Any]) -> list[NDArray[np.uint8]]:
    flat = view.reshape(-1).view(np.uint8)
    return [flat[i : i + LARGEST_PIECE] for i in range(0, flat.size, LARGEST_PIECE)]
