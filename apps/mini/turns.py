"""Runs of several ways in turns, with the seconds of their parts.

A run of a mini-application takes a second or more, and is not repeated for the clock. Ways take
turns, in alternating order, so that what else a machine does meets all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from mpi4py import MPI

from onesided.apps.evidence.stopwatch import Stopwatch
from onesided.apps.timing import no_garbage_collection


def _nothing() -> None:
    """Local."""


@dataclass(frozen=True)
class Turn:
    """What is run, and the stopwatches of parts of it, by name.

    ``before`` and ``after`` are called around every run, and not timed.
    """

    call: Callable[[], object]
    parts: Mapping[str, Stopwatch] = field(default_factory=dict)
    before: Callable[[], object] = _nothing
    after: Callable[[], object] = _nothing


@dataclass(frozen=True)
class Taken:
    """Seconds of every run, by the slowest rank; those of parts are means over the ranks."""

    times: list[float]
    parts: dict[str, list[float]]


def in_turns(
    comm: MPI.Intracomm, turns: Sequence[Turn], runs: int, tick: Callable[[], object] = _nothing
) -> list[Taken]:
    """Collective. ``runs`` runs of each, from a barrier on; the same numbers on every rank."""
    calls = [_lapped(turn) for turn in turns]
    times = np.zeros((len(turns), runs))
    order = list(range(len(turns)))
    with no_garbage_collection():
        for run in range(runs):
            for index in order:
                turns[index].before()
                comm.Barrier()
                began = time.perf_counter()
                calls[index]()
                times[index, run] = time.perf_counter() - began
                turns[index].after()
                tick()
            order.reverse()
    comm.Allreduce(MPI.IN_PLACE, times, op=MPI.MAX)
    return [Taken(row.tolist(), _parts(comm, turn)) for row, turn in zip(times, turns, strict=True)]


def _lapped(turn: Turn) -> Callable[[], object]:
    """Local. The call, in which every stopwatch has a lap of its own."""
    call = turn.call
    for stopwatch in turn.parts.values():
        stopwatch.laps.clear()
        call = stopwatch.lapped(call)
    return call


def _parts(comm: MPI.Intracomm, turn: Turn) -> dict[str, list[float]]:
    """Collective. Seconds of the parts in every run, the means over the ranks."""
    found = {}
    for name, stopwatch in turn.parts.items():
        total = np.array(stopwatch.laps)
        comm.Allreduce(MPI.IN_PLACE, total)
        found[name] = (total / comm.size).tolist()
    return found
