"""A run of puts or gets in epochs of a window."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.apps.bench.race import nothing
from onesided.apps.bench.team import Team, Work
from onesided.apps.papers.rmamt_cell import ALONE, PATTERNS, RELEASED, THREADS, C, Cell, Plan, Route
from onesided.apps.papers.rmamt_compiled import Bytes, Compiled, Layout, Memory, Step, messages_of

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


def steps_of(layout: Layout, outgoing: Sequence[int]) -> list[list[Step]]:
    """Local. What every thread does; nothing where a rank is a target only."""
    return [
        [(outgoing[slot], place) for slot, place in layout.places(thread)] if outgoing else []
        for thread in range(layout.threads)
    ]


def python_loop(
    call: Call, win: MPI.Win, memory: Bytes, size: int, part: Sequence[Step], *, flush: bool
) -> Work:
    """Local. A loop of calls of mpi4py, whose arguments are made before: nothing else is timed."""
    view = memory.data
    calls = [
        ((view[place : place + size], size, MPI.BYTE), rank, (place, size, MPI.BYTE))
        for rank, place in part
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


@dataclass(frozen=True)
class Epoch:
    """Between ``open`` and ``close`` the threads of this rank may put and get.

    Both are Collective where the targets take part, else Local; after ``close`` all operations are
    complete at their origins and their targets. ``free``: of what it holds of MPI.
    """

    open: Work
    close: Work
    free: Work = nothing


def fence(win: MPI.Win, route: Route) -> Epoch:
    """Collective. MPI_Win_fence of all ranks."""
    return Epoch(
        partial(win.Fence, MPI.MODE_NOPRECEDE), partial(win.Fence, MPI.MODE_NOSUCCEED)
    )


def pscw(win: MPI.Win, route: Route) -> Epoch:
    """Collective. Post, start, complete, wait: origins with their targets."""
    everyone = win.Get_group()
    origins = everyone.Incl(sorted(set(route.incoming)))
    targets = everyone.Incl(sorted(set(route.outgoing)))
    everyone.Free()

    def begin() -> None:
        if route.incoming:
            win.Post(origins)
        if route.outgoing:
            win.Start(targets)

    def end() -> None:
        if route.outgoing:
            win.Complete()
        if route.incoming:
            win.Wait()

    def free() -> None:
        for group in (targets, origins):
            if group != MPI.GROUP_EMPTY:
                group.Free()

    return Epoch(begin, end, free)


def lock(win: MPI.Win, route: Route) -> Epoch:
    """Local. A shared lock of every target."""
    targets = sorted(set(route.outgoing))

    def begin() -> None:
        for rank in targets:
            win.Lock(rank, MPI.LOCK_SHARED)

    def end() -> None:
        for rank in targets:
            win.Unlock(rank)

    return Epoch(begin, end)


def lock_all(win: MPI.Win, route: Route) -> Epoch:
    """Local. One call locks all ranks."""
    return Epoch(win.Lock_all, win.Unlock_all) if route.outgoing else Epoch(nothing, nothing)


LOCK_ALL = "lock_all"
#: By the words of ``--syncs``.
SYNCHRONISATIONS: Mapping[str, Callable[[MPI.Win, Route], Epoch]] = {
    "fence": fence,
    "pscw": pscw,
    "lock": lock,
    LOCK_ALL: lock_all,
}


# A run of a cell: its memory and whoever transfers, made anew for every run.


class Stage(ABC):
    """Whoever transfers, by name. Collective, as its methods are.

    ``layout``: of the ``memory``; ``sent``: messages of this rank in a round; ``ways``: how many of
    them follow each other.
    """

    ways = 1
    memory: Memory

    def __init__(self, comm: MPI.Intracomm, cell: Cell, plan: Plan) -> None:
        self.comm, pattern = comm, PATTERNS[cell.pattern]
        self.route = pattern.route(comm.rank, comm.size, plan.neighbors)
        threads, slots = max(1, cell.threads), self.route.slots
        wanted = plan.messages if pattern.many else 1
        messages = messages_of(wanted, slots, threads, cell.size, plan.window)
        self.layout = Layout(slots, threads, messages, cell.size)
        self.sent = len(self.route.outgoing) * threads * messages
        self.names: Sequence[str] = ()

    @abstractmethod
    def round(self, name: str) -> float:
        """One epoch; returns the seconds that this rank took."""

    def exposed(self) -> AbstractContextManager[object]:
        """Local. What the memory is looked at and written in."""
        return nullcontext()

    def fill(self, turn: int) -> None:
        """Local. New data before a round; a barrier comes after it."""
        with self.exposed():
            self.memory.fill(turn)

    def wrong(self, turn: int) -> int:
        """Local. Messages that did not come as they should; a barrier comes before it."""
        with self.exposed():
            return self.memory.wrong(turn)

    def free(self) -> None:
        """Collective. Give back everything that MPI holds."""
        del self.memory


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
        givers = self.route.outgoing if operation.getting else self.route.incoming
        self.memory = Memory(layout, sends, receives, comm.rank, givers)
        self._epoch = SYNCHRONISATIONS[cell.sync](self._win, self.route)
        active = bool(cell.threads and self.route.outgoing)
        self._team = Team(1 + cell.threads) if active else None
        steps = steps_of(layout, self.route.outgoing)
        flush = PATTERNS[cell.pattern].flush and cell.sync == LOCK_ALL

        def python(part: Sequence[Step]) -> Work:
            call = operation.call(self._win)
            return python_loop(call, self._win, own, layout.size, part, flush=flush)

        self._transfers: dict[str, Work] = {}
        self._enter((THREADS, ALONE) if cell.threads else (THREADS, ""), python, steps)
        if compiled is not None:
            getting = operation.getting
            loop = partial(compiled.loop, self._win, own, layout.size, getting=getting, flush=flush)
            self._enter((RELEASED if cell.threads else "", C), loop, steps)
        self.names = list(self._transfers)

    def _enter(
        self,
        names: tuple[str, str],
        loop: Callable[[Sequence[Step]], Work],
        steps: Sequence[Sequence[Step]],
    ) -> None:
        """Local. One that has a loop of calls for every thread, and one on the main thread alone.

        They have the same names on all ranks; without a name there is none. Where the threads
        work, the main thread only waits.
        """
        threaded, alone = names
        if threaded:
            works = [loop(part) for part in steps]
            whole = partial(self._team.run, [nothing, *works]) if self._team else works[0]
            self._transfers[threaded] = whole
        if alone:
            self._transfers[alone] = loop(list(chain.from_iterable(steps)))

    def round(self, name: str) -> float:
        """Collective. The clock runs from before the epoch is opened until it is closed.

        As in paper 002 the main thread opens and closes it, and between that wakes the threads and
        waits for the last of them; neither their making nor their end is timed.
        """
        transfer, epoch = self._transfers[name], self._epoch
        begin = time.perf_counter()
        epoch.open()
        transfer()
        epoch.close()
        return time.perf_counter() - begin

    @contextmanager
    def exposed(self) -> Iterator[None]:
        """Local. Stores into the window are made under a lock of it."""
        self._win.Lock(self.comm.rank, MPI.LOCK_EXCLUSIVE)
        try:
            yield
        finally:
            self._win.Unlock(self.comm.rank)

    def free(self) -> None:
        """Collective."""
        if self._team is not None:
            self._team.close()
        self._epoch.free()
        self._transfers = {}
        super().free()
        self._win.Free()
