"""The conformance table: what goes wrong on one rank or on all, and what it leaves behind."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from cases import parameters, ranks
from cases_table_order import filling
from columns import Injected, raising_at
from errors import agreed
from filled_data import Turn
from subjects import make
from table import (
    BOXES,
    OTHERS,
    REDUCTIONS,
    ROOTED,
    ROWS,
    Cell,
    Length,
    any_order,
    cells,
    known,
)

from onesided.collectives import MismatchError, PatternError, RequestError, free

LENGTHS = (Length(0, 3), Length(1 << 17, 1))
COLLECTIVE = [*ROWS, "halo", "grid"]


@ranks(at_least=2)
@parameters(cell=cells(
    "count", "type", "method", "root", lengths=(Length(0, 3),),
    rows=[row for row in COLLECTIVE if row not in ("Barrier", "Alltoallv of nothing")],
    memory=("plain",)))  # fmt: skip
def case_one_rank_is_mistaken(comm, cell, options):
    """Initialization raises on all ranks alike, and the next one works."""
    last, wrong = comm.rank == comm.size - 1, cell.way
    if comm.size == 2:
        cell = replace(cell, root=0)  # the first rank has empty blocks, and the mistake no partner
    type_of = {"i8": "c16", "f8": "c16", "c16": "i8", "24 bytes in order": "c16 PROD"}
    other_type = {"kind": type_of[cell.kind], "length": Length(16 * 3, 0)}
    if cell.row in REDUCTIONS:
        other_type = {"kind": "f4 SUM"}
    mistaken = {
        "count": {"length": Length(0, 6)},
        "type": other_type,
        "method": {"method": "p2p" if cell.method != "p2p" else "rma-notify"},
        "root": {"root": 1 - min(cell.root, 1)},
    }[wrong]
    if wrong == "root" and cell.row not in ROOTED:
        pytest.skip("no root")
    if wrong == "method" and (cell.row in OTHERS or mistaken["method"] not in known(cell.row)):
        pytest.skip("no other method")
    if cell.row in BOXES and wrong == "count":
        pytest.skip("boxes say how many")
    if cell.row == "Alltoallv, alone":
        pytest.skip("no rank has anything for another")
    other = replace(cell, **mistaken) if last else cell
    differs = wrong in ("method", "root") or cell.row in REDUCTIONS  # else a pair of ranks is named
    kind, word = (MismatchError, " is in ") if differs else (PatternError, " expects ")
    agreed(comm, kind, lambda: make(comm, other, options), word)
    subject = make(comm, cell, options)
    subject.round(1)
    subject.free()


@parameters(cell=cells("", rows=COLLECTIVE, keep=any_order, lengths=LENGTHS))
def case_free_while_active_on_one_rank(comm, cell, options):
    """Every rank is told, nothing has changed, and the round can be completed."""
    subject = make(comm, cell, options)
    request = subject.request
    for turn, early in enumerate((0, comm.size - 1)):
        subject.fill(turn)
        if comm.rank == early:
            request.Start()
        told = None
        try:
            request.Free()
        except RequestError as error:
            told = str(error)
        assert all(comm.allgather(told)), "not every rank was told"
        assert request.state == ("active" if comm.rank == early else "inactive")
        if comm.rank != early:
            request.Start()
        subject.check(turn, request.Wait())
    subject.round(7)
    subject.free()
    assert request.state == "freed"


@parameters(cell=cells(
    "", lengths=(Length(0, 3),), memory=("window",), rows=[*ROWS, "halo", "partitioned"],
    keep=lambda cell: cell.row != "Barrier" and not cell.method.startswith("mpi")))  # fmt: skip
def case_memory_in_use_is_not_freed(comm, cell, options):
    """By a request of all ranks; it goes on, and then they can."""
    if cell.row == "Bcast" and comm.size == 1:
        pytest.skip("nobody receives")
    subject = make(comm, cell, options)
    agreed(comm, RequestError, lambda: free(subject.window))
    subject.round(1)
    window, subject.window = subject.window, None
    subject.free()
    free(window)
    with pytest.raises(RequestError, match="empty"):
        free(window)


# -- no memory -------------------------------------------------------------------------------------

#: Makers of arrays, and what raises when there is no room for one: NumPy has a class of its own.
MAKERS = ["empty", "empty_like", "zeros"]
SCARCE = {"Python's": lambda: bytearray(1 << 62), "NumPy's": functools.partial(np.zeros, 1 << 59)}


@contextlib.contextmanager
def no_memory(maker, at, whose):
    """MemoryError of call number ``at`` of a maker of arrays by the package; how often."""
    calls, raised, original = [0], [0], getattr(np, maker)

    def scarce(*arguments, **options):
        made = original(*arguments, **options)
        ours = sys._getframe(1).f_globals.get("__name__", "").startswith("onesided")
        calls[0] += ours and (maker != "zeros" or made.size > 1)  # a word is what ranks agree by
        if calls[0] == at + 1 and not raised[0]:
            raised[0] += 1
            SCARCE[whose]()
        return made

    setattr(np, maker, scarce)
    try:
        yield raised
    finally:
        setattr(np, maker, original)


@ranks(at_least=2)
@parameters(cell=cells(
    *(f"{maker} {whose}" for maker in MAKERS for whose in SCARCE), lengths=(Length(0, 3),),
    keep=lambda cell: any_order(cell) and cell.method != "auto", memory=("none", "plain", "odd"),
    rows=["Alltoallv", "Allgather", "Gatherv", "Bcast", "Allreduce", "Reduce_scatter_block",
          "boxes", "halo"]))  # fmt: skip
def case_one_rank_has_no_memory(comm, cell, options):
    """One call after the other of a maker of arrays fails, until initialization makes none more:
    all ranks succeed, or all raise, and the next initialization works."""
    maker, whose = cell.way.split()
    for at in range(40):
        made, error, raised = None, None, [0]
        with contextlib.ExitStack() as stack:
            if comm.rank == comm.size - 1:
                raised = stack.enter_context(no_memory(maker, at, whose))
            try:
                made = make(comm, cell, options)
            except MemoryError as problem:
                error = problem
        told = comm.allgather(None if error is None else f"{type(error).__name__}: {error}")
        assert all(told) or not any(told), f"not agreed: {told}"
        injected = comm.allreduce(raised[0])
        assert injected or not any(told), f"nothing was injected, yet {told}"
        if made is not None:
            made.free()
        after = make(comm, cell, options)
        after.round(at)
        after.free()
        if not injected:
            if not at:
                pytest.skip(f"it makes no arrays by {maker}")
            break


# -- exceptions ------------------------------------------------------------------------------------


AT = [f"{verb} {number}" for verb in ("Start", "Wait") for number in (0, 1, 2, 3, 5, 8)]


@parameters(cell=cells(
    *AT, lengths=LENGTHS,
    rows=["Alltoallv", "Alltoallw", "Allgather", "Bcast", "Allreduce", "Scan", "boxes", "halo"],
))  # fmt: skip
def case_an_exception_at_every_hook(comm, cell, options):
    """On all ranks: the round has not begun, or is whole, or the request is broken and says so."""
    subject = make(comm, cell, options)
    request = subject.request
    verb, number = cell.way.split()[0], int(cell.way.split()[1])
    subject.round(0)
    subject.fill(1)
    raised = False
    try:
        if verb == "Start":
            raising_at(number, request.Start)
        else:
            request.Start()
            raising_at(number, request.Wait)
    except Injected:
        raised = True
    except RequestError as error:
        raised = True
        assert isinstance(error.__cause__, Injected), error
    states = comm.allgather((raised, request.state))
    if not any(raised for raised, _ in states):
        if request.active:
            request.Wait()
        subject.check(1, request.recvbuf)
        subject.round(2)
        subject.free()
    elif all(state == "inactive" for _, state in states):
        subject.round(2)
        subject.free()
    elif any(state == "broken" for _, state in states):
        if request.state == "broken":
            with pytest.raises(RequestError, match="broken"):
                request.Wait()
        subject.free()  # the round is given up on all ranks
    elif all(state == "active" for _, state in states):
        subject.check(1, request.Wait())
        subject.free()
    else:
        with pytest.raises(RequestError):  # it can be completed
            request.Free()


def withdrawn(cell):
    """What MPI itself has started cannot be withdrawn."""
    return any_order(cell) and cell.method not in ("mpi-persistent", "auto")


@ranks(at_least=2)
@parameters(cell=cells("", keep=withdrawn, rows=COLLECTIVE, lengths=LENGTHS))
def case_an_interrupt_in_wait(comm, cell, options):
    """Ctrl-C while a rank waits for one that does not come: broken, freed, and the next works; so
    does a request beside it that is active meanwhile."""
    beside = make(comm, Cell("Alltoall", "p2p"), options)
    beside.fill(0)
    beside.request.Start()
    subject = make(comm, cell, options)
    subject.round(0)
    subject.fill(1)
    earlier = signal.signal(signal.SIGUSR2, signal.default_int_handler)
    try:
        if comm.rank == 0:
            subject.request.Start()
            comm.Barrier()
            timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR2))
            timer.start()
            try:
                subject.request.Wait()
                time.sleep(0.2)
            except KeyboardInterrupt:
                pass
            timer.join()
        else:
            comm.Barrier()
            time.sleep(0.1)
    finally:
        signal.signal(signal.SIGUSR2, earlier)
    beside.check(0, beside.request.Wait())
    states = comm.allgather(subject.request.state)
    assert set(states[1:]) == {"inactive"}
    # who needs nobody has completed its round; on a busy machine Wait had not begun
    assert states[0] in ("broken", "inactive", "active")
    if subject.request.state == "broken":
        with pytest.raises(RequestError, match="broken"):
            subject.request.Wait()
    if states[0] != "broken":
        if comm.rank:
            subject.request.Start()
        if comm.rank or states[0] == "active":
            subject.check(1, subject.request.Wait())
        subject.round(2)
    subject.free()
    beside.round(1)
    beside.free()
    other = make(comm, cell, options)
    other.round(3)
    other.free()


@parameters(method=filling, number=[0, 1, 2, 3, 5, 8], verb=["first Open", "Open", "Ready", "code"])
def case_an_exception_in_a_round_that_is_filled(comm, method, number, verb):
    """On all ranks, in a verb or in the caller's own code: the request can be freed, or goes on."""
    turned = Turn(comm, method, "window", cuts=2)
    request, raised = turned.request, False
    if verb != "first Open":
        turned.begin(0)
        turned.check(0, request.Wait())
    try:
        if "Open" in verb:
            opened = raising_at(number, request.Open)
        else:
            opened = request.Open()
        if opened and verb == "Ready":
            raising_at(number, lambda: request.Ready(0))
    except Injected:
        raised, opened = True, False
    states = comm.allgather((raised, opened, request.state))
    again = all(state == "inactive" for _, _, state in states)
    if again:
        for turn in range(1, 4):
            turned.begin(turn)
            turned.check(turn, request.Wait())
    turned.free()  # of what is broken or has been given up, too
    after = Turn(comm, method, "window", cuts=2)
    for turn in range(3):
        after.begin(turn)
        after.check(turn, after.request.Wait())
    after.free()
