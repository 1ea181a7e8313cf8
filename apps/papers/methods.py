"""Methods of exchanges that exist to be measured against: others are better everywhere.

The algorithms of the persistent RMA Alltoallv as they are printed, made right, to repeat its
experiments; and general active target synchronization, which it names. They come in from outside
of the collectives, as docs/extending/transport.md tells: the entry point of ``pyproject.toml``
names :func:`add`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial

from mpi4py import MPI

from onesided.collectives import Method, register
from onesided.collectives.context import Resources
from onesided.collectives.exchange import Exchange
from onesided.collectives.program import fence
from onesided.collectives.schedule import OneSided
from onesided.collectives.steps import Plan, call
from onesided.collectives.transports.lock import Signals


class Pscw(OneSided):
    """Post, start, complete, wait among the ranks that really exchange data; any order.

    ``Start`` posts, which is local, and says *ready* to the sources. The access epoch is opened
    when all targets are ready, so requests may be started and completed in any order. The messages
    are all that ranks tell each other before an epoch, and MPI is told so (``MPI_MODE_NOCHECK`` at
    both ends: every post has been made before the start that matches it). Otherwise MPI says the
    same once more, and ``MPI_Win_post`` is not local: Open MPI 5.0 keeps 32 posts for a rank, and
    the 33rd waits until that rank opens its epoch, which waits for this one's message.
    """

    own_windows = True
    overlay = True

    def __init__(self, operation: Exchange, resources: Resources) -> None:
        super().__init__(operation, resources)
        exchange = self.operation
        targets = [delivery.peer for delivery in self.destinations()]
        sources = sorted(self.sources())
        self._ready = Signals(exchange, resources, sources, targets)
        self._access = exchange.context.group.Incl(targets) if targets else None
        self._exposure = exchange.context.group.Incl(sources) if sources else None
        for group in (self._access, self._exposure):
            if group is not None:
                resources.on_release(group.Free)
        self._exposed: list[MPI.Win] = []

    def plans(self) -> list[Plan]:
        messages = self._ready.messages()
        begin = [
            call(self._post, once=True),
            call(partial(MPI.Prequest.Startall, messages), once=True),
        ]
        ready = call(partial(MPI.Prequest.Testall, messages))
        # to complete an epoch may take until the target enters MPI: that is not for Start
        access = call(self._begin_access, in_start=False, once=True)
        return [
            [[*begin, *self.local[turn], ready, access, *self.to_others(turn),
              call(self._complete, once=True), call(self._exposed_is_over, False),
              *self.come(turn, self.peers)]]
            for turn in range(self.turns)
        ]  # fmt: skip

    def _post(self) -> None:
        fence()
        if self._exposure is not None:
            self._exposed = self.own()
            for window in self._exposed:
                window.Post(self._exposure, MPI.MODE_NOCHECK)

    def _begin_access(self) -> None:
        """One access epoch: all targets have posted, so nothing in it waits for user code."""
        if self._access is not None:
            for window in self.own():
                window.Start(self._access, MPI.MODE_NOCHECK)

    def _complete(self) -> None:
        fence()
        if self._access is not None:
            for window in self.own():
                window.Complete()

    def _exposed_is_over(self) -> bool:
        while self._exposed:
            if not self._exposed[-1].Test():
                return False
            self._exposed = self._exposed[:-1]
        return True

    def waiting_for(self, number: int) -> str:
        ready, complete = list(self._ready.into), list(self._ready.out)
        return f"ready messages from {ready}, completion by {complete}"


class _Printed(OneSided, ABC):
    """Every block, this rank's own included, is Put into a window that is *created* over the
    receive buffer, in the order of the ranks; nothing is stored through shared memory."""

    most_slots = 1
    share = False
    own_windows = True
    overlay = True
    waits_in_start = True

    def __init__(self, operation: Exchange, resources: Resources) -> None:
        super().__init__(operation, resources)
        self.deliveries.sort(key=lambda delivery: delivery.peer)

    def plans(self) -> list[Plan]:
        begin = call(self.begin_epoch, once=True)
        close = call(self.close, False, blocks=True, once=True)  # left to Wait
        return [[[begin, *self.to_others(0), close, *self.come(0, self.peers)]]]

    @abstractmethod
    def begin_epoch(self) -> None:
        """The beginning of the round."""

    @abstractmethod
    def close(self) -> None:
        """Collective. The end of the round."""


class FencePaper(_Printed):
    """Algorithm 1 with its assertions, but for NOSTORE at the opening fence. NOSTORE promises that
    nobody has stored into the receive buffer since the last fence, which a program that clears its
    buffer between rounds would break (MPI-4.1 section 12.5.5)."""

    def begin_epoch(self) -> None:
        for window in self.own():
            window.Fence(MPI.MODE_NOPRECEDE)

    def close(self) -> None:
        for window in self.own():
            window.Fence(MPI.MODE_NOPUT | MPI.MODE_NOSUCCEED)

    def waiting_for(self, number: int) -> str:
        return "all ranks in the fence"


class LockPaper(_Printed):
    """Algorithm 3 with barriers before and after the self lock is taken again.

    As printed, without a barrier, Wait returns with data missing; with the one barrier of the
    text the next round overwrites data that are still being read. Both barriers are needed. MPICH
    5.0 hangs in ``Lock_all`` beside an active ``Ibarrier``, which it does not progress there.
    """

    def __init__(self, operation: Exchange, resources: Resources) -> None:
        super().__init__(operation, resources)
        rank = self.operation.rank
        for window in self.own():
            window.Lock(rank, MPI.LOCK_EXCLUSIVE)
            resources.on_release(partial(window.Unlock, rank), in_step=True)
        self.operation.context.comm.Barrier()

    def begin_epoch(self) -> None:
        for window in self.own():
            window.Unlock(self.operation.rank)
        for window in self.own():
            window.Lock_all()

    def close(self) -> None:
        barrier = self.operation.context.comm.Barrier
        for window in self.own():
            window.Unlock_all()
        barrier()
        for window in self.own():
            window.Lock(self.operation.rank, MPI.LOCK_EXCLUSIVE)
        barrier()

    def waiting_for(self, number: int) -> str:
        return "all ranks in the barrier"


METHODS = (
    Method("rma-pscw", f"{__name__}:Pscw", any_order=True, candidate=False,
           summary="post, start, complete, wait among the ranks that exchange data"),
    Method("rma-fence-paper", f"{__name__}:FencePaper", any_order=False, candidate=False,
           summary="Algorithm 1 as printed: Put of every block into a created window"),
    Method("rma-lock-paper", f"{__name__}:LockPaper", any_order=False, candidate=False,
           summary="Algorithm 3 with both barriers, on a created window"),
)  # fmt: skip


def add() -> None:
    """Local, the same on all ranks. Register them."""
    for method in METHODS:
        register(method)
