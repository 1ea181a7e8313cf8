"""What several columns of the conformance table do."""

from __future__ import annotations

import sys
from typing import Any

from mpi4py import MPI
from subjects import Subject, make
from table import REDUCTIONS, Cell

from onesided.collectives import (
    Get_status_all,
    Get_status_any,
    Get_status_some,
    OnesidedError,
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


def agreed(comm: MPI.Intracomm, call: Any, kind: Any = OnesidedError) -> None:
    """The call raises this kind of error, with the same words on every rank."""
    text = ""
    try:
        call()
    except kind as error:
        text = f"{type(error).__name__}: {error}"
    texts = comm.allgather(text)
    assert texts[0], f"nothing was raised on some rank: {texts}"
    assert len(set(texts)) == 1, texts


def made(comm: MPI.Intracomm, cell: Cell, options: Any) -> Subject | None:
    """What a cell names; None where it is refused as it has to be: below MPI_THREAD_MULTIPLE, and
    where the order of the ranks cannot be kept."""
    if cell.refused and comm.size > 2:
        agreed(comm, lambda: make(comm, cell, options), UnsupportedError)
        return None
    if MPI.Query_thread() == MPI.THREAD_MULTIPLE:
        return make(comm, cell, options)
    try:
        subject = make(comm, cell, options)
    except UnsupportedError as error:
        relayed = cell.row in (*REDUCTIONS, "Barrier", "Bcast") and cell.method == "p2p"
        assert relayed or cell.row == "passive" or cell.method.startswith("rma"), error
        assert "MPI_THREAD_MULTIPLE" in str(error), error
        return None
    assert cell.row != "passive", "its thread calls MPI"
    return subject


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
