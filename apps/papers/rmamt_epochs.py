"""A run of puts or gets in epochs of a window."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.apps.papers.rmamt_cell import ALONE, PATTERNS, RELEASED, THREADS, C, Cell, Plan, Route
from onesided.apps.papers.rmamt_compiled import (
    Bytes,
    Compiled,
    Gang,
    Layout,
    Memory,
    Work,
    givers_of,
    messages_of,
)

# The operations, and the loops that call them: in Python by mpi4py, and in C.

Call = Callable[[tuple[object, int, MPI.Datatype], int, tuple[int, int, MPI.Datatype]], None]


@dataclass(frozen=True)
class Operation:
    """``getting``: the origin receives. ``call`` is that of a window."""

    getting: bool
    call: Callable[[MPI.Win], Call]


#: By the words of ``--ops``.
OPERATIONS: Mapping[str, Operation] = {
    "put": Operation(False, lambda win: win.Put),
    "get": Operation(True, lambda win: win.Get),
}


@dataclass(frozen=True)
class Step:
    """One message: its rank, and its place, the same here and there."""

    rank: int
    place: int


@dataclass(frozen=True)
class Contestant:
    """Something that transfers all messages of an epoch: a work for every thread of a gang."""

    name: str
    gang: Gang
    works: Sequence[Work]


def steps_of(layout: Layout, outgoing: Sequence[int]) -> list[list[Step]]:
    """Local. What every thread does; nothing where a rank is a target only."""
    if not outgoing:
        return [[] for _ in range(layout.threads)]
    return [
        [Step(outgoing[slot], place) for slot, place in layout.places(thread)]
        for thread in range(layout.threads)
    ]


def contestants(
    operation: Operation,
    win: MPI.Win,
    memory: Bytes,
    layout: Layout,
    steps: Sequence[Sequence[Step]],
    *,
    flush: bool,
    gangs: tuple[Gang, Gang],
    threaded: bool,
    compiled: Compiled | None,
) -> list[Contestant]:
    """Local. All that take part in a cell, those of its own figures first; alike on all ranks.

    ``gangs``: one with the threads of the cell, and the main thread alone, which also runs what a
    target has not to do. ``threaded``: there are threads on the origins.
    """
    threads, main = gangs
    whole = list(chain.from_iterable(steps))

    def python(part: Sequence[Step]) -> Work:
        return python_loop(operation.call(win), win, memory, layout.size, part, flush=flush)

    found = [Contestant(THREADS, threads, [python(part) for part in steps])]
    if threaded:
        found.append(Contestant(ALONE, main, [python(whole)]))
    if compiled is not None:

        def loop(part: Sequence[Step]) -> Work:
            places = np.array([step.place for step in part], dtype=np.int64)
            ranks = np.array([step.rank for step in part], dtype=np.int32)
            return compiled.loop(
                win, memory, places, ranks, layout.size, getting=operation.getting, flush=flush
            )

        if threaded:
            found.append(Contestant(RELEASED, threads, [loop(part) for part in steps]))
        found.append(Contestant(C, main, [loop(whole)]))
    return found


def python_loop(
    call: Call, win: MPI.Win, memory: Bytes, size: int, part: Sequence[Step], *, flush: bool
) -> Work:
    """Local. A loop of calls of mpi4py, whose arguments are made before: nothing else is timed."""
    view = memory.data
    calls = [
        (
            (view[step.place : step.place + size], size, MPI.BYTE),
            step.rank,
            (step.place, size, MPI.BYTE),
        )
        for step in part
    ]

    def plain() -> None:
        for origin, rank, target in calls:
            call(origin, rank, target)

    def flushed() -> None:
        complete = win.Flush
        for origin, rank, target in calls:
            call(origin, rank, target)
            complete(rank)

    return flushed if flush else plain


# The four ways to open and close an epoch; always by the main thread.


class Synchronisation(ABC):
    """Between :meth:`open` and :meth:`close` the threads of this rank may put and get."""

    def __init__(self, win: MPI.Win, route: Route) -> None:
        self._win = win
        self._targets = sorted(set(route.outgoing))
        self._origins = sorted(set(route.incoming))

    @abstractmethod
    def open(self) -> None:
        """Collective where the targets take part, else local."""

    @abstractmethod
    def close(self) -> None:
        """As :meth:`open`. All operations are complete at their origins and their targets."""

    def free(self) -> None:
        """Local. What it holds of MPI."""
        self._targets = self._origins = []


class Fence(Synchronisation):
    """MPI_Win_fence of all ranks."""

    def open(self) -> None:
        """Collective."""
        self._win.Fence(MPI.MODE_NOPRECEDE)

    def close(self) -> None:
        """Collective."""
        self._win.Fence(MPI.MODE_NOSUCCEED)


class Pscw(Synchronisation):
    """Post, start, complete, wait: origins with their targets."""

    def __init__(self, win: MPI.Win, route: Route) -> None:
        super().__init__(win, route)
        everyone = win.Get_group()
        self._to = self._group(everyone, self._targets)
        self._from = self._group(everyone, self._origins)
        everyone.Free()

    def open(self) -> None:
        """Collective of origins and targets."""
        if self._from is not None:
            self._win.Post(self._from)
        if self._to is not None:
            self._win.Start(self._to)

    def close(self) -> None:
        """Collective of origins and targets."""
        if self._to is not None:
            self._win.Complete()
        if self._from is not None:
            self._win.Wait()

    def free(self) -> None:
        """Local."""
        for group in (self._to, self._from):
            if group is not None:
                group.Free()
        self._to = self._from = None
        super().free()

    @staticmethod
    def _group(everyone: MPI.Group, ranks: Sequence[int]) -> MPI.Group | None:
        return everyone.Incl(list(ranks)) if ranks else None


class Lock(Synchronisation):
    """A shared lock of every target."""

    def open(self) -> None:
        """Local."""
        for rank in self._targets:
            self._win.Lock(rank, MPI.LOCK_SHARED)

    def close(self) -> None:
        """Local."""
        for rank in self._targets:
            self._win.Unlock(rank)


class LockAll(Synchronisation):
    """One call locks all ranks."""

    def open(self) -> None:
        """Local."""
        if self._targets:
            self._win.Lock_all()

    def close(self) -> None:
        """Local."""
        if self._targets:
            self._win.Unlock_all()


LOCK_ALL = "lock_all"
#: By the words of ``--syncs``.
SYNCHRONISATIONS: Mapping[str, type[Synchronisation]] = {
    "fence": Fence,
    "pscw": Pscw,
    "lock": Lock,
    LOCK_ALL: LockAll,
}


# A run of a cell: its memory and whoever transfers, made anew for every run.


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
    return PATTERNS[cell.pattern].route(comm.rank, comm.size, plan.neighbors)


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
