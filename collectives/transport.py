"""What a request carries out, and what moves its data: the interface that every method implements.

A transport is made once, collectively, from what was agreed on. It says what a round consists of,
either as chains of steps (:meth:`Transport.plans`, see :mod:`.steps`), or, shorter, by three
operations: ``begin`` (local; it must not wait for another rank, except in strictly ordered
methods), ``advance`` (do what can be done now, tell whether the round is complete; of a strictly
ordered method it may wait for other ranks, and only the request's own Wait and Test call it) and
``finish`` (make the data visible). ``docs/extending/transport.md`` shows one from outside this
package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.context import Context, Node, Resources
from onesided.collectives.errors import UnsupportedError
from onesided.collectives.hints import Hints
from onesided.collectives.program import CreditCells
from onesided.collectives.steps import Plan, call

#: The receiving rank, a part of the send array, and the array that takes this part.
Outlet = tuple[int, tuple[slice, ...], NDArray[Any]]

#: A counter in shared memory: an array of one 64-bit integer.
Cell = NDArray[np.int64]


@dataclass
class Operation:
    """An exchange, a broadcast or a reduction.

    ``method`` is the transport by name; ``any_order``: ranks may start and complete requests of it
    in different orders. ``context`` is the communicator with what its requests share, ``hints`` is
    what the caller has said in ``info``, and ``number`` that of the request in its context, the
    same on all ranks.
    """

    method: str
    any_order: bool
    context: Context
    hints: Hints
    number: int

    @property
    def rank(self) -> int:
        """This rank."""
        return self.context.comm.rank

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self.context.comm.size

    @property
    def node(self) -> Node:
        """The node of this rank, real or emulated."""
        return self.context.node(self.hints.ranks_per_node)

    @property
    def sent(self) -> Any:
        """The send data as the caller gave them."""
        return None

    @property
    def before(self) -> Callable[[], object] | None:
        """Called in Start before the round, where data do not lie in memory as they travel."""
        return None

    @property
    def after(self) -> Callable[[Any], object] | None:
        """Called with the receive memory of the round by the Wait or Test that completes it."""
        return None

    def buffers(self) -> list[object]:
        """Local. What must be kept alive as long as the request."""
        return []


class Credit(CreditCells):
    """The rounds and the credit of one receive memory; most often of a single request.

    A *credit* is the permission to write the next round into the receive memory. It belongs to the
    memory: whichever of several requests is started next, its senders may write when they have the
    credit of that round. So all requests of one memory count their rounds together. All ranks
    start them in one common order, so the numbers are the same everywhere, also for a pair of ranks
    that exchanges nothing in some of the requests.

    The credit is the number of the round, stored beside the counter of arrivals of every request at
    every source on the node; what is received from other nodes is staged, and needs none.

    It knows what the requests have given it, not the requests, so that a request that is dropped
    without ``Free`` can be collected.
    """

    def __init__(self, joint: bool = False) -> None:
        """``joint``: made by :func:`alternate`, of several requests."""
        super().__init__()
        self.joint = joint
        self._members: dict[int, list[Cell]] = {}

    def join(self, number: int, cells: list[Cell]) -> None:
        """Local, in the same order on all ranks. Add the counters at the sources of a request."""
        self._members[number] = cells
        self._collect()

    def leave(self, number: int) -> None:
        self._members.pop(number, None)
        self._collect()

    def settle(self, number: int, own: bool) -> None:
        """Local. A request's round has been given up on all ranks, of which the furthest was in
        this one. ``own``: this rank was in it, too; else another request may be active."""
        if own:
            self.busy = 0
        self.number = max(self.number, number)
        self.granted = max(self.granted, number)

    def _collect(self) -> None:
        cells = [cell for member in self._members.values() for cell in member]
        self._connect(cells)


class Transport:
    """How one request moves its data; made by its initialization on every rank.

    Examples
    --------
    >>> issubclass(methods()["p2p"].load(), Transport)
    True
    """

    #: Most receive slots that the method can use in turn.
    most_slots: ClassVar[int] = 2
    #: The caller of an opened round can write where the blocks belong.
    direct: ClassVar[bool] = False
    #: Of :meth:`advance`: another rank may wait for what it does, so that a thread makes the calls
    #: where the program is elsewhere.
    serves: ClassVar[bool] = True
    #: A round waits for other ranks before anything of it is done, in ``Start`` and ``Open``.
    waits_in_start: bool = False
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
        #: What is sent, and which rows that are, where it is not the send array as it was given.
        self.packed: tuple[NDArray[Any], NDArray[np.int64]] | None = None

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
        begins = [call(partial(self.begin, slot), once=True) for slot in slots]
        ends = [call(partial(self.finish, slot), False, once=True) for slot in slots]
        blocks = not self.operation.any_order
        middle = call(self.advance, self.serves and not blocks, blocks=blocks)
        return [[[begins[slot], middle, ends[slot]]] for slot in slots]

    def filled_plans(self) -> list[Plan]:
        """Local. The same for rounds that the caller has filled; none where it cannot."""
        return []

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

    def sends_chunks(self) -> bool:
        """Local. Whether :meth:`send_chunk` may have something to issue."""
        return True

    # -- the rest --------------------------------------------------------------------------------

    def creditor(self) -> list[Cell]:
        """Local. The counters at its sources, by which they get this request's credit."""
        return []

    def watched(self) -> tuple[list[NDArray[Any]], list[list[NDArray[Any]]], np.dtype[Any]]:
        """Local. What must not change in a round, what it fills by slot, and of which dtype."""
        return [], [[]], np.dtype(np.uint8)

    def waiting_for(self, number: int) -> str:
        """Local. What round ``number`` lacks, in words, for the watchdog."""
        return type(self).__name__

    def forget(self) -> None:
        """Local. Drop everything that was made: no view is left of memory that is about to be given
        back, and messages and windows belong to the resources alone."""
        kept = self.operation, self.resources
        vars(self).clear()
        Transport.__init__(self, *kept)


