"""A run of puts or gets in epochs of a window."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.apps.rmamt.cell import Cell
from onesided.apps.rmamt.compiled import Compiled
from onesided.apps.rmamt.gang import Gang
from onesided.apps.rmamt.layout import Bytes, Memory, givers_of
from onesided.apps.rmamt.operations import OPERATIONS, Contestant, contestants, steps_of
from onesided.apps.rmamt.patterns import PATTERNS
from onesided.apps.rmamt.plan import Plan
from onesided.apps.rmamt.stage import Stage
from onesided.apps.rmamt.synchronisations import LOCK_ALL, SYNCHRONISATIONS


class OneSided(Stage):
    """Puts or gets of one or more threads in epochs of a window."""

    def __init__(
        self, comm: MPI.Intracomm, cell: Cell, plan: Plan, compiled: Compiled | None
    ) -> None:
        super().__init__(comm, cell, plan)
        operation, layout = OPERATIONS[cell.op], self.layout
        self._win = MPI.Win.Allocate(layout.nbytes, 1, comm=comm)
        window: Any = self._win.tomemory()
        exposed: Bytes = np.frombuffer(window, np.uint8)
        own: Bytes = np.zeros(layout.nbytes, np.uint8)
        sends, receives = (exposed, own) if operation.getting else (own, exposed)
        givers = givers_of(self.route, getting=operation.getting)
        self._memory: Memory | None = Memory(layout, sends, receives, comm.rank, givers)
        self._sync = SYNCHRONISATIONS[cell.sync](self._win, self.route)
        active = bool(self.route.outgoing)
        self._main = Gang(0)
        self._gang = Gang(cell.threads) if cell.threads and active else self._main
        every = contestants(
            operation,
            self._win,
            own,
            layout,
            steps_of(layout, self.route.outgoing),
            flush=PATTERNS[cell.pattern].flush and cell.sync == LOCK_ALL,
            gangs=(self._gang, self._main),
            compiled=compiled,
            threaded=bool(cell.threads),
        )
        self._field: dict[str, Contestant] = {each.name: each for each in every}
        self.names = list(self._field)

    def prepare(self, name: str) -> None:
        """Local. The threads are there."""
        each = self._field[name]
        each.gang.ready(each.works)

    def round(self, name: str) -> float:
        """Collective. The clock runs from before the epoch is opened until it is closed."""
        gang, sync = self._field[name].gang, self._sync
        begin = time.perf_counter()
        sync.open()
        gang.begin()
        gang.transferred()
        sync.close()
        seconds = time.perf_counter() - begin
        gang.end()
        return seconds

    def fill(self, turn: int) -> None:
        """Local. Stores into the window are made under a lock of it."""
        with self._own_window() as memory:
            memory.fill(turn)

    def wrong(self, turn: int) -> int:
        """Local."""
        with self._own_window() as memory:
            return memory.wrong(turn)

    def free(self) -> None:
        """Collective."""
        if self._gang is not self._main:
            self._gang.close()
        self._sync.free()
        self._field, self._memory = {}, None
        self._win.Free()

    @contextlib.contextmanager
    def _own_window(self) -> Iterator[Memory]:
        memory, rank = self._memory, self.comm.rank
        if memory is None:
            raise RuntimeError("the run has ended")
        self._win.Lock(rank, MPI.LOCK_EXCLUSIVE)
        try:
            yield memory
        finally:
            self._win.Unlock(rank)
