"""Mistakes at initialization: every rank raises the same error, none hangs, all goes on."""

from __future__ import annotations

import itertools
import threading
from unittest import mock

import numpy as np
from cases import parameters, ranks
from errors import agreed, raises, works
from exchange_data import names
from mpi4py import MPI

from onesided.collectives import (
    Alltoallv_init,
    Alltoallw_init,
    Bcast_init,
    MethodError,
    MismatchError,
    Neighbor_alltoallv_init,
    OnesidedError,
    PatternError,
    ResourceError,
    UnsupportedError,
    methods,
)
from onesided.collectives.arena import Control
from onesided.collectives.testing import OPERATIONS


def refused(comm, kind, call, *words):
    agreed(comm, kind, call, *words)
    works(comm)


def on(comm, rank, wrong, right):
    return wrong if comm.rank == rank else right


def start(comm, send=None, recv=None, method="rma-notify", info=None):
    size = comm.size
    send = [np.zeros(2 * size), [2] * size] if send is None else send
    recv = [np.zeros(2 * size), [2] * size] if recv is None else recv
    return Alltoallv_init(comm, send, recv, method=method, info=info)


def cast(comm, buf=None, method="rma-binomial", info=None):
    return Bcast_init(comm, np.zeros(6) if buf is None else buf, 0, method=method, info=info)


# -- buffers: what is wrong, and the words of the error --------------------------------------------


def read_only(count):
    array = np.zeros(count)
    array.flags.writeable = False
    return array


def wrong_receives(size):
    two = [2] * size
    return {
        "out of bounds by one": ([np.zeros(2 * size - 1), two], "out of bounds"),
        "negative displacement": ([np.zeros(2 * size), two, [-1] * size], "out of bounds"),
        "far": ([np.zeros(2 * size), two, [2**40] * size], "out of bounds"),
        "overflowing": ([np.zeros(2 * size), two, [2**63 - 1] * size], "out of bounds"),
        "negative count": ([np.zeros(2 * size), [-2] * size], "negative"),
        "too few counts": ([np.zeros(2 * size), [2] * (size - 1)], f"{size} are needed"),
        "too many counts": ([np.zeros(2 * size), [2] * (size + 1)], f"{size} are needed"),
        "fractions": ([np.zeros(2 * size), [2.0] * size], "not integers"),
        "not a number": ([np.zeros(2 * size), [float("nan")] * size], "not integers"),
        "read-only": ([read_only(2 * size), two], "read-only"),
        "strided": ([np.zeros(4 * size)[::2], two], "not contiguous"),
        "objects": ([np.array([None] * 2 * size), two], "Python objects"),
        "no buffer": ([3.5, two], "no buffer"),
        "list too long": ([np.zeros(2 * size), two, two, two, two], "5 items"),
        "in place": ([MPI.IN_PLACE, two], "separate"),
        "unknown type code": ([np.zeros(2 * size), two, None, "zz"], "zz"),
        "no bytes": (np.zeros(0, np.dtype([])), "no bytes"),
        "no bytes in a row": (np.zeros(2 * size, np.dtype([])), "no bytes"),
    }


def wrong_boxes(size):
    def of(boxes):
        return [np.zeros((size, 2, 2)), boxes]

    return {
        "beyond": (of([(slice(0, 9),)] * size), "out of bounds"),
        "step": (of([(slice(0, 2, 2),)] * size), "step"),
        "index": (of([(0,)] * size), "not a tuple of slices"),
        "too many slices": (of([(slice(0, 1),) * 4] * size), "4 slices"),
        "too few boxes": (of([(slice(0, 1),)] * (size - 1)), "one for each"),
        "backwards": (of([(slice(3, 1),)] * size), "out of bounds"),
        "text": (of("boxes"), "boxes"),
        "no dimensions": ([np.array(5.0), [()] * size], "no dimensions"),
        "no bytes": ([np.zeros((size, 2), np.dtype([])), [None] * size], "no bytes"),
    }


def wrong_arrays(size):
    """What the request cannot make for boxes to receive."""
    nothing, huge = [None] * size, 1 << 40
    return {
        "own without dimensions": ([((), float), [()] * size], "no dimensions"),
        "own of no bytes": ([((size, 2), np.dtype([])), nothing], "no bytes"),
        "own of arrays": ([((size, 2), np.dtype((float, 2))), nothing], "elements that are arrays"),
        "own of objects": ([((size, 2), object), nothing], "Python objects"),
        "negative": ([((size, -2), float), nothing], "negative"),
        "too large": ([((huge, huge), float), nothing], "more bytes than"),
        "too large by one axis": ([((1 << 70,), "u1"), nothing], "more bytes than"),
        "too large beside none": ([((0, huge, huge), float), nothing], "more bytes than"),
        "too many dimensions": ([((1,) * 65, float), nothing], "dimensions"),
    }


def wrong_types(size):
    return {
        "no type": ([np.zeros(size), [1] * size, [0] * size, [None] * size], "no MPI type"),
        "unknown type code": ([np.zeros(size), [1] * size, [0] * size, ["zz"] * size], "zz"),
        "null type": ([np.zeros(size), [MPI.DATATYPE_NULL] * size], "DATATYPE_NULL"),
        "too few types": ([np.zeros(size), [1] * size, [0] * size, []], "0 "),
    }


def wrong_broadcasts(size):
    good = np.zeros(6)
    return {
        "text": ("text", "no buffer"),
        "number": (17, "no buffer"),
        "objects": (np.array([None] * 6), "Python objects"),
        "strided": (np.zeros((6, 2))[:, 0], "not contiguous"),
        "in place": (MPI.IN_PLACE, "IN_PLACE"),
        "too many": ([good, 7, MPI.DOUBLE], "7"),
        "negative": ([good, -1, MPI.DOUBLE], "-1"),
        "too far": ([good, (3, 4), MPI.DOUBLE], "out of bounds"),
        "list too long": ([good, 6, MPI.DOUBLE, 1, 2], "items"),
        "unknown type": ([good, 6, "no type"], "no type"),
        "null type": ([good, 6, MPI.DATATYPE_NULL], "DATATYPE_NULL"),
    }


def by_boxes(role):
    def init(comm, spec, method):
        parts = [(slice(p, p + 1),) for p in range(comm.size)]
        sides = [[np.zeros((comm.size, 2, 2)), parts] for _ in range(2)]
        sides[role] = sides[role] if spec is None else spec
        return Alltoallw_init(comm, *sides, method=method)

    return init


BUFFERS = {
    "receives": (wrong_receives, lambda comm, spec, method: start(comm, recv=spec, method=method)),
    "sends boxes": (lambda size: wrong_boxes(size) | wrong_types(size), by_boxes(0)),
    "receives boxes": (
        lambda size: wrong_boxes(size) | wrong_types(size) | wrong_arrays(size), by_boxes(1)),
    "broadcast": (wrong_broadcasts, lambda comm, spec, method: cast(
        comm, spec, "auto" if method == "auto" else "rma-binomial")),
}
WRONG = [f"{what}, {name}" for what, (table, _) in BUFFERS.items() for name in table(2)]


@parameters(wrong=WRONG, who=["first", "last", "all"], method=["p2p", "auto", "rma-notify"])
def case_wrong_buffers(comm, wrong, who, method):
    """Of one rank, or of all."""
    what, _, name = wrong.partition(", ")
    table, init = BUFFERS[what]
    spec, word = table(comm.size)[name]
    right = comm.rank != {"first": 0, "last": comm.size - 1, "all": comm.rank}[who]
    spec = None if right else spec
    refused(comm, (OnesidedError, ValueError), lambda: init(comm, spec, method), word)


@parameters(method=names)
def case_counts_that_do_not_match(comm, method):
    last, size = comm.size - 1, comm.size
    few = on(comm, last, [1] + [2] * (size - 1), [2] * size)
    recv = [np.zeros(2 * size), few]
    refused(comm, PatternError, lambda: start(comm, recv=recv, method=method),
            "rank 0 sends 2 elements", f"to rank {last}", "expects 1")
    send = [np.zeros(3 * size), on(comm, last, [3] + [2] * (size - 1), [2] * size)]
    refused(comm, PatternError, lambda: start(comm, send=send, method=method),
            f"rank {last} sends 3 elements", "to rank 0", "expects 2")


@ranks(at_least=2)
def case_overlapping_receive_blocks(comm):
    size = comm.size
    recv = [np.zeros(2 * size), [2] * size, on(comm, 1, list(range(size)), None)]
    refused(comm, PatternError, lambda: start(comm, recv=recv), "rank 0", "rank 1", "overlap")


def case_send_and_receive_overlap(comm):
    size, two = comm.size, [2] * comm.size
    both = np.zeros(4 * size)
    refused(comm, PatternError, lambda: start(
        comm, [both[: 2 * size], two], [both[1 : 2 * size + 1], two]), "overlap")
    with start(comm, [both[: 2 * size], two], [both[2 * size :], two]) as request:
        request.Start()
        request.Wait()


@parameters(method=["p2p", "mpi", "mpi-persistent", "auto"])
def case_a_rank_with_nothing_gives_none(comm, method):
    """As sendbuf and as recvbuf, with counts of zero; and any types."""
    none, counts = comm.rank == comm.size - 1, [0] * comm.size
    given = [None if none else np.zeros(0), counts]
    kinds = [None, "zz", MPI.DATATYPE_NULL, "d"] * comm.size
    typed = [np.zeros(1), counts, counts, kinds[: comm.size] if none else ["d"] * comm.size]
    for init, spec in ((Alltoallv_init, given), (Alltoallw_init, typed)):
        with init(comm, spec, list(spec), method=method) as request:
            request.Start()
            request.Wait()


@parameters(method=["p2p", "rma-notify", "auto"], form=["f8", "f8, i4"])
def case_a_dtype_with_words_of_the_program(comm, method, form):
    """They stay with the rank whose they are, and need not be known to another process."""
    size, last = comm.size, comm.rank == comm.size - 1
    kind = np.dtype(form, metadata={"lock": threading.Lock()}) if last else np.dtype(form)
    with Alltoallv_init(comm, np.ones(2 * size, kind), None, method=method) as request:
        request.Start()
        assert np.all(request.Wait() == np.ones(2 * size, form))
    with Bcast_init(comm, np.ones(2, kind)) as request:
        request.Start()
        assert np.all(request.Wait() == np.ones(2, form))
    if size > 1:
        refused(comm, PatternError, lambda: Bcast_init(comm, np.ones(2 + last, kind)), "expects 3")


@ranks(at_least=2)
def case_read_only_is_for_the_root(comm):
    fixed, last = read_only(6), comm.size - 1
    refused(comm, PatternError, lambda: cast(comm, on(comm, last, fixed, None)), "read-only")
    refused(comm, PatternError, lambda: Bcast_init(comm, on(comm, last, None, np.zeros(6))), "None")
    for method in methods("broadcast"):
        cast(comm, on(comm, 0, fixed, None), method).Free()


# -- what else is given ----------------------------------------------------------------------------


def case_unknown_method_lists_the_known_ones(comm):
    refused(comm, MethodError, lambda: start(comm, method="rma-magic"), "rma-magic", *methods())
    if comm.size > 1:
        refused(comm, OnesidedError,
                lambda: start(comm, method=on(comm, 0, "p2p", "rma-notify")), "rank 1")


def case_info_values(comm):
    """Of all ranks, or of the last one; what is not known is ignored."""
    for init, info in [
        (start, {"slots": "3"}), (start, {"ranks_per_node": "0"}), (start, {"compiled": "treu"}),
        (start, {"expected_iterations": "many"}), (start, {"effort": "much"}),
        (cast, {"child_order": "alphabetic"}), (cast, {"segment_bytes": "0"}),
        (cast, {"segment_bytes": "many"}), (cast, {"ranks_per_node": "-2"}),
        (start, {"ranks_per_node": "1" + 20 * "0"}), (cast, {"segment_bytes": "1" + 20 * "0"}),
    ]:
        for mine in (info, on(comm, comm.size - 1, info, {})):
            refused(comm, PatternError, lambda init=init, mine=mine: init(comm, info=mine),
                    *info, *info.values())
    made = MPI.Info.Create({"slots": "1"})
    for info in ({"nonsense": "yes"}, MPI.INFO_NULL, None, made):
        start(comm, info=info).Free()
    made.Free()
    cast(comm, info={"unknown": "ignored", "child_order": "low-bit-first"}).Free()


def case_wrong_communicators(comm):
    for wrong in (MPI.COMM_NULL, None, "world"):
        raises(OnesidedError, lambda wrong=wrong: start_on(wrong), "communicator")
    refused(comm, UnsupportedError, lambda: Neighbor_alltoallv_init(comm, np.zeros(0), None),
            "topology")
    if comm.size == 1:
        return
    local = comm.Split(comm.rank % 2, comm.rank)
    inter = local.Create_intercomm(0, comm, 1 - comm.rank % 2)
    refused(comm, UnsupportedError, lambda: start_on(inter), "intracommunicator")
    inter.Free()
    local.Free()


def start_on(comm):
    return Alltoallv_init(comm, np.zeros(2), None)


@ranks(at_least=2)
def case_different_collective_calls_are_noticed(comm):
    request = start(comm, method="p2p")
    call = request.Free if comm.rank == 0 else lambda: start(comm, method="p2p")
    agreed(comm, MismatchError, call, "rank 0 is in")
    request.Free()


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


@ranks(at_least=2)
@parameters(method=["rma-linear", "rma-binomial", "rma-pipelined"], who=["first", "last"],
            error=[ResourceError, ExceptionGroup])  # fmt: skip
def case_one_rank_fails_before_it_is_linked(comm, method, who, error):
    """Its neighbors on other nodes do not wait for it."""
    def fail(control, rank):
        raise error("no more of it", *[[OSError()]] * (error is ExceptionGroup))

    window, alone = Control.window, {"ranks_per_node": "1"}
    if comm.rank == (0 if who == "first" else comm.size - 1):
        window = fail
    with mock.patch.object(Control, "window", window):
        kind = OnesidedError if error is ExceptionGroup else error
        refused(comm, kind, lambda: cast(comm, None, method, alone), "no more of it")
    data = np.full(6, comm.rank)
    with cast(comm, data, method, alone) as request:
        request.Start()
        request.Wait()
    assert (data == 0).all()
