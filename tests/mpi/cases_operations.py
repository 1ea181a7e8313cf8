"""Operations beside the table: roots, what cannot be in place, and a topology with ends."""

from __future__ import annotations

import itertools

import numpy as np
from cases import parameters, ranks
from mpi4py import MPI

from onesided.collectives import (
    MismatchError,
    OnesidedError,
    PatternError,
    methods,
)
from onesided.collectives.testing import OPERATIONS, Trial


@parameters(operation=["Alltoallv", "Allgather"])
def case_in_place_is_not_opened_nor_given_up(comm, operation):
    """What Start reads may be in the receive memory: peers do not write there earlier."""
    trial = Trial(comm, OPERATIONS[operation], "rma-notify", "window", in_place=True)
    for turn in range(4):
        trial.fill(turn)
        if operation == "Alltoallv":
            trial.request.Release()
            assert trial.request.Open() is False
            assert not trial.request.direct
        trial.request.Start()
        trial.check(turn, trial.request.Wait())
    trial.free()


# -- mistakes ------------------------------------------------------------------------------------


def agreed(comm, kind, call, *words):
    """The call must raise this kind with these words, the same text on every rank."""
    text = None
    try:
        call()
    except kind as error:
        text = str(error)
    texts = comm.allgather(text)
    assert None not in texts, f"raised on {sum(t is not None for t in texts)} ranks only: {texts}"
    assert len(set(texts)) == 1, texts
    for word in words:
        assert word in texts[0], f"{word!r} is not in {texts[0]!r}"


@ranks(at_least=2)
@parameters(operation=[name for name, row in OPERATIONS.items() if row.rooted])
def case_roots(comm, operation):
    row, size = OPERATIONS[operation], comm.size
    data = np.zeros(size)
    for wrong in (size, -1, 1.5):
        agreed(comm, PatternError, lambda wrong=wrong: row.init(comm, data, data.copy(), wrong),
               str(wrong))
    kind = OnesidedError if operation == "Bcast" else MismatchError
    agreed(comm, kind, lambda: row.init(comm, data, data.copy(), int(comm.rank == 1)), "root 0",
           "root 1")


def case_what_cannot_be_in_place(comm):
    data = np.zeros(comm.size)
    for name, row in OPERATIONS.items():
        if row.on_graph or name == "Bcast":
            continue
        pair = (MPI.IN_PLACE, None) if row.kept == "send" else (None, MPI.IN_PLACE)
        agreed(comm, OnesidedError, lambda row=row, pair=pair: row.init(comm, *pair, 0))
        for place in itertools.permutations((data, MPI.BOTTOM)):
            if name != "Alltoallw":
                agreed(comm, OnesidedError, lambda row=row, place=place: row.init(comm, *place, 0),
                       "buffer is")


@parameters(method=lambda: list(methods()))
def case_a_topology_with_ends(comm, method):
    """A grid that is not periodic has no neighbor beyond its ends: those blocks stay."""
    line = comm.Create_cart([comm.size], periods=[False])
    there = [rank for rank in line.Shift(0, 1)]
    send, recv = np.array([10.0 * comm.rank, 1.0]), np.full(4, -1.0)
    row = OPERATIONS["Neighbor_allgather"]
    with row.init(line, send, recv, 0, method=method) as request:
        for turn in range(2):
            send[1] = turn
            request.Start()
            assert request.Wait() is recv
            want = [v for rank in there for v in ((-1, -1) if rank < 0 else (10 * rank, turn))]
            assert recv.tolist() == want
    line.Free()
