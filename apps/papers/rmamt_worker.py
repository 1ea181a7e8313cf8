"""``onesided bench rma-mt-cells``: a job of ``bench rma-mt``, which measures the cells of a file.

Each goes to another file as soon as it is measured. A cell that takes too long ends the job: a
clock outside of Python's lock prints where every thread is, and leaves.
"""

from __future__ import annotations

import faulthandler
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean, median

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.foreign import ForeignError
from onesided.apps.bench.race import no_garbage_collection
from onesided.apps.bench.store import Part, Store
from onesided.apps.cli.failures import CommandError, user_errors
from onesided.apps.cli.machine import boot, facts
from onesided.apps.cli.options import Options
from onesided.apps.papers.rmamt_cell import (
    MULTIPLE,
    PATTERNS,
    THREADS,
    Cell,
    Outcome,
    Plan,
    Run,
    Task,
)
from onesided.apps.papers.rmamt_compiled import Bytes, Compiled, Memory
from onesided.apps.papers.rmamt_epochs import OneSided, Stage
from onesided.apps.papers.rmamt_rows import row
from onesided.collectives import agreed

# A run of the baseline: sends and receives.


class TwoSided(Stage):
    """The baseline: one thread that sends and receives."""

    def __init__(self, comm: MPI.Intracomm, cell: Cell, plan: Plan) -> None:
        super().__init__(comm, cell, plan)
        layout = self.layout
        sends: Bytes = np.zeros(layout.nbytes, np.uint8)
        receives: Bytes = np.zeros(layout.nbytes, np.uint8)
        many = PATTERNS[cell.pattern].many
        self._call: Callable[[], None] = self._together if many else self._there_and_back
        self.ways = 1 if many else 2
        givers = self.route.incoming if many else [*self.route.outgoing, *self.route.incoming]
        self.memory = Memory(layout, sends, receives, comm.rank, givers)
        if not many:
            self.sent = 1  # both sides send
        views = sends.data, receives.data
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


# Measure a cell: some runs of interleaved rounds, and a look at every message.

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
        now: Stage
        if cell.is_two_sided:
            now = TwoSided(comm, cell, plan)
        else:
            now = OneSided(comm, cell, plan, compiled)
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


def _checked(comm: MPI.Intracomm, now: Stage, name: str, turn: int) -> int:
    """Collective. One round with new data; returns how many messages were wrong on this rank."""
    comm.Barrier()
    now.fill(turn)
    comm.Barrier()
    now.round(name)
    comm.Barrier()
    return now.wrong(turn)


def _times(comm: MPI.Intracomm, now: Stage, plan: Plan) -> NDArray[np.float64]:
    """Collective. Seconds of rounds by the slowest rank, a column for each that takes part."""
    with no_garbage_collection():
        rows = [_row(comm, now, number) for number in range(LEAST)]
        taken: float = comm.allreduce(min(sum(row) for row in rows), op=MPI.MAX)
        rounds = min(plan.iterations, int(plan.seconds / max(taken, 1e-9)))
        rows += [_row(comm, now, number) for number in range(LEAST, rounds)]
    times = np.array(rows)
    comm.Allreduce(MPI.IN_PLACE, times, op=MPI.MAX)
    return times


def _row(comm: MPI.Intracomm, now: Stage, number: int) -> list[float]:
    """Collective. One round of each; rounds alternate their order."""
    places = range(len(now.names))
    taken = [0.0] * len(places)
    for place in places if number % 2 == 0 else reversed(places):
        comm.Barrier()
        taken[place] = now.round(now.names[place])
    return taken


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command."""
    with user_errors(), agreed(comm):
        task = Task.read(Path(options.cells))
    store = Store(Path(options.output))
    machine = facts(comm)
    if comm.rank == 0:
        store.add_machine(machine)
    share_cores(comm)
    compiled = _compiled(comm, task.library)
    for cell in task.cells:
        found = _measured(comm, cell, task.plan, compiled)
        if comm.rank == 0:
            store.add(cell.name, Part([row(cell, found)]))
        comm.Barrier()
    return 0


def _measured(comm: MPI.Intracomm, cell: Cell, plan: Plan, compiled: Compiled | None) -> Outcome:
    """Collective. A cell that takes too long ends the process."""
    ranks = PATTERNS[cell.pattern].ranks(comm.size)
    if ranks != comm.size:
        raise CommandError(f"{cell.pattern} takes {ranks} ranks, the job has {comm.size}")
    reason = refusal(cell)
    if reason:
        return Outcome(kind="error", reason=reason)
    faulthandler.dump_traceback_later(plan.limit, exit=True)
    try:
        return outcome(comm, cell, plan, compiled)
    finally:
        faulthandler.cancel_dump_traceback_later()


def _compiled(comm: MPI.Intracomm, path: str) -> Compiled | None:
    """Collective. The loop in C, where every rank can load it."""
    found = None
    if path:
        with suppress(ForeignError):
            found = Compiled(Path(path))
    return found if comm.allreduce(found is not None, op=MPI.LAND) else None


# Where threads run: the ranks of a host share its cores, each has its own.
#
# Without this the system may wake a thread on the core where another rank waits busily, and a round
# takes twice as long, or not, from one run to the next.

#: Open MPI binds ranks to single cores where there are few of them; with this it leaves them free.
FREE = ("PRTE_MCA_hwloc_default_binding_policy", "OMPI_MCA_hwloc_base_binding_policy")


def unbound(environment: Mapping[str, str]) -> dict[str, str]:
    """Local. Variables for a job whose launcher does not bind; what is set already stays."""
    return {name: "none" for name in FREE if name not in environment}


def share_cores(comm: MPI.Intracomm) -> None:
    """Collective. This process, and threads that it makes from now on, keep to a part of the cores.

    Nothing changes where a host has more ranks than cores, or where ranks are bound already.
    """
    mine = (boot(), sorted(os.sched_getaffinity(0)))
    everyone = comm.allgather(mine)
    beside = [rank for rank, (host, _) in enumerate(everyone) if host == mine[0]]
    usable = [everyone[rank][1] for rank in beside]
    share = part(usable, beside.index(comm.rank))
    if share:
        os.sched_setaffinity(0, share)


def part(usable: Sequence[Sequence[int]], place: int) -> list[int]:
    """Local. The cores of one rank of a host, of those that each of its ranks may use.

    Empty where it keeps what it has.
    """
    first, count = usable[0], len(usable)
    if any(each != first for each in usable) or len(first) < count:
        return []
    return list(first[place * len(first) // count : (place + 1) * len(first) // count])
