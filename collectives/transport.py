"""What moves the data of a request: the interface that every method implements.

A transport is made once, collectively, from what was agreed on. It says what a round consists of,
either as chains of steps (:meth:`Transport.plans`, see :mod:`.program`), or, shorter, by three
operations: ``begin`` (local; it must not wait for another rank, except in strictly ordered
methods), ``advance`` (do what can be done now, tell whether the round is complete) and ``finish``
(make the data visible). ``docs/extending/transport.md`` shows one from outside this package.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import words_of_all
from onesided.collectives.context import Resources
from onesided.collectives.errors import UnsupportedError
from onesided.collectives.program import CreditCells, Plan, address, call

#: The receiving rank, a part of the send array, and the array that takes this part.
Outlet = tuple[int, tuple[slice, ...], NDArray[Any]]

#: A counter in shared memory: an array of one 64-bit integer.
Cell = NDArray[np.int64]


@dataclass
class Creditor:
    """What one request needs for credits: cells at the sources on the node, and ranks off it.

    ``far``: some rank of the communicator is on another node.
    """

    cells: list[Cell] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    far: bool = False


class Credit(CreditCells):
    """The rounds and the credit of one receive memory; most often of a single request.

    A *credit* is the permission to write the next round into the receive memory. It belongs to the
    memory: whichever of several requests is started next, its senders may write when they have the
    credit of that round. So all requests of one memory count their rounds together. All ranks
    start them in one common order, so the numbers are the same everywhere, also for a pair of ranks
    that exchanges nothing in some of the requests.

    On the node the credit is the number of the round, stored beside the counter of arrivals of
    every request at every source. Off the node it is an empty message to every source: a Put or
    Accumulate might wait until the target enters MPI, a message does not, and so the credit can be
    given as soon as the memory has been read. A rank gives one credit per round to every source of
    any of the requests, so that the number of messages is the number of the round.

    It knows what the requests have given it, not the requests, so that a request that is dropped
    without ``Free`` can be collected.
    """

    def __init__(self, comm: MPI.Intracomm, tag: int = 0, joint: bool = False) -> None:
        """``tag``: of the messages off the node, where there are any. ``joint``: made by
        :func:`alternate`, of several requests."""
        super().__init__()
        self.joint = joint
        self._comm, self._tag = comm, tag
        self._members: dict[int, Creditor] = {}
        self._out: dict[int, MPI.Prequest] = {}
        self._into: list[int] = []
        self._came: dict[int, int] = {}
        self._nothing = bytearray(0)

    def join(self, number: int, creditor: Creditor) -> None:
        """Local, in the same order on all ranks. Add what request ``number`` needs."""
        self._members[number] = creditor
        self._collect()

    def leave(self, number: int) -> None:
        """Collective. Forget a request that is being freed, and receive what is under way."""
        if number not in self._members:
            return
        if any(member.far for member in self._members.values()):
            mine, given = (words_of_all(self._comm.size, np.int64) for _ in range(2))
            mine[list(self._out)] = self.granted
            self._comm.Alltoall(mine, given)
            for peer, count in enumerate(given.tolist()):
                while self._came.get(peer, count) < count:
                    self._receive(peer)
        self.drop(number)

    def drop(self, number: int) -> None:
        """Local. Forget a request."""
        del self._members[number]
        self._collect()

    def _collect(self) -> None:
        """What a round needs, of all requests together."""
        members = self._members.values()
        sources = {peer for member in members for peer in member.sources}
        targets = {peer for member in members for peer in member.targets}
        for peer in sorted(sources - self._out.keys()):
            self._out[peer] = self._comm.Send_init([self._nothing, MPI.BYTE], peer, self._tag)
        for peer in sorted(self._out.keys() - sources):
            self._out[peer].Wait()
            self._out.pop(peer).Free()
        self._into = sorted(targets)
        self._came = {peer: self._came.get(peer, 0) for peer in self._into}
        cells = [cell for member in members for cell in member.cells]
        self._connect([address(cell) for cell in cells], cells,
                      self._send if self._out or self._into else None)

    def _send(self, number: int) -> None:
        """Local. Tell the sources off the node that they may write a round."""
        for message in self._out.values():
            message.Wait()  # of the round before: it is empty, and every MPI buffers it
            message.Start()
        for peer in self._into:  # of rounds in which this rank sends it nothing, too
            self._poll(peer)

    def has_come(self, peer: int, number: int) -> bool:
        """Local. Whether a rank on another node has granted round ``number``."""
        return self._came[peer] >= number or self._poll(peer) >= number

    def _poll(self, peer: int) -> int:
        while self._comm.Iprobe(peer, self._tag):
            self._receive(peer)
        return self._came[peer]

    def _receive(self, peer: int) -> None:
        self._comm.Recv([self._nothing, MPI.BYTE], peer, self._tag)
        self._came[peer] += 1


class Transport:
    """How one request moves its data; made by its initialization on every rank."""

    #: Most receive slots that the method can use in turn.
    most_slots: ClassVar[int] = 2
    #: The caller of an opened round can write where the blocks belong.
    direct: ClassVar[bool] = False
    #: MPI takes the caller's buffers as they are, types with holes and ``MPI.IN_PLACE`` included:
    #: the operation's ``before`` and ``after`` are not called.
    as_given: bool = False

    def __init__(self, operation: Any, resources: Resources) -> None:
        """Collective. What is acquired is given back by ``resources.on_release(action)``."""
        self.operation, self.resources = operation, resources
        self.arrays: Sequence[NDArray[Any]] = ()  # the receive memory, by slot
        self.answers: Sequence[Any] = (None,)  # what Wait returns, by slot
        self.credit: Credit | None = None  # where rounds need one
        self.chunks = 1  # in which the caller of a filled round writes
        self.owns_slots = False

    # -- the short way ---------------------------------------------------------------------------

    def begin(self, slot: int) -> None:
        """Local. Start a round that fills ``slot``."""

    def advance(self) -> bool:
        """Local. Do what can be done now; true when the round is complete on this rank."""
        return True

    def finish(self, slot: int) -> None:
        """Local. Make the received data visible to this rank."""

    # -- the program -----------------------------------------------------------------------------

    def plans(self) -> list[Plan]:
        """Local. What a round consists of, by slot."""
        slots = range(max(len(self.arrays), 1))
        begins = [call(partial(self.begin, slot)) for slot in slots]
        ends = [call(partial(self.finish, slot)) for slot in slots]
        return [[[begins[slot], call(self.advance), ends[slot]]] for slot in slots]

    def filled_plans(self) -> list[Plan]:
        """Local. The same for rounds that the caller has filled; none where it cannot."""
        return []

    def needs_mpi_thread(self) -> bool:
        """Local. Whether MPI has to be called for other ranks while the program is elsewhere."""
        return True

    # -- filled rounds -----------------------------------------------------------------------------

    def may_open(self, rounds: int) -> bool:
        """Local. Whether this rank may write to all its peers; a strictly ordered method may wait
        for that. ``rounds``: those of this request that have been started."""
        return False

    def outlets(self) -> list[list[list[Outlet]]]:
        """Local. By slot and chunk; asked for once, where they are first wanted."""
        raise UnsupportedError(f"{type(self).__name__} has no outlets")

    def send_chunk(self, slot: int, chunk: int) -> bool:
        """Local. A chunk is ready: issue what has to be; false where that is nothing."""
        return False

    # -- the rest --------------------------------------------------------------------------------

    def creditor(self) -> Creditor:
        """Local. What this request needs so that a credit reaches its sources."""
        return Creditor()

    def watched(self) -> tuple[list[NDArray[Any]], list[list[NDArray[Any]]], np.dtype[Any]]:
        """Local. What must not change in a round, what it fills by slot, and of which dtype."""
        return [], [[]], np.dtype(np.uint8)

    def waiting_for(self, number: int) -> str:
        """Local. What round ``number`` lacks, in words, for the watchdog."""
        return type(self).__name__

    def forget(self) -> None:
        """Local. Drop every view of the memory that is about to be given back."""


