"""What the one-sided transports have in common: a schedule, and data made visible at the end."""

from __future__ import annotations

from typing import ClassVar

from mpi4py import MPI

from onesided.collectives.context import Resources
from onesided.collectives.copies import Copy
from onesided.collectives.delivery import Delivery, Filling, Put
from onesided.collectives.exchange import Exchange
from onesided.collectives.outlets import Outlet, Outlets
from onesided.collectives.request import PersistentRequest
from onesided.collectives.schedule import Schedule


class OneSided(PersistentRequest):
    """Blocks are stored where the target's memory is visible on the node, else Put.

    Subclasses say how ranks learn that memory is free and that data have come.
    """

    #: Shared memory is used; otherwise every block is Put, on the node and to oneself as well.
    share: ClassVar[bool] = True
    #: Counters per peer in the control memory, in units of :data:`~..memory.ALIGNMENT`.
    cells: ClassVar[int] = 0
    #: A window over the control memory is needed in any case, for its synchronization.
    overlay: ClassVar[bool] = False
    #: Off-node Puts are issued before anything is stored on the node (Algorithm 2).
    puts_first: ClassVar[bool] = False

    def __init__(self, exchange: Exchange, resources: Resources) -> None:
        super().__init__(exchange, resources)
        self.schedule = Schedule(exchange, resources, self.share, self.cells)
        self.schedule.build(self.overlay)
        self.serve(self.schedule.arrays)
        self._local: list[list[Copy]] = self.schedule.local
        self._unpacks: list[list[Copy]] = self.schedule.unpacks
        self._syncs = [window.Sync for window in self.schedule.syncs]
        self._filling: Filling | None = None
        #: The windows that are Put through; the only ones that are fenced, posted or flushed.
        self.windows: list[MPI.Win] = [w for w in self.schedule.windows if w is not None]

    def stages(self, turn: int) -> list[tuple[list[Put], list[Copy]]]:
        """Local. What is issued for all peers in a slot, in order: Puts, then stores, repeated."""
        deliveries = self.schedule.deliveries
        if self.puts_first:
            puts = [put for d in deliveries for put in d.puts[turn]]
            return [(puts, [copy for d in deliveries for copy in d.stores[turn]])]
        return [(d.puts[turn], d.stores[turn]) for d in deliveries]

    def hold_lock(self) -> None:
        """Collective. A passive epoch on every window, from here until the request is freed."""
        for window in self.windows:
            window.Lock_all(MPI.MODE_NOCHECK)
            self.resources.on_release(window.Unlock_all)
            self._syncs.append(window.Sync)

    def destinations(self) -> list[Delivery]:
        """Local. The deliveries that carry data."""
        return [d for d in self.schedule.deliveries if any(d.stores) or any(d.puts)]

    def sources(self) -> set[int]:
        """Local. The peers that send data to this rank."""
        return {b.peer for b in self.exchange.recv.blocks} - {self.exchange.rank}

    def lay_outlets(self) -> list[list[list[Outlet]]]:
        if not self.direct:
            return super().lay_outlets()
        outlets = Outlets(self.exchange, self.exchange.slots)
        self._filling = Filling(self.schedule.deliveries, outlets)
        outlets.keep(self.arrays)
        return outlets.by_slot

    def send_chunk(self, slot: int, chunk: int) -> bool:
        if self._filling is None:
            return False
        puts = self._filling.puts[slot][chunk]
        for put in puts:
            put.send()
        return bool(puts)

    def close(self, slot: int) -> None:
        if self._filling is not None:
            for put in self._filling.last[slot]:
                put.issue()
            for target, source in self._filling.outlets.copies[slot]:
                target[:] = source

    def complete(self) -> None:
        for sync in self._syncs:
            sync()
        for target, source in self._unpacks[self._slot]:
            target[:] = source

    def forget(self) -> None:
        self.schedule.forget()
        self._local, self._unpacks, self._syncs, self.windows = [], [], [], []
        self._filling = None


def merged(stages: list[tuple[list[Put], list[Copy]]]) -> list[tuple[list[Put], list[Copy]]]:
    """Local. The same stages with neighbors joined where the order of issue does not change."""
    joined: list[tuple[list[Put], list[Copy]]] = []
    for puts, stores in stages:
        if joined and (not puts or not joined[-1][1]):
            joined[-1] = (joined[-1][0] + puts, joined[-1][1] + stores)
        else:
            joined.append((list(puts), list(stores)))
    return joined
