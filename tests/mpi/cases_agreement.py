"""What goes wrong on one rank alone is every rank's error, and the next call works.

Initialization that fails, Free of an active request, free() of memory in use: nobody is left behind
in a collective call, nothing has changed, and the same communicator can be used again.
"""

from __future__ import annotations

import contextlib
import functools

import broadcast_data
import numpy as np
from broadcast_data import Cast
from cases import parameters, ranks
from exchange_data import Boxes, Vector, any_order, names, tables
from mpi4py import MPI

from onesided.collectives import (
    Allreduce_init,
    Alltoallv_init,
    Alltoallw_init,
    Bcast_init,
    HaloExchange,
    Neighbor_alltoallv_init,
    OnesidedError,
    Precv_init,
    Psend_init,
    Reduce_scatter_block_init,
    RequestError,
    empty,
    free,
    methods,
)

ERRORS = (OnesidedError, MemoryError)


def outcome(call):
    """The request that a call made, and what it raised instead."""
    try:
        return call(), None
    except ERRORS as error:
        return None, error


def all_raise(comm, call, culprit):
    """Every rank must get an error, the culprit's own words among them."""
    made, error = outcome(call)
    told = comm.allgather(None if error is None else f"{type(error).__name__}: {error}")
    if made is not None and all(text is None for text in told):
        made.Free()
    assert all(told), f"rank {culprit} alone was to be wrong; raised was {told}"
    return told


def works(comm, method):
    """Another initialization on the same communicator, and rounds of it."""
    moved = Vector(comm, tables(comm.size)["uneven"] + 1, method)
    for turn in range(2):
        moved.round(turn)
    moved.free()


# -- (h) initialization that fails on one rank ----------------------------------------------------


def mistaken(comm, method, mistake, wrong):
    """Initialization with a mistake on the rank where ``wrong`` holds."""
    size = comm.size
    send, counts = np.zeros(4 * size), [2] * size
    displs, recv = [2 * i for i in range(size)], None
    if wrong and mistake == "counts beyond the buffer":
        counts = [2] * (size - 1) + [1000]
    if wrong and mistake == "too few counts":
        counts, displs = counts[:-1], displs[:-1]
    if wrong and mistake == "negative count":
        counts = [-2, *counts[1:]]
    if wrong and mistake == "negative displacement":
        displs = [-1, *displs[1:]]
    if wrong and mistake == "no buffer":
        send = object()
    if mistake == "counts that do not match":
        recv = [np.zeros(4 * size), [3 if wrong else 2] * size]
    if wrong and mistake == "unknown method":
        method = "carrier-pigeon"
    if wrong and mistake == "bad info":
        return Alltoallv_init(comm, [send, counts, displs], recv, method=method,
                              info={"slots": "many"})
    return Alltoallv_init(comm, [send, counts, displs], recv, method=method)


MISTAKES = ["counts beyond the buffer", "too few counts", "negative count",
            "negative displacement", "no buffer", "counts that do not match", "unknown method",
            "bad info"]


@ranks(at_least=2)
@parameters(method=names, mistake=MISTAKES)
def case_one_rank_is_mistaken(comm, method, mistake):
    for culprit in {0, comm.size - 1}:
        wrong = comm.rank == culprit
        all_raise(comm, lambda wrong=wrong: mistaken(comm, method, mistake, wrong), culprit)
        works(comm, method)


@ranks(at_least=2)
@parameters(method=["rma-notify", "p2p"], what=["method", "box", "neighbors", "root", "array"])
def case_one_rank_is_mistaken_elsewhere(comm, method, what):
    """Boxes, neighborhoods and broadcasts agree as well."""
    culprit, size = comm.size - 1, comm.size
    wrong = comm.rank == culprit
    bad = "carrier-pigeon" if wrong and what == "method" else method
    boxes = [(slice(0, 1),)] * size
    array = np.zeros((size, 3))
    graph = comm.Create_dist_graph_adjacent(range(size), range(size))

    def box():
        sends = [(slice(0, 99),)] * size if wrong and what == "box" else boxes
        recvs = [(slice(i, i + 1),) for i in range(size)]
        return Alltoallw_init(comm, [array, sends], [np.zeros((size, 3)), recvs], method=bad)

    def neighbors():
        counts = [1] * (size + (wrong and what == "neighbors"))
        return Neighbor_alltoallv_init(graph, [np.zeros(size + 1), counts], None, method=bad)

    def broadcast():
        root = 99 if wrong and what == "root" else 0
        count = 7 if wrong and what == "array" else 5
        name = "rma-binomial" if method == "rma-notify" and bad == method else bad
        return Bcast_init(comm, np.zeros(count), root, method=name)

    calls = {"method": (box, neighbors, broadcast), "box": (box,), "neighbors": (neighbors,),
             "root": (broadcast,), "array": (broadcast,)}[what]
    for call in calls:
        all_raise(comm, call, culprit)
        works(comm, method)
    graph.Free()


#: Makers of arrays, and what raises when there is no room for one: NumPy has a class of its own.
MAKERS = ["empty", "empty_like", "zeros"]
SCARCE = {"Python's": lambda: bytearray(1 << 62), "NumPy's": functools.partial(np.zeros, 1 << 59)}


@contextlib.contextmanager
def no_memory(where, at, whose="Python's"):
    """MemoryError of call number ``at`` of a maker of arrays, or of every Allocate_shared; how
    often."""
    calls, raised = [0], [0]
    if where in MAKERS:
        original = getattr(np, where)

        def scarce(*arguments, **options):
            made = original(*arguments, **options)
            calls[0] += where != "zeros" or made.size > 1  # a word is what ranks agree by
            if calls[0] == at + 1 and not raised[0]:
                raised[0] += 1
                SCARCE[whose]()
            return made

        setattr(np, where, scarce)
    else:
        original = MPI.Win

        class Scarce(original):
            @classmethod
            def Allocate_shared(cls, *arguments, **options):
                raised[0] += 1
                raise MemoryError("injected: Allocate_shared")

        MPI.Win = Scarce
    try:
        yield raised
    finally:
        if where in MAKERS:
            setattr(np, where, original)
        else:
            MPI.Win = original


def scarce_on(comm, culprit, where, at, make, whose):
    """Initialization where one rank has no memory: all ranks succeed, or all raise."""
    if comm.rank == culprit:
        with no_memory(where, at, whose) as raised:
            made, error = outcome(make)
    else:
        raised = [0]
        made, error = outcome(make)
    told = comm.allgather(None if error is None else f"{type(error).__name__}: {error}")
    assert error is None or isinstance(error, MemoryError), told
    injected = comm.allreduce(raised[0])
    assert all(told) or not any(told), f"not agreed: {told}"
    assert injected or not any(told), f"nothing was injected, yet {told}"
    if made is not None:
        made.Free()
    return bool(injected), any(told)


@ranks(at_least=2)
@parameters(method=lambda: [n for n in any_order() if n != "auto"], memory=["own", "plain"],
            maker=MAKERS, whose=SCARCE)
def case_one_rank_has_no_memory_for_arrays(comm, method, memory, maker, whose):
    """One call after the other of a maker of arrays fails, until initialization makes none more."""
    size = comm.size
    send, recv = np.zeros(3 * size), None if memory == "own" else [np.zeros(3 * size), [3] * size]
    scarce_in_turn(comm, maker, whose, lambda: works(comm, method), lambda: Alltoallv_init(
        comm, [send, [3] * size], recv, method=method))


def scarce_in_turn(comm, maker, whose, works, make):
    for at in range(40):
        injected, _ = scarce_on(comm, comm.size - 1, maker, at, make, whose)
        works()
        if not injected:
            break


@ranks(at_least=2)
@parameters(method=lambda: [n for n, m in methods("reduction").items() if n != "auto"],
            operation=["Allreduce", "Reduce_scatter_block"],
            memory=["in place", "at odd addresses"], maker=MAKERS, whose=SCARCE)
def case_one_rank_has_no_memory_to_reduce(comm, method, operation, memory, maker, whose):
    """What is reduced into the contribution, or does not lie as it should, is copied aside."""
    room, odd = np.zeros(100 * comm.size + 8, np.uint8), int(memory == "at odd addresses")
    whole = [room[odd : odd + 8 * comm.size], MPI.DOUBLE]
    other = [np.zeros(8 * comm.size if operation == "Allreduce" else 8, np.uint8), MPI.DOUBLE]
    given = (whole, other) if odd else (MPI.IN_PLACE, whole)
    init = Allreduce_init
    if operation == "Reduce_scatter_block":  # counts are those of a block
        init = Reduce_scatter_block_init
        for each in (whole, other):
            each.insert(1, 1)

    def works():
        mine, total = np.ones(3), np.zeros(3)
        with Allreduce_init(comm, mine, total, method=method) as request:
            request.Start()
            request.Wait()
        assert np.all(total == comm.size)

    scarce_in_turn(comm, maker, whose, works, lambda: init(comm, *given, method=method))


@ranks(at_least=2)
@parameters(method=any_order)
def case_a_node_has_no_shared_memory(comm, method):
    """The ranks of a node allocate together, so all of them fail; slots as long as these have a
    region of their own."""
    size, count = comm.size, 200_000
    with no_memory("Allocate_shared", 0) as raised:
        made, error = outcome(
            lambda: Alltoallv_init(comm, [np.zeros(count * size), [count] * size], None,
                                   method=method)
        )
    told = comm.allgather(error is not None)
    assert len(set(told)) == 1, told
    if error is not None:
        assert raised[0]
    else:
        made.Free()
    works(comm, method)


@ranks(at_least=2)
def case_no_memory_for_empty_on_all_ranks(comm):
    """Nobody gets shared memory: the same error everywhere, and the next allocation works."""
    with no_memory("Allocate_shared", 0) as raised:
        made, error = outcome(lambda: empty(comm, 100))
    told = comm.allgather(error is not None)
    assert len(set(told)) == 1, told
    assert bool(error) == bool(raised[0])
    if made is not None:
        free(made)
    memory = empty(comm, 100)
    memory[:] = comm.rank
    free(memory)
    works(comm, "rma-notify")


# -- (i) Free of what is in use on one rank -------------------------------------------------------


def everywhere_refused(comm, call):
    """RequestError on every rank."""
    try:
        call()
    except RequestError as error:
        told = str(error)
    else:
        told = None
    assert all(comm.allgather(told)), "not every rank was told"


def freed_too_early(comm, moved):
    for turn, early in enumerate((0, comm.size - 1)):
        moved.fill(turn)
        if comm.rank == early:
            moved.request.Start()
        everywhere_refused(comm, moved.request.Free)
        assert moved.request.state == ("active" if comm.rank == early else "inactive")
        if comm.rank != early:
            moved.request.Start()
        moved.check(turn, moved.request.Wait())
    moved.round(7)
    moved.free()
    assert moved.request.state == "freed"


@parameters(method=any_order, memory=["own", "window", "plain"])
def case_free_while_active_on_one_rank(comm, method, memory):
    freed_too_early(comm, Vector(comm, tables(comm.size)["uneven"] + 1, method, memory))


@parameters(method=any_order)
def case_free_of_boxes_while_active_on_one_rank(comm, method):
    boxes = Boxes(comm, (6, 5, 2), method)
    if comm.rank == 0:
        boxes.send[...] = boxes.whole(1)[boxes.rows]
        boxes.request.Start()
    everywhere_refused(comm, boxes.request.Free)
    if comm.rank != 0:
        boxes.send[...] = boxes.whole(1)[boxes.rows]
        boxes.request.Start()
    boxes.check(1, boxes.request.Wait())
    boxes.free()


@parameters(method=broadcast_data.any_order)
def case_free_of_a_broadcast_while_active_on_one_rank(comm, method):
    freed_too_early(comm, Cast(comm, 500, comm.size - 1, method))


@ranks(at_least=2)
@parameters(window=[True, False])
def case_free_of_a_halo_while_active_on_one_rank(comm, window):
    grid = comm.Create_cart((comm.size, 1), (True, True))
    block = empty(grid, (6, 6)) if window else np.zeros((6, 6))
    block[:] = comm.rank
    halo = HaloExchange(grid, block, 1)

    if comm.rank == 0:
        halo.Start()
    everywhere_refused(comm, halo.Free)
    if comm.rank != 0:
        halo.Start()
    halo.Wait()
    for face in halo.faces:
        assert np.all(block[face.recv] == face.rank)
    halo.exchange()
    halo.Free()
    if window:
        free(block)
    grid.Free()


@ranks(at_least=2)
@parameters(method=["rma-notify", "rma-lock", "p2p"])
def case_free_of_memory_in_use(comm, method):
    """By a request of all ranks."""
    moved = Vector(comm, tables(comm.size)["uneven"] + 1, method, "window")
    everywhere_refused(comm, lambda: free(moved.window))
    moved.round(0)
    everywhere_refused(comm, lambda: free(moved.window))
    moved.round(1)
    moved.free()


@ranks(at_least=2)
@parameters(method=["rma", "p2p"])
def case_free_of_memory_in_use_on_one_rank(comm, method):
    """A partitioned receive is one rank's affair, and yet no rank may take its memory away."""
    last = comm.size - 1
    memory = empty(comm, 64 if comm.rank == last else 0)
    source = np.arange(64.0)
    request = None
    if comm.rank == last:
        request = Precv_init(comm, memory, 2, 0, method=method)
    everywhere_refused(comm, lambda: free(memory))
    if comm.rank == 0:
        request = Psend_init(comm, source, 4, last, method=method)
    if request is not None:
        request.Start()
        if comm.rank == 0:
            request.Pready_range(0, 3)
        request.Wait()
    if comm.rank == last:
        np.testing.assert_array_equal(memory, source)
    if request is not None:
        request.Free()
    free(memory)
    again = empty(comm, 8)
    again[:] = 1
    free(again)
