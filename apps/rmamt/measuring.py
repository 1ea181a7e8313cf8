"""Measure a cell: some runs of interleaved rounds, and a look at every message."""

from __future__ import annotations

import gc
from statistics import fmean, median

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.rmamt.cell import MULTIPLE, Cell, Outcome, Run
from onesided.apps.rmamt.compiled import Compiled
from onesided.apps.rmamt.epochs import OneSided
from onesided.apps.rmamt.plan import Plan
from onesided.apps.rmamt.stage import Stage
from onesided.apps.rmamt.twosided import TwoSided

WRONG = "wrong data"
LEAST = 2  # rounds of a run


def refusal(cell: Cell) -> str:
    """Local, alike on all ranks. Why a cell cannot be measured by this job; empty where it can."""
    if cell.level == MULTIPLE and MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        return "it needs the thread level multiple, this MPI gives less"
    if cell.threads and cell.level != MULTIPLE:
        return f"{cell.threads} threads need the thread level multiple, not {cell.level}"
    return ""


def outcome(comm: MPI.Intracomm, cell: Cell, plan: Plan, compiled: Compiled | None) -> Outcome:
    """Collective. All runs of a cell, the same on every rank.

    There is no round to warm up: caches are as cold as the data were left. The data of the first
    turn are those of all timed rounds; after these everyone that took part sends others once more.
    """
    found, turn = Outcome(), 0
    for number in range(plan.runs):
        now = _stage(comm, cell, plan, compiled)
        turn += 1
        now.fill(turn)
        comm.Barrier()
        times = _times(comm, now, plan)
        comm.Barrier()
        wrong = now.wrong(turn)
        if number == plan.runs - 1:
            for name in now.names:
                turn += 1
                wrong += _checked(comm, now, name, turn)
        found.wrong += comm.allreduce(wrong)
        found.messages = comm.allreduce(now.sent)
        found.nbytes, found.ways = found.messages * cell.size, now.ways
        found.rounds += len(times)
        for name, column in zip(now.names, times.T.tolist(), strict=True):
            found.loops.setdefault(name, []).append(Run(fmean(column), median(column)))
        now.free()
    if found.wrong:
        found.kind, found.reason = WRONG, f"{found.wrong} messages came with other data"
    return found


def _stage(comm: MPI.Intracomm, cell: Cell, plan: Plan, compiled: Compiled | None) -> Stage:
    """Collective. What runs in a cell."""
    if cell.is_two_sided:
        return TwoSided(comm, cell, plan)
    return OneSided(comm, cell, plan, compiled)


def _checked(comm: MPI.Intracomm, now: Stage, name: str, turn: int) -> int:
    """Collective. One round with new data; returns how many messages were wrong on this rank."""
    comm.Barrier()
    now.fill(turn)
    now.prepare(name)
    comm.Barrier()
    now.round(name)
    comm.Barrier()
    return now.wrong(turn)


def _times(comm: MPI.Intracomm, now: Stage, plan: Plan) -> NDArray[np.float64]:
    """Collective. Seconds of rounds by the slowest rank, a column for each that takes part."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        rows = [_row(comm, now, number) for number in range(LEAST)]
        taken: float = comm.allreduce(min(sum(row) for row in rows), op=MPI.MAX)
        rows += [_row(comm, now, number) for number in range(LEAST, _rounds(plan, taken))]
    finally:
        if was_enabled:
            gc.enable()
    times = np.array(rows)
    comm.Allreduce(MPI.IN_PLACE, times, op=MPI.MAX)
    return times


def _rounds(plan: Plan, taken: float) -> int:
    """How many there are, if one takes so long."""
    return max(LEAST, min(plan.iterations, int(plan.seconds / max(taken, 1e-9))))


def _row(comm: MPI.Intracomm, now: Stage, number: int) -> list[float]:
    """Collective. One round of each; rounds alternate their order."""
    places = range(len(now.names))
    taken = [0.0] * len(places)
    for place in places if number % 2 == 0 else reversed(places):
        name = now.names[place]
        now.prepare(name)
        comm.Barrier()
        taken[place] = now.round(name)
    return taken
