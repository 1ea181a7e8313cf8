"""``onesided bench rma-mt-cells``: a job of ``bench rma-mt``, which measures the cells of a file.

Each goes to another file as soon as it is measured. A cell that takes too long ends the job: a
clock outside of Python's lock prints where every thread is, and leaves.
"""

from __future__ import annotations

import faulthandler
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mpi4py import MPI

from onesided.apps.failures import CommandError, user_errors
from onesided.apps.foreign import ForeignError
from onesided.apps.machine import facts
from onesided.apps.rmamt.cell import Cell, Outcome
from onesided.apps.rmamt.compiled import Compiled
from onesided.apps.rmamt.cores import share_cores
from onesided.apps.rmamt.measuring import outcome, refusal
from onesided.apps.rmamt.patterns import PATTERNS
from onesided.apps.rmamt.plan import Task
from onesided.apps.store import Store
from onesided.collectives import agreed

REFUSED = "error"


def run(comm: MPI.Intracomm, options: Namespace) -> int:
    """Collective. The command."""
    with user_errors(), agreed(comm):
        task = Task.read(Path(options.cells))
    store = Store(Path(options.output), Cell, Outcome)
    machine = facts(comm)
    if comm.rank == 0:
        store.add_machine(machine)
    share_cores(comm)
    compiled = _compiled(comm, task.library)
    for cell in task.cells:
        found = _measured(comm, cell, task, compiled)
        if comm.rank == 0:
            store.add(cell, found)
        comm.Barrier()
    return 0


def _measured(comm: MPI.Intracomm, cell: Cell, task: Task, compiled: Compiled | None) -> Outcome:
    """Collective."""
    ranks = PATTERNS[cell.pattern].ranks(comm.size)
    if ranks != comm.size:
        raise CommandError(f"{cell.pattern} takes {ranks} ranks, the job has {comm.size}")
    reason = refusal(cell)
    if reason:
        return Outcome(kind=REFUSED, reason=reason)
    with _watched(task.plan.limit):
        return outcome(comm, cell, task.plan, compiled)


def _compiled(comm: MPI.Intracomm, path: str) -> Compiled | None:
    """Collective. The loop in C, where every rank can load it."""
    found = None
    if path:
        try:
            found = Compiled(Path(path))
        except ForeignError:
            found = None
    return found if comm.allreduce(found is not None, op=MPI.LAND) else None


@contextmanager
def _watched(limit: float) -> Iterator[None]:
    """Local. The process ends if the block takes longer."""
    faulthandler.dump_traceback_later(limit, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
