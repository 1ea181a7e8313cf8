"""What several columns of the conformance table do."""

from __future__ import annotations

import sys
import threading
from typing import Any

from errors import agreed
from mpi4py import MPI
from subjects import Subject, make
from table import REDUCTIONS, Cell

from onesided.collectives import (
    Get_status_all,
    Get_status_any,
    Get_status_some,
    Testall,
    Testany,
    Testsome,
    UnsupportedError,
)

TAG = 7
LATE = 0.01  # seconds, more than a time slice
VERBS = ["Test", "Testall", "Testany", "Testsome", "Get_status", "Get_status_all",
         "Get_status_any", "Get_status_some"]  # fmt: skip


def looked(subject: Subject, verb: str) -> bool:
    """One look at a subject by one of the verbs; whether its round has ended."""
    requests, active = subject.requests, subject.request.active
    several = {"Testall": Testall, "Testany": Testany, "Testsome": Testsome,
               "Get_status_all": Get_status_all, "Get_status_any": Get_status_any,
               "Get_status_some": Get_status_some}  # fmt: skip
    if verb in several:
        found = several[verb](requests)
    else:
        found = all([getattr(request, verb)() for request in requests])
    if verb.startswith("Get_status"):
        assert subject.request.active == active, "Get_status has completed a round"
    if verb.startswith("Get_status") and found not in (False, [], (MPI.UNDEFINED, False)):
        return all([request.Test() for request in requests])
    return not any(request.active for request in requests)


def made(comm: MPI.Intracomm, cell: Cell, options: Any) -> Subject | None:
    """What a cell names; None where it is refused as it has to be: below MPI_THREAD_MULTIPLE, and
    where the order of the ranks cannot be kept."""
    if cell.refused and comm.size > 2:
        agreed(comm, UnsupportedError, lambda: make(comm, cell, options))
        return None
    if MPI.Query_thread() == MPI.THREAD_MULTIPLE:
        return make(comm, cell, options)
    try:
        return make(comm, cell, options)
    except UnsupportedError as error:
        relayed = cell.row in (*REDUCTIONS, "Barrier", "Bcast") and cell.method == "p2p"
        assert relayed or cell.method.startswith("rma"), error
        assert "MPI_THREAD_MULTIPLE" in str(error), error
        return None


def together(*workers):
    """Run the functions in threads; the first exception is raised here."""
    errors = []

    def guarded(worker):
        try:
            worker()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class Injected(Exception):
    """What an unlucky program raises."""


def raising_at(number: int, call: Any) -> Any:
    """Call, with an exception at the n-th Python function of the package that it enters."""
    left = [number]

    def look(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and "onesided" in frame.f_globals.get("__name__", ""):
            left[0] -= 1
            if left[0] < 0:
                sys.setprofile(None)
                raise Injected

    sys.setprofile(look)
    try:
        return call()
    finally:
        sys.setprofile(None)
