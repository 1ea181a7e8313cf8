"""The operations, and the loops that call them: in Python by mpi4py, and in C."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from mpi4py import MPI

from onesided.apps.rmamt.cell import ALONE, RELEASED, THREADS, C
from onesided.apps.rmamt.compiled import Compiled
from onesided.apps.rmamt.gang import Gang, Work
from onesided.apps.rmamt.layout import Bytes, Layout

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
