"""Bad input to Bcast_init, most often on one rank alone: every rank raises the same error."""

from __future__ import annotations

from unittest import mock

import numpy as np
from broadcast_data import names
from cases import parameters, ranks
from cases_validation import agreed_error, on
from mpi4py import MPI

from onesided.collectives import (
    Bcast_init,
    PatternError,
    ResourceError,
    UnsupportedError,
)
from onesided.collectives.arena import Control


def start(comm, buf=None, root=0, method="rma-binomial", info=None):
    buf = np.zeros(6) if buf is None else buf
    return Bcast_init(comm, buf, root, method=method, info=info)


def start_with(comm, buf):
    return Bcast_init(comm, buf, 0, method="rma-binomial")


@parameters(who=["first", "last"])
def case_what_is_no_buffer(comm, who):
    rank = 0 if who == "first" else comm.size - 1
    good = np.zeros(6)
    gaps = np.zeros((6, 2))[:, 0]
    for wrong, kind, words in (
        (None, PatternError, "None"),
        (17, PatternError, "no buffer"),
        ("text", PatternError, "no buffer"),
        (np.array([None] * 6), PatternError, "Python objects"),
        (gaps, PatternError, "not contiguous"),
        (MPI.IN_PLACE, UnsupportedError, "IN_PLACE"),
        ([good, 7, MPI.DOUBLE], PatternError, "7"),
        ([good, -1, MPI.DOUBLE], PatternError, "-1"),
        ([good, (3, 4), MPI.DOUBLE], PatternError, ""),
        ([good, 6, MPI.DOUBLE, 1, 2], PatternError, "items"),
        ([good, 6, "no type"], PatternError, "no type"),
        ([good, 6, MPI.DATATYPE_NULL], PatternError, "DATATYPE_NULL"),
    ):
        mine = on(comm, rank, wrong, good)
        agreed_error(comm, kind, lambda mine=mine: start_with(comm, mine), words)


@ranks(at_least=2)
def case_read_only_is_for_the_root(comm):
    fixed = np.zeros(6)
    fixed.flags.writeable = False
    last = comm.size - 1
    agreed_error(
        comm, PatternError, lambda: start(comm, on(comm, last, fixed, np.zeros(6))), "read-only"
    )
    for method in names():
        start(comm, on(comm, 0, fixed, np.zeros(6)), method=method).Free()


def case_info_that_makes_no_sense(comm):
    for info in (
        {"child_order": "alphabetic"},
        {"segment_bytes": "0"},
        {"segment_bytes": "many"},
        {"ranks_per_node": "-2"},
    ):
        (key, text), = info.items()
        agreed_error(comm, PatternError, lambda info=info: start(comm, info=info), key, text)
    start(comm, info={"unknown": "ignored", "child_order": "low-bit-first"}).Free()


@ranks(at_least=2)
@parameters(method=["rma-linear", "rma-binomial", "rma-pipelined"], who=["first", "last"])
def case_one_rank_fails_before_it_is_linked(comm, method, who):
    """Its neighbors on other nodes do not wait for it."""
    def fail(control, rank):
        raise ResourceError("no more of it")

    window = Control.window
    if comm.rank == (0 if who == "first" else comm.size - 1):
        window = fail
    alone = {"ranks_per_node": "1"}
    with mock.patch.object(Control, "window", window):
        agreed_error(comm, ResourceError, lambda: start(comm, method=method, info=alone),
                     "no more of it")
    data = np.full(6, comm.rank)
    with start(comm, data, method=method, info=alone) as request:
        request.Start()
        request.Wait()
    assert (data == 0).all()
