"""The conformance table at the end of a program: table_end.py STATE END.

Requests of every row and by every method are left inactive, active or broken, or are lost, with the
arrays that Wait has returned; "dropped": they are broken, and then lost. "late": they are active on
all ranks but the last, which comes long afterwards and has right data; where they are inactive it
comes as late. MPI is finalized by hand, and then their verbs raise, or by the exit functions.
Afterwards the arrays are as they were, and plans can be destroyed, or dropped. By hand, memory of
the node is in files with names.
"""

import atexit
import gc
import os
import sys
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest

kept = []  # a cell, its array, and a copy of that
subjects = []
plans = []


def look():
    """Every array is where it was, and plans go: the last one is dropped."""
    for plan in plans[:-1]:
        plan.destroy()
    del plan, plans[:]
    gc.collect()
    for cell, array, copy in kept:
        assert np.array(array).tobytes() == copy.tobytes(), cell
    if "dropped" in sys.argv:  # messages to what was broken may be on their way
        assert Context._all, "memory was freed"
    print(f"{len(kept)} arrays are as they were", flush=True)


atexit.register(look)  # before the library has done so, so after its own functions

from mpi4py import MPI  # noqa: E402

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / folder) for folder in ("", "mpi")]

from jobs import Job  # noqa: E402
from subjects import make  # noqa: E402
from table import ROWS, Length, cells  # noqa: E402

from onesided.collectives import (  # noqa: E402
    Alltoallv_init,
    Grid,
    OnesidedError,
    RequestError,
    node_memory,
)
from onesided.collectives.context import Context  # noqa: E402
from onesided.pencilfft import PFFT, Subcomm, newDistArray  # noqa: E402

LATE = 6  # seconds, longer than a rank tries to complete its rounds before it looks for others
#: States in which arrays may have been written again.
CHANGED = ("active", "late", "broken", "dropped")


class Unlucky(Exception):
    """What a hook raises."""


def unlucky():
    raise Unlucky


def leave(subject, state, rank):
    """In this state, where what has been started can be withdrawn or ends by itself."""
    requests = subject.requests
    if any(request.method.startswith("mpi") for request in requests):
        return
    if state == "late" and subject.cell.any_order:
        subject.fill(2)
        subject.request.Start()
        if rank == subject.size - 1:
            subject.check(2, subject.request.Wait())
    elif state == "active":
        subject.fill(2)
        subject.request.Start()
    elif state in ("broken", "dropped") and len(requests) == 1 and rank == 0:
        request = requests[0]
        request._hooked, request._after_start = 1, unlucky
        subject.fill(2)
        try:
            request.Start()
        except Unlucky:
            assert request.state == "broken"


def refused(subject):
    for request in subject.requests:
        for verb in (request.Start, request.Wait, request.Test, request.Get_status):
            try:
                verb()
            except RequestError:
                continue
            raise AssertionError(f"{verb.__name__} of {subject.cell}")


def calls_of_grids(comm):
    """Calls of a grid that has planned one of each, and of one that compares in debug mode."""
    for debug in ("0", "1"):
        os.environ["ONESIDED_DEBUG"] = debug
        grid, fine = (Grid(comm, (n * comm.size, n), 1, periodic=True) for n in (4, 8))
        os.environ["ONESIDED_DEBUG"] = "0"
        u, w, v = grid.zeros(), grid.zeros(), fine.zeros()
        for call in (partial(grid.update, u), partial(grid.redistribute, u, grid, w),
                     partial(grid.refine, u, fine, v), partial(fine.coarsen, v, grid, u, order=1),
                     partial(grid.migrate, [], np.ones((1, 2)))):
            call()
            yield call
        for call in (grid.redistribute, grid.refine, fine.coarsen):
            yield partial(call, v if call == fine.coarsen else u,
                          {grid.refine: fine}.get(call, grid))


def no_files(*_):
    raise OSError("no files without names here")


def lose():
    """What nobody has any more."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def main(state, end):
    comm = MPI.COMM_WORLD
    if end == "by hand":
        node_memory._made = no_files
    own = MPI.COMM_SELF.Dup()
    plans.extend(PFFT(over, (4, 5, 6), effort="estimate")
                 for over in (comm, Subcomm(comm, (0, 0, 1)), own))
    own.Free()
    for plan in plans:
        plan.forward(newDistArray(plan, False))
    grid_calls = list(calls_of_grids(comm))
    job = Job(comm.size)
    lengths = (Length(0, 3), Length(1 << 17, 1))
    for cell in cells("", lengths=lengths)(job):
        subject = make(comm, cell)
        subject.round(0)
        subject.fill(1)
        subject.request.Start()
        array = subject.request.Wait()
        array = np.zeros(0) if array is None or state in CHANGED else array
        kept.append((cell, array, np.array(array)))
        if state != "lost" or cell.row not in ROWS:
            subjects.append(subject)
    del subject
    lose()
    if state in ("late", "inactive") and comm.rank == comm.size - 1:
        time.sleep(LATE)
    for subject in subjects:
        leave(subject, state, comm.rank)
    if state == "dropped":
        subjects.clear()
        del subject
        lose()
    if end == "by hand":
        MPI.Finalize()
        with pytest.raises(OnesidedError, match="MPI is not initialized, or has been finalized"):
            Alltoallv_init(comm, np.zeros(1), None, method=cell.method)
        for subject in subjects:
            refused(subject)
        for plan in plans[:-1]:
            plan.destroy()
        for call in grid_calls:
            with pytest.raises(OnesidedError):
                call()


if __name__ == "__main__":
    main(*sys.argv[1:])
