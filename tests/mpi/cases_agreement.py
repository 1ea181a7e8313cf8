"""What is said about memory is said on every rank, and the next call works.

A node without shared memory, free() of memory in use: nobody is left behind in a collective call,
nothing has changed, and the same communicator can be used again.
"""

from __future__ import annotations

import contextlib

import numpy as np
from cases import parameters, ranks
from exchange_data import Vector, any_order, tables

from onesided.collectives import (
    Alltoallv_init,
    OnesidedError,
    Precv_init,
    Psend_init,
    RequestError,
    empty,
    free,
    node_memory,
)

ERRORS = (OnesidedError, MemoryError)


def outcome(call):
    """The request that a call made, and what it raised instead."""
    try:
        return call(), None
    except ERRORS as error:
        return None, error


def works(comm, method):
    """Another initialization on the same communicator, and rounds of it."""
    moved = Vector(comm, tables(comm.size)["uneven"] + 1, method)
    for turn in range(2):
        moved.round(turn)
    moved.free()


@contextlib.contextmanager
def no_shared_memory(comm, of="files"):
    """No files, or no pages for the last rank; how often."""
    raised, made, named, claim = (
        [0], node_memory._made, node_memory._named, node_memory.Mapping.claim)

    def refused(*_):
        raised[0] += 1
        raise OSError("injected: no files")

    def claimed(*arguments):
        raised[0] += 1
        if comm.rank == comm.size - 1:
            raise OSError("injected: no page is left")
        claim(*arguments)

    if of == "files":
        node_memory._made = node_memory._named = refused
    else:
        node_memory.Mapping.claim = claimed
    try:
        yield raised
    finally:
        node_memory._made, node_memory._named, node_memory.Mapping.claim = made, named, claim


@ranks(at_least=2)
@parameters(method=any_order)
def case_a_node_has_no_shared_memory(comm, method):
    """The ranks of a node allocate together, so all of them fail; slots as long as these have a
    region of their own."""
    size, count = comm.size, 200_000
    with no_shared_memory(comm) as raised:
        made, error = outcome(
            lambda: Alltoallv_init(comm, [np.zeros(count * size), [count] * size], None,
                                   method=method)
        )
    told = comm.allgather(error is not None)
    assert len(set(told)) == 1, told
    if error is not None:
        assert any(comm.allgather(raised[0]))
    else:
        made.Free()
    works(comm, method)


@ranks(at_least=2)
@parameters(of=["files", "pages"])
def case_no_memory_for_empty_on_all_ranks(comm, of):
    """Nobody gets shared memory: the same error everywhere, and the next allocation works."""
    with no_shared_memory(comm, of) as raised:
        made, error = outcome(lambda: empty(comm, 100))
    told = comm.allgather(error is not None)
    assert len(set(told)) == 1, told
    assert bool(error) == any(comm.allgather(raised[0]))
    if made is not None:
        free(made)
    memory = empty(comm, 100)
    memory[:] = comm.rank
    free(memory)
    works(comm, "rma-notify")


def everywhere_refused(comm, call):
    """RequestError on every rank."""
    try:
        call()
    except RequestError as error:
        told = str(error)
    else:
        told = None
    assert all(comm.allgather(told)), "not every rank was told"


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
