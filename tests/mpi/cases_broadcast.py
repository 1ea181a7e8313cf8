"""Persistent broadcasts beside the table: roots in turn, forms of a buffer, trees of nodes."""

from __future__ import annotations

import numpy as np
from cases import parameters, ranks
from errors import agreed, raises
from exchange_data import info_of
from subjects import make
from table import Cell

from onesided.collectives import (
    Bcast_init,
    PatternError,
    RequestError,
    alternate,
    empty,
    free,
    methods,
)
from onesided.collectives.broadcast.board import SHORT


def names():
    return list(methods("broadcast"))


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
    if methods("broadcast")[method].any_order and comm.size > 1:
        raises(RequestError, lambda: alternate(requests[:2]), "cannot alternate")
    for request in requests:
        request.Free()
    if memory == "window":
        free(buffer)


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
    last = comm.size > 1 and me == comm.size - 1
    for kinds in [("f8", "i8"), ([("a", "f4"), ("b", "f4")], [("a", "i4"), ("b", "f4")])]:
        array = np.zeros(3, kinds[last])
        if comm.size > 1:
            agreed(comm, PatternError, lambda array=array: sent(array), "the root, rank 0, sends")
        else:
            sent(array)


@ranks(at_least=3)
@parameters(method=["rma-binomial", "rma-pipelined"], per_node=[1, 2], root=["first", "last"])
def case_one_copy_into_every_node(comm, method, per_node, root):
    """Links go between nodes only, one into each; the root leads its own."""
    root = 0 if root == "first" else comm.size - 1
    cast = make(comm, Cell("Bcast", method, memory="plain", root=root, nodes=str(per_node)))
    parents = comm.allgather(cast.request.transport.place.parent)
    nodes = [rank // per_node for rank in range(comm.size)]
    into = [nodes[rank] for rank, above in enumerate(parents) if above is not None]
    assert sorted(into) == sorted(set(nodes) - {nodes[root]})
    for rank, above in enumerate(parents):
        assert above is None or nodes[above] != nodes[rank]
    for turn in range(3):
        cast.round(turn)
    cast.free()


@ranks(at_least=3, at_most=8)
@parameters(order=["largest-first", "low-bit-first"])
def case_child_order(comm, order):
    cast = make(comm, Cell("Bcast", "rma-binomial", memory="plain", nodes="1",
                           said=(("child_order", order),)))  # fmt: skip
    want = sorted((bit for bit in (1, 2, 4) if bit < comm.size), reverse=order == "largest-first")
    if comm.rank == 0:
        assert list(cast.request.transport.place.children) == want
    for turn in range(3):
        cast.round(turn)
    cast.free()
