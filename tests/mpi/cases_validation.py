"""Mistakes at initialization: every rank raises the same error, none hangs, all goes on."""

from __future__ import annotations

import numpy as np
from cases import parameters, ranks
from exchange_data import Vector, names, tables
from mpi4py import MPI

from onesided.collectives import (
    Alltoallv_init,
    Alltoallw_init,
    MethodError,
    MismatchError,
    Neighbor_alltoallv_init,
    OnesidedError,
    PatternError,
    UnsupportedError,
    methods,
)


def agreed_error(comm, kind, call, *words):
    """The call must raise this kind with these words on every rank, and the same text."""
    try:
        call()
    except kind as error:
        text = str(error)
    else:
        text = None
    texts = comm.allgather(text)
    assert None not in texts, f"raised on {sum(t is not None for t in texts)} ranks only"
    assert len(set(texts)) == 1, texts
    for word in words:
        assert word in texts[0], f"{word!r} is not in {texts[0]!r}"
    # The communicator is still of use.
    exchange = Vector(comm, tables(comm.size)["uneven"], "p2p")
    exchange.round(1)
    exchange.free()


def on(comm, rank, wrong, right):
    return wrong if comm.rank == rank else right


def start(comm, send=None, recv=None, method="rma-notify", info=None):
    size = comm.size
    send = [np.zeros(2 * size), [2] * size] if send is None else send
    recv = [np.zeros(2 * size), [2] * size] if recv is None else recv
    return Alltoallv_init(comm, send, recv, method=method, info=info)


@parameters(method=names)
def case_counts_that_do_not_match(comm, method):
    last, size = comm.size - 1, comm.size
    few = on(comm, last, [1] + [2] * (size - 1), [2] * size)
    recv = [np.zeros(2 * size), few]
    agreed_error(
        comm,
        PatternError,
        lambda: start(comm, recv=recv, method=method),
        "rank 0 sends 2 elements",
        f"to rank {last}",
        "expects 1",
    )
    send = [np.zeros(3 * size), on(comm, last, [3] + [2] * (size - 1), [2] * size)]
    agreed_error(
        comm,
        PatternError,
        lambda: start(comm, send=send, method=method),
        f"rank {last} sends 3 elements",
        "to rank 0",
        "expects 2",
    )


def wrong_receives(size):
    two = [2] * size
    read_only = np.zeros(2 * size)
    read_only.flags.writeable = False
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
        "read-only": ([read_only, two], "read-only"),
        "strided": ([np.zeros(4 * size)[::2], two], "not contiguous"),
        "objects": ([np.array([None] * 2 * size), two], "Python objects"),
        "no buffer": ([3.5, two], "no buffer"),
        "list too long": ([np.zeros(2 * size), two, two, two, two], "5 items"),
        "in place": ([MPI.IN_PLACE, two], "separate"),
        "unknown type code": ([np.zeros(2 * size), two, None, "zz"], "zz"),
    }


@parameters(wrong=lambda: list(wrong_receives(2)), everywhere=[False, True])
def case_wrong_receive_buffers(comm, wrong, everywhere):
    spec, word = wrong_receives(comm.size)[wrong]
    right = [np.zeros(2 * comm.size), [2] * comm.size]
    recv = spec if everywhere else on(comm, comm.size - 1, spec, right)
    agreed_error(comm, OnesidedError, lambda: start(comm, recv=recv), word)


@ranks(at_least=2)
def case_overlapping_receive_blocks(comm):
    size = comm.size
    recv = [np.zeros(2 * size), [2] * size, on(comm, 1, list(range(size)), None)]
    agreed_error(comm, PatternError, lambda: start(comm, recv=recv), "rank 0", "rank 1", "overlap")


def case_send_and_receive_overlap(comm):
    both = np.zeros(4 * comm.size)
    size = comm.size
    agreed_error(
        comm,
        PatternError,
        lambda: start(comm, [both[: 2 * size], [2] * size], [both[1 : 2 * size + 1], [2] * size]),
        "overlap",
    )
    with start(comm, [both[: 2 * size], [2] * size], [both[2 * size :], [2] * size]) as request:
        request.Start()
        request.Wait()


def case_unknown_method_lists_the_known_ones(comm):
    agreed_error(
        comm, MethodError, lambda: start(comm, method="rma-magic"), "rma-magic", *methods()
    )
    if comm.size > 1:
        agreed_error(
            comm,
            OnesidedError,
            lambda: start(comm, method=on(comm, 0, "p2p", "rma-notify")),
            "rank 1",
        )


def case_info_values(comm):
    for info in ({"slots": "3"}, {"ranks_per_node": "0"}, {"expected_iterations": "many"}):
        agreed_error(comm, PatternError, lambda info=info: start(comm, info=info), *info)
    for info in ({"nonsense": "yes"}, MPI.INFO_NULL, None):
        start(comm, info=info).Free()
    made = MPI.Info.Create({"slots": "1"})
    start(comm, info=made).Free()
    made.Free()


def wrong_boxes(size):
    right = [(slice(0, 1),)] * size
    return {
        "beyond": ([(slice(0, 9),)] * size, "out of bounds"),
        "step": ([(slice(0, 2, 2),)] * size, "step"),
        "index": ([(0,)] * size, "not a tuple of slices"),
        "too many slices": ([(slice(0, 1),) * 4] * size, "4 slices"),
        "too few boxes": (right[:-1], "one for each"),
        "backwards": ([(slice(3, 1),)] * size, "out of bounds"),
        "text": ("boxes", "boxes"),
    }


@parameters(wrong=lambda: list(wrong_boxes(2)), role=[0, 1])
def case_wrong_boxes(comm, wrong, role):
    size = comm.size
    boxes, word = wrong_boxes(size)[wrong]
    sides = [[np.zeros((size, 2, 2)), [(slice(p, p + 1),) for p in range(size)]] for _ in range(2)]
    sides[role] = [sides[role][0], on(comm, size - 1, boxes, sides[role][1])]
    agreed_error(
        comm, PatternError, lambda: Alltoallw_init(comm, *sides, method="rma-notify"), word
    )


def wrong_arrays(size):
    """What is no array of boxes, for a receiver, and as an array, for a sender, where it is one."""
    nothing, huge = [None] * size, 1 << 40
    return {
        "no dimensions": ([np.array(5.0), [()] * size], "no dimensions"),
        "own without dimensions": ([((), float), [()] * size], "no dimensions"),
        "no bytes": ([np.zeros((size, 2), np.dtype([])), nothing], "no bytes"),
        "own of no bytes": ([((size, 2), np.dtype([])), nothing], "no bytes"),
        "own of arrays": ([((size, 2), np.dtype((float, 2))), nothing], "elements that are arrays"),
        "objects": ([((size, 2), object), nothing], "Python objects"),
        "negative": ([((size, -2), float), nothing], "negative"),
        "too large": ([((huge, huge), float), nothing], "more bytes than"),
        "too large by one axis": ([((1 << 70,), "u1"), nothing], "more bytes than"),
        "too large beside none": ([((0, huge, huge), float), nothing], "more bytes than"),
        "too many dimensions": ([((1,) * 65, float), nothing], "dimensions"),
    }


ARRAYS = [
    *((name, 1) for name in wrong_arrays(2)),
    *((name, 0) for name, (spec, _) in wrong_arrays(2).items() if isinstance(spec[0], np.ndarray)),
]


@parameters(which=ARRAYS, everywhere=[False, True], method=["p2p", "auto", "rma-notify"])
def case_wrong_arrays_of_boxes(comm, which, everywhere, method):
    name, role = which
    spec, word = wrong_arrays(comm.size)[name]
    sides = [[np.zeros((comm.size, 2)), [None] * comm.size] for _ in range(2)]
    sides[role] = spec if everywhere else on(comm, comm.size - 1, spec, sides[role])
    agreed_error(comm, ValueError, lambda: Alltoallw_init(comm, *sides, method=method), word)


@parameters(many=[False, True])
def case_elements_of_no_bytes(comm, many):
    """In a row as well."""
    data = np.zeros(2 * comm.size if many else 0, np.dtype([]))
    agreed_error(comm, PatternError, lambda: start(comm, recv=data), "no bytes")
    agreed_error(comm, PatternError, lambda: start(comm, send=data), "no bytes")


def case_wrong_communicators(comm):
    for wrong in (MPI.COMM_NULL, None, "world"):
        try:
            Alltoallv_init(wrong, np.zeros(1), None)
        except OnesidedError as error:
            assert "communicator" in str(error)
        else:
            raise AssertionError("accepted")
    agreed_error(
        comm, UnsupportedError, lambda: Neighbor_alltoallv_init(comm, np.zeros(0), None), "topology"
    )


@ranks(at_least=2)
def case_an_intercommunicator_is_refused(comm):
    local = comm.Split(comm.rank % 2, comm.rank)
    inter = local.Create_intercomm(0, comm, 1 - comm.rank % 2)
    try:
        agreed_error(
            comm,
            UnsupportedError,
            lambda: Alltoallv_init(inter, np.zeros(2), None),
            "intracommunicator",
        )
    finally:
        inter.Free()
        local.Free()


@ranks(at_least=2)
def case_different_collective_calls_are_noticed(comm):
    a = Vector(comm, tables(comm.size)["uneven"], "p2p")
    try:
        if comm.rank == 0:
            a.request.Free()
        else:
            Vector(comm, tables(comm.size)["uneven"], "p2p")
    except MismatchError as error:
        assert "rank 0 is in" in str(error)
    else:
        raise AssertionError("the ranks were in different calls, and nobody noticed")
    a.request.Free()


def told(call):
    """The words of the PatternError that the call must raise."""
    try:
        call()
    except PatternError as error:
        return str(error)
    raise AssertionError("it was taken")


def case_words_that_make_no_sense(comm):
    """Nonsense of the last rank is refused on all."""
    last, send = comm.rank == comm.size - 1, np.zeros((2, 3))
    info = {"compiled": "treu"} if last else {"compiled": "true"}
    counts = [1] * comm.size
    assert "treu" in told(lambda: Alltoallv_init(comm, [np.zeros(comm.size), counts], None,
                                                 method="p2p", info=info))  # fmt: skip
    box = (slice(0, 2), slice(0, 3))
    boxes = [box if peer == (comm.rank + 1) % comm.size else None for peer in range(comm.size)]
    rows = [0.2, 0.7] if last else [0, 1]
    into = [box if peer == (comm.rank - 1) % comm.size else None for peer in range(comm.size)]
    assert "not integers" in told(lambda: Alltoallw_init(
        comm, [send, boxes], [np.zeros((2, 3)), into], method="p2p", rows=rows))  # fmt: skip


def case_a_rank_with_nothing_gives_none(comm):
    """As sendbuf and as recvbuf, with counts of zero."""
    none, counts = comm.rank == comm.size - 1, [0] * comm.size
    send = [None if none else np.zeros(0), counts]
    recv = [None if none else np.zeros(0), counts]
    with Alltoallv_init(comm, send, recv, method="p2p") as request:
        request.Start()
        request.Wait()
