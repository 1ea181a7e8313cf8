"""What every persistent broadcast keeps: data, the life of a request, order, and agreed errors."""

from __future__ import annotations

import numpy as np
from broadcast_data import GARBAGE, MEMORY, Cast, any_order, info_of, names
from cases import parameters, ranks
from cases_buffers import raises

from onesided.collectives import (
    Bcast_init,
    RequestError,
    alternate,
    empty,
    free,
    methods,
)
from onesided.collectives.broadcast.board import SHORT


@parameters(method=names)
def case_data_in_many_segments(comm, method, options):
    info = info_of(options, segment_bytes="1000")
    cast = Cast(comm, 123_457, comm.size - 1, method, "mixed", info)
    for turn in range(3):
        cast.round(turn)
    cast.free()


@parameters(method=names, memory=["window", "plain"])
def case_roots_in_turn(comm, method, memory, options):
    """One request per root, all of them into the same memory of every rank, one after the other."""
    count = SHORT + 77
    buffer = empty(comm, count, np.uint8) if memory == "window" else np.empty(count, np.uint8)
    requests = [
        Bcast_init(comm, buffer, root, method=method, info=info_of(options))
        for root in range(comm.size)
    ]
    for turn in range(3):
        for root, request in enumerate(requests):
            buffer[:] = 10 * turn + root + 1 if comm.rank == root else 0
            request.Start()
            assert np.all(request.Wait() == 10 * turn + root + 1)
    for request in requests:
        request.Free()
    if memory == "window":
        free(buffer)


@parameters(method=any_order)
def case_alternating_broadcasts_are_refused(comm, method):
    casts = [Cast(comm, 10, 0, method) for _ in range(2)]
    raises(RequestError, lambda: alternate([cast.request for cast in casts]), "cannot alternate")
    for cast in casts:
        cast.round(1)
        cast.free()


@parameters(method=names)
def case_specifications(comm, method):
    me = comm.rank

    def sent(buf, root=0):
        with Bcast_init(comm, buf, root, method=method) as request:
            request.Start()
            return request.Wait()

    array = np.arange(12.0) if me == 0 else np.zeros(12)
    assert sent([array, 5, "d"]) is array
    assert list(array) == [0, 1, 2, 3, 4, *(range(5, 12) if me == 0 else [0] * 7)]
    array = np.arange(12.0) if me == 0 else np.zeros(12)
    sent([array, (3, 6), "d"])
    assert list(array[6:9]) == [6, 7, 8]
    assert not array[9:].any() or me == 0
    data = bytes(range(50)) if me == 0 else bytearray(50)  # the root's may be read-only
    assert bytes(sent(data)) == bytes(range(50))
    plane = np.arange(6).reshape(2, 3) if me == 0 else np.zeros((2, 3), int)
    assert sent(plane).tolist() == [[0, 1, 2], [3, 4, 5]]
    turned = np.asfortranarray(np.arange(6).reshape(2, 3) * (me == 0))
    assert sent(turned).tolist() == [[0, 1, 2], [3, 4, 5]]


def case_auto_leaves_the_buffer_alone(comm, options):
    for memory in MEMORY:
        cast = Cast(comm, 5000, 0, "auto", memory, info_of(options, expected_iterations="50"))
        assert np.all(cast.buffer == GARBAGE)
        assert methods("broadcast")[cast.request.method].any_order
        cast.round(1)
        cast.free()


@ranks(at_least=3)
@parameters(method=["rma-binomial", "rma-pipelined"])
def case_one_copy_into_every_node(comm, method):
    """Links go between nodes only, one into each; the root leads its own."""
    for per_node in (1, 2):
        for root in (0, comm.size - 1):
            info = {"ranks_per_node": str(per_node)}
            cast = Cast(comm, 1000, root, method, "plain", info)
            parents = comm.allgather(cast.request.transport.place.parent)
            nodes = [rank // per_node for rank in range(comm.size)]
            into = [nodes[rank] for rank, above in enumerate(parents) if above is not None]
            assert sorted(into) == sorted(set(nodes) - {nodes[root]})
            for rank, above in enumerate(parents):
                assert above is None or nodes[above] != nodes[rank]
            for turn in range(3):
                cast.round(turn)
            cast.free()


@ranks(at_least=4, at_most=8)
@parameters(order=["largest-first", "low-bit-first"])
def case_child_order(comm, order):
    info = {"ranks_per_node": "1", "child_order": order}
    cast = Cast(comm, 1000, 0, "rma-binomial", "plain", info)
    want = sorted((bit for bit in (1, 2, 4) if bit < comm.size), reverse=order == "largest-first")
    if comm.rank == 0:
        assert list(cast.request.transport.place.children) == want
    for turn in range(3):
        cast.round(turn)
    cast.free()
