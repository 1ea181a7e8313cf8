"""Bad input to Bcast_init, most often on one rank alone: every rank raises the same error."""

from __future__ import annotations

from unittest import mock

import numpy as np
from broadcast_data import names
from cases import parameters, ranks
from cases_validation import agreed_error, on
from mpi4py import MPI

from onesided.collectives import (
    Alltoallv_init,
    Bcast_init,
    MethodError,
    MismatchError,
    PatternError,
    ResourceError,
    UnsupportedError,
    methods,
)
from onesided.collectives.arena import Control


def start(comm, buf=None, root=0, method="rma-binomial", info=None):
    buf = np.zeros(6) if buf is None else buf
    return Bcast_init(comm, buf, root, method=method, info=info)


def start_with(comm, buf):
    return Bcast_init(comm, buf, 0, method="rma-binomial")


@parameters(method=names)
def case_roots_that_do_not_exist(comm, method):
    last = comm.size - 1
    for root in (comm.size, -1, 10**9):
        agreed_error(
            comm, PatternError, lambda root=root: start(comm, root=root, method=method),
            f"the root is {root}", f"0 to {last}",
        )
        wrong = on(comm, last, root, 0)
        agreed_error(comm, PatternError, lambda wrong=wrong: start(comm, root=wrong), str(root))
    agreed_error(comm, PatternError, lambda: start(comm, root=on(comm, last, "0", 0)), "not a rank")
    agreed_error(comm, PatternError, lambda: start(comm, root=1.0), "not a rank")


@ranks(at_least=2)
@parameters(method=names)
def case_roots_sizes_and_types_that_differ(comm, method):
    last = comm.size - 1
    agreed_error(
        comm, PatternError, lambda: start(comm, root=on(comm, last, last, 0), method=method),
        "rank 0 names root 0", f"rank {last} root {last}",
    )
    few = np.zeros(on(comm, last, 5, 6))
    agreed_error(
        comm, PatternError, lambda: start(comm, few, method=method),
        "the root, rank 0, sends 6 elements of float64", f"rank {last} expects 5",
    )
    other = np.zeros(6, on(comm, last, "f4", "f8"))
    agreed_error(
        comm, PatternError, lambda: start(comm, other, method=method),
        "float64", f"rank {last} expects 6 of float32",
    )
    swapped = np.zeros(6, on(comm, 0, ">f8", "<f8"))
    agreed_error(comm, PatternError, lambda: start(comm, swapped, method=method), ">f8")


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


def case_unknown_methods(comm):
    known = [*methods("broadcast")]
    agreed_error(comm, MethodError, lambda: start(comm, method="fastest"), "'fastest'", *known)
    name = on(comm, comm.size - 1, "rma-fence", "p2p")  # a method of the exchange
    agreed_error(comm, MethodError, lambda: start(comm, method=name), "'rma-fence'", *known)


@ranks(at_least=2)
def case_calls_that_differ(comm):
    last = comm.size - 1
    name = on(comm, last, "p2p", "rma-linear")
    agreed_error(comm, MismatchError, lambda: start(comm, method=name), "p2p")

    def call():
        if comm.rank == last:
            return Alltoallv_init(comm, np.zeros(comm.size), None, method="p2p")
        return start(comm, method="p2p")

    agreed_error(comm, MismatchError, call, "Bcast_init", "Alltoallv_init")


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
