"""Memory into which several requests receive in turn: one number of rounds, one credit.

A *credit* is the permission to write the next round into the receive memory. It belongs to the
memory: whichever of the requests is started next, its senders may write when they have the credit
of that round. So all requests of one memory count their rounds together. All ranks start them in
one common order, so the numbers are the same everywhere, also for a pair of ranks that exchanges
nothing in some of the requests.

On the node the credit is the number of the round, stored beside the counter of arrivals of every
request at every source. Off the node it is an empty message to every source: a Put or Accumulate
might wait until the target enters MPI, a message does not, and so the credit can be given as soon
as the memory has been read. A rank gives one credit per round to every source of any of the
requests, so that the number of messages is the number of the round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mpi4py import MPI

from onesided.collectives.errors import RequestError

if TYPE_CHECKING:
    from onesided.collectives.request import PersistentRequest


@dataclass
class Creditor:
    """What one request needs for credits: cells at the sources on the node, and ranks off it.

    ``far``: some rank of the communicator is on another node.
    """

    cells: list[memoryview] = field(default_factory=list)
    syncs: list[Callable[[], None]] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    far: bool = False


class Alternation:
    """The rounds and the credit of the requests of one memory; most often of a single request.

    ``number`` counts the rounds that this rank has started, ``granted`` is the last round that its
    senders may write. It knows what the requests have given it, not the requests, so that a
    request that is dropped without ``Free`` can be collected.
    """

    def __init__(self, comm: MPI.Intracomm, tag: int, joint: bool = False) -> None:
        """``joint``: made by :func:`alternate`, of several requests."""
        self.number = 0
        self.granted = 0
        self.busy = False
        self.joint = joint
        self._comm, self._tag = comm, tag
        self._members: dict[int, Creditor] = {}
        self._cells: list[memoryview] = []
        self._syncs: list[Callable[[], None]] = []
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
            ranks = range(self._comm.size)
            given = self._comm.alltoall([self.granted if r in self._out else 0 for r in ranks])
            for peer, count in enumerate(given):
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
        self._cells = [cell for member in members for cell in member.cells]
        self._syncs = [sync for member in members for sync in member.syncs]
        sources = {peer for member in members for peer in member.sources}
        targets = {peer for member in members for peer in member.targets}
        for peer in sorted(sources - self._out.keys()):
            self._out[peer] = self._comm.Send_init([self._nothing, MPI.BYTE], peer, self._tag)
        for peer in sorted(self._out.keys() - sources):
            self._out[peer].Wait()
            self._out.pop(peer).Free()
        self._into = sorted(targets)
        self._came = {peer: self._came.get(peer, 0) for peer in self._into}

    def begin(self) -> None:
        """Local. A round of one of the requests begins; grants its credit where that is due."""
        self.busy = True
        number = self.number = self.number + 1
        if self.granted < number:
            self.grant(number)
        for peer in self._into:  # of rounds in which this rank sends it nothing, too
            self._poll(peer)

    def grant(self, number: int) -> None:
        """Local. Every source may write round ``number``; the memory has been read before."""
        self.granted = number
        for sync in self._syncs:
            sync()
        for cell in self._cells:
            cell[0] = number
        for message in self._out.values():
            message.Wait()  # of the round before: it is empty, and every MPI buffers it
            message.Start()

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


def alternate(requests: Sequence[PersistentRequest]) -> None:
    """Local, but called on all ranks with the same requests in the same order.

    Says that these requests receive into the same memory, or into parts of it: they are started
    in one common order on all ranks, and only one of them is active at a time. They share one
    round number and one credit, so :meth:`~.PersistentRequest.Release` on any of them lets peers
    write for whichever is started next. They may be of different methods.

    Raises :class:`RequestError` where a request occurs twice, has been started, alternates
    already, owns its receive memory in two slots, or is of another communicator than the first.
    """
    if len({id(request) for request in requests}) != len(requests):
        raise RequestError("a request occurs twice in alternate()")
    for request in requests:
        if request.state != "inactive" or request.rounds or request.granted:
            raise RequestError(f"{request!r} cannot alternate: it has been used or freed")
        if request.alternates:
            raise RequestError(f"{request!r} alternates with other requests already")
        if request.exchange.slots > 1:
            raise RequestError(f"{request!r} cannot alternate: it has two slots of its own")
        if request.exchange.context is not requests[0].exchange.context:
            raise RequestError(f"{request!r} and {requests[0]!r} are of different communicators")
    if not requests:
        return
    context = requests[0].exchange.context
    together = Alternation(context.comm, context.next_tag(), joint=True)
    for request in requests:
        request.alternate_in(together)
