"""The conformance table under ONESIDED_DEBUG=1: poison, changed buffers, calls in other orders."""

from __future__ import annotations

import numpy as np
import pytest
from cases import parameters, ranks
from errors import agreed
from subjects import make
from table import EXCHANGES, ROWS, Length, cells, strict

from onesided.collectives import MismatchError, PatternError, RequestError

LENGTHS = (Length(0, 3), Length(1 << 15, 1))
SENDERS = [row for row in EXCHANGES if row not in ("Bcast", "Alltoallv of nothing")]


@ranks(at_least=2)
@parameters(cell=cells("", rows=["Alltoall", "Allgather", "boxes"], memory=("none",),
                       lengths=LENGTHS,
                       keep=lambda cell: not cell.method.startswith("mpi")))  # fmt: skip
def case_what_is_given_up_is_poisoned(comm, cell, options):
    """The slot of the round before, at Start."""
    subject = make(comm, cell, options)
    previous = None
    for turn in range(6):
        subject.fill(turn)
        subject.request.Start()
        if previous is not None and turn % 2 and previous.size:
            assert set(np.ascontiguousarray(previous).tobytes()) == {0xFF}
        if turn % 2:  # looked at by all before anybody who runs ahead may write into it again
            comm.Barrier()
        previous = subject.request.Wait()
        subject.check(turn, previous)
    subject.free()


@parameters(cell=cells("", rows=SENDERS, lengths=LENGTHS, memory=("none", "plain")))
def case_a_changed_send_buffer_is_noticed(comm, cell, options):
    subject = make(comm, cell, options)
    subject.fill(1)
    subject.request.Start()
    subject.scribble()
    changed = subject.send is not None and sum(subject.send.counts) > 0
    if changed:
        with pytest.raises(RequestError, match="send buffer was changed"):
            subject.request.Wait()
        assert subject.request.state == "broken"
    else:
        subject.request.Wait()
    comm.Barrier()
    subject.free()


@ranks(at_least=2)
@parameters(cell=cells("", rows=ROWS, keep=strict, lengths=LENGTHS))
def case_different_orders_become_an_error(comm, cell, options):
    a = make(comm, cell, options)
    b = make(comm, cell, options, a)
    agreed(comm, MismatchError, (a if comm.rank == 0 else b).request.Start)
    a.round(1)
    b.round(1)
    b.free()
    a.free()


@ranks(at_least=2)
@parameters(cell=cells("", rows=ROWS, lengths=LENGTHS), seconds=["5", "abc"])
def case_debugging_on_some_ranks(comm, cell, options, monkeypatch, seconds):
    """It compares in Start, so it is refused before there is a request; and so are seconds that
    are none."""
    error, words = MismatchError, "ONESIDED_DEBUG=1"
    if seconds != "5":
        error, words = PatternError, "ONESIDED_DEBUG_SECONDS is a number of seconds"
    if comm.rank == 0 and seconds == "5":
        monkeypatch.delenv("ONESIDED_DEBUG")
    elif comm.rank == 0:
        monkeypatch.setenv("ONESIDED_DEBUG_SECONDS", seconds)
    agreed(comm, error, lambda: make(comm, cell, options), words)
