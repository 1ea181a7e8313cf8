"""A run of a cell: its memory and whoever transfers, made anew for every run."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.apps.rmamt.cell import MULTIPLE, THREADS, Cell
from onesided.apps.rmamt.compiled import Compiled
from onesided.apps.rmamt.gang import Gang
from onesided.apps.rmamt.layout import Bytes, Layout, Memory, givers_of, messages_of
from onesided.apps.rmamt.operations import OPERATIONS, Contestant, contestants, steps_of
from onesided.apps.rmamt.patterns import PATTERNS, Route
from onesided.apps.rmamt.plan import Plan
from onesided.apps.rmamt.synchronisations import LOCK_ALL, SYNCHRONISATIONS


class Stage(ABC):
    """Whoever transfers, by name. Collective, as its methods are, but for :meth:`prepare`.

    ``layout``: of the memory; ``sent``: messages of this rank in a round; ``ways``: how many of
    them follow each other.
    """

    ways = 1

    def __init__(self, comm: MPI.Intracomm, cell: Cell, plan: Plan) -> None:
        self.comm, self.route = comm, route_of(comm, cell, plan)
        self.layout = layout_of(self.route, cell, plan)
        self.sent = len(self.route.outgoing) * self.layout.threads * self.layout.messages
        self.names: Sequence[str] = ()

    @abstractmethod
    def prepare(self, name: str) -> None:
        """Local. Before the barrier of a round: who transfers in it is there."""

    @abstractmethod
    def round(self, name: str) -> float:
        """One epoch; returns the seconds that this rank took."""

    @abstractmethod
    def fill(self, turn: int) -> None:
        """New data before a round; a barrier comes after it."""

    @abstractmethod
    def wrong(self, turn: int) -> int:
        """Messages of this rank that did not come as they should; a barrier comes before it."""

    def free(self) -> None:
        """Collective. Give back everything that MPI holds, which may be nothing."""
        self.names = ()


def route_of(comm: MPI.Intracomm, cell: Cell, plan: Plan) -> Route:
    """Local. Of this rank."""
    return PATTERNS[cell.pattern].route(comm.rank, comm.size, plan.neighbours)


def layout_of(route: Route, cell: Cell, plan: Plan) -> Layout:
    """Local. The memory of every rank of a cell, alike everywhere."""
    threads, slots = max(1, cell.threads), route.slots
    wanted = plan.messages if PATTERNS[cell.pattern].many else 1
    messages = messages_of(wanted, slots, threads, cell.size, plan.window)
    return Layout(slots, threads, messages, cell.size)


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


class TwoSided(Stage):
    """The baseline: one thread that sends and receives."""

    def __init__(self, comm: MPI.Intracomm, cell: Cell, plan: Plan) -> None:
        super().__init__(comm, cell, plan)
        layout = self.layout
        self._sends: Bytes = np.zeros(layout.nbytes, np.uint8)
        self._receives: Bytes = np.zeros(layout.nbytes, np.uint8)
        many = PATTERNS[cell.pattern].many
        self._call: Callable[[], None] = self._together if many else self._there_and_back
        self.ways = 1 if many else 2
        givers = self.route.incoming if many else [*self.route.outgoing, *self.route.incoming]
        self._memory = Memory(layout, self._sends, self._receives, comm.rank, givers)
        if not many:
            self.sent = 1  # both sides send
        views = self._sends.data, self._receives.data
        places = layout.places(0)
        self._outgoing, self._incoming = (
            [
                ((view[place : place + cell.size], cell.size, MPI.BYTE), peers[slot])
                for slot, place in places
                if peers
            ]
            for view, peers in zip(views, (self.route.outgoing, self.route.incoming), strict=True)
        )
        self._pair = tuple((view[: cell.size], cell.size, MPI.BYTE) for view in views)
        self.names = [THREADS]

    def round(self, name: str) -> float:
        """Collective."""
        begin = time.perf_counter()
        self._call()
        return time.perf_counter() - begin

    def prepare(self, name: str) -> None:
        """Local. The main thread is there always."""

    def _together(self) -> None:
        """Receives are posted before sends; all complete together."""
        receive, send = self.comm.Irecv, self.comm.Isend
        requests = [receive(buffer, peer) for buffer, peer in self._incoming]
        requests += [send(buffer, peer) for buffer, peer in self._outgoing]
        MPI.Request.Waitall(requests)

    def _there_and_back(self) -> None:
        """One message, and one in answer to it."""
        mine, theirs = self._pair
        if self.route.outgoing:
            peer = self.route.outgoing[0]
            self.comm.Send(mine, peer)
            self.comm.Recv(theirs, peer)
        else:
            peer = self.route.incoming[0]
            self.comm.Recv(theirs, peer)
            self.comm.Send(mine, peer)

    def fill(self, turn: int) -> None:
        """Local."""
        self._memory.fill(turn)

    def wrong(self, turn: int) -> int:
        """Local."""
        return self._memory.wrong(turn)


def stage(comm: MPI.Intracomm, cell: Cell, plan: Plan, compiled: Compiled | None) -> Stage:
    """Collective. What runs in a cell."""
    if cell.is_two_sided:
        return TwoSided(comm, cell, plan)
    return OneSided(comm, cell, plan, compiled)


def refusal(cell: Cell) -> str:
    """Local, alike on all ranks. Why a cell cannot be measured by this job; empty where it can."""
    if cell.level == MULTIPLE and MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        return "it needs the thread level multiple, this MPI gives less"
    if cell.threads and cell.level != MULTIPLE:
        return f"{cell.threads} threads need the thread level multiple, not {cell.level}"
    return ""
