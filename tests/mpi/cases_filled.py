"""Rounds that the caller fills: opened where it is granted, started where it is not."""

from __future__ import annotations

import functools
import time

import numpy as np
from cases import parameters, ranks
from cases_table import forked
from errors import raises
from exchange_data import MEMORY, info_of, names
from filled_data import SHAPE, Turn, read_slowly
from subjects import make
from table import Cell

from onesided.collectives import (
    Alltoall_init,
    Alltoallw_init,
    PatternError,
    RequestError,
    alternate,
    empty,
    free,
    methods,
)
from onesided.collectives.testing import EVEN, Buffer

MOST = [name for name in names() if name != "auto"]  # which becomes one of the others
DIRECT = [
    name for name in names() if getattr(methods()[name].load(), "direct", False)
]
ALWAYS = ["rma-fence", "rma-fence-hier", "p2p"]  # every round of theirs can be opened


@parameters(method=MOST, memory=MEMORY, axis=[0, 1, 2])
def case_opened_and_started_as_it_comes(comm, method, memory, axis, seed, options):
    for cuts, turned in ((None, False), (3, False), (2, True)):
        exchange = Turn(comm, method, memory, axis=axis, cuts=cuts, turned=turned,
                        info=info_of(options), permute=turned)
        random = np.random.default_rng([seed, comm.rank])
        for turn in range(5):
            order = [int(k) for k in random.permutation(exchange.chunks)]
            exchange.begin(turn, bool(random.integers(2)) if turn else True, order)
            exchange.check(turn, exchange.request.Wait())
            if random.integers(2):
                exchange.request.Release()
        exchange.free()


@parameters(method=MOST, memory=MEMORY)
def case_open_is_possible_after_release(comm, method, memory, options):
    """All ranks have released: Open is True, off the node as soon as the credits have come."""
    exchange = Turn(comm, method, memory, cuts=3, info=info_of(options))
    for turn in range(4):
        exchange.request.Release()
        exchange.request.Release()  # twice is once
        comm.Barrier()
        deadline = time.monotonic() + 20
        while not exchange.begin(turn, starts=False) and exchange.request.direct:
            assert time.monotonic() < deadline, "the credit does not come"
        if not exchange.request.direct:
            exchange.begin(turn)
        exchange.check(turn, exchange.request.Wait())
    assert exchange.opened == (4 if exchange.request.direct else 0)
    exchange.free()


@parameters(method=MOST, other=["same", "p2p", "rma-notify"])
def case_two_requests_alternate_in_one_memory(comm, method, other, options):
    """There and back through one array; one that runs ahead must not overwrite what is read."""
    shape = (6, 2 * comm.size + 1, 3)
    pair = [method, method if other == "same" else other]
    memory = empty(comm, int(np.prod(shape)), np.int64)
    there, back = (
        Turn(comm, name, turned=bool(i), cuts=2 + i, shape=shape, into=memory,
             info=info_of(options))
        for i, name in enumerate(pair)
    )
    alternate([there.request, back.request])
    for turn in range(50):
        exchange = (there, back, back, there, there)[turn % 5]
        delay = [0, 0, 0]  # of one rank in turn: before a round, in it, after it
        delay[turn % 3] = 0.001 * (turn // 3 % comm.size == comm.rank)
        time.sleep(delay[0])
        pause = functools.partial(time.sleep, delay[1])
        exchange.begin(turn, (turn + comm.rank) % 7 != 0, pause=pause)
        read_slowly(exchange, turn, delay[2])
        if (turn + comm.rank) % 5:
            (there if turn % 2 else back).request.Release()  # one says so for both
    there.free()
    back.begin(50)
    back.check(50, back.request.Wait())
    back.free()
    free(memory)


@parameters(method=MOST)
def case_alternating_with_different_neighbors(comm, method, options):
    """A pair of ranks that exchanges nothing in one of the requests: rounds count all the same."""
    size, rank = comm.size, comm.rank
    memory = empty(comm, 2 * size, np.int64)
    shifts, requests, sends = (1, 0, size // 2), [], []
    for shift in shifts:
        to, source = (rank + shift) % size, (rank - shift) % size
        send = np.zeros(2, np.int64)
        boxes = [(slice(0, 2),) if peer == to else None for peer in range(size)]
        places = [(slice(2 * source, 2 * source + 2),) if peer == source else None
                  for peer in range(size)]
        requests.append(Alltoallw_init(comm, [send, boxes], [memory, places], method=method,
                                       info=info_of(options), chunks=(0, (1, 2))))
        sends.append(send)
    alternate(requests)
    for turn in range(40):
        which = (turn // 2) % 3 if turn < 30 else 0  # for a while only one of them
        request, source = requests[which], (rank - shifts[which]) % size
        data = 1000 * turn + 10 * rank + np.arange(2)
        if request.Open():
            for chunk in (1, 0):
                for _, part, array in request.outlets[chunk]:
                    array[...] = data[part]
                request.Ready(chunk)
        else:
            sends[which][...] = data
            request.Start()
        got = request.Wait()
        if turn % size == rank:
            time.sleep(0.001)
        want = 1000 * turn + 10 * source + np.arange(2)
        np.testing.assert_array_equal(got[2 * source : 2 * source + 2], want)
        if turn % 3:
            request.Release()
    for request in requests:
        request.Free()
    free(memory)


@parameters(method=MOST, apart=["types", "misaligned", "of one byte"])
def case_what_one_side_describes_in_another_way(comm, method, apart, options):
    """Boxes on one side, and on the other a type for every block, or places that suit no element:
    the bytes are the same, to oneself, too."""
    size, rank, n = comm.size, comm.rank, 6
    codes = ["b", "B"] if apart == "of one byte" else ["d", "i"] if apart == "types" else ["d"]
    codes = [codes[source % len(codes)] for source in range(size)]
    send = np.zeros((size, n), codes[rank])
    widths = [n * np.dtype(code).itemsize for code in codes]
    displs = np.cumsum([apart == "misaligned", *widths[:-1]]).tolist()
    recv = np.zeros(displs[-1] + widths[-1], np.uint8)
    with Alltoallw_init(
        comm, [send, [(slice(p, p + 1),) for p in range(size)]],
        [recv, [n] * size, displs, codes], method=method, info=info_of(options),
    ) as request:  # fmt: skip
        for turn in range(3):
            data = (turn + rank + np.arange(size * n).reshape(size, n)).astype(send.dtype)
            if request.Open():
                for _, part, array in request.outlets[0]:
                    assert array.dtype == send.dtype
                    array[...] = data[part]
                request.Ready(0)
            else:
                send[...] = data
                request.Start()
            request.Wait()
            for source, code in enumerate(codes):
                got = recv[displs[source] :][: widths[source]].view(code)
                assert np.all(got == turn + source + n * rank + np.arange(n)), (source, got)
            request.Release()


@parameters(method=names, holes=[False, True])
def case_outlets_of_every_round(comm, method, holes):
    """They are there whatever the types, and the same after as many rounds as there are slots."""
    send, recv = Buffer([3] * comm.size, EVEN, holes), Buffer([3] * comm.size, EVEN, holes)
    send.array[:] = comm.rank
    with Alltoall_init(comm, send.spec(), recv.spec(), method=method) as request:
        for _ in range(3):
            request.Start()
            every = {(to, array.size) for chunk in request.outlets for to, _, array in chunk}
            assert every == {(to, 3) for to in range(comm.size)}
            request.Wait()
    send.free()
    recv.free()


@parameters(method=names)
def case_misuse(comm, method):
    exchange = Turn(comm, method, cuts=2)
    request = exchange.request
    assert len(request.outlets) == exchange.chunks == 2
    raises(RequestError, lambda: request.Ready(0), "no chunk")
    exchange.begin(0, opens=False)
    raises(RequestError, lambda: request.Ready(0), "no chunk")
    raises(RequestError, request.Open, "active request cannot be opened")
    raises(RequestError, request.Release, "active request cannot be released")
    exchange.check(0, request.Wait())
    if method in ALWAYS:
        assert request.Open()
        for call in (request.Wait, request.Test):
            raises(RequestError, call, "[0, 1]", "not ready")
        data = exchange.whole(1)[exchange.source]
        for _, part, array in (outlet for chunk in request.outlets for outlet in chunk):
            array[...] = data[part]
        raises(RequestError, lambda: request.Ready(2), "does not exist")
        raises(RequestError, lambda: request.Ready(-1), "does not exist")
        request.Ready(1)
        raises(RequestError, lambda: request.Ready(1), "ready already")
        raises(RequestError, request.Wait, "[0]")
        raises(RequestError, request.Start, "active")
        request.Ready(0)
        raises(RequestError, lambda: request.Ready(0), "no chunk")
        exchange.check(1, request.Wait())
    exchange.free()
    for call in (request.Open, request.Release, lambda: request.outlets):
        raises(RequestError, call, "freed request")
    raises(RequestError, lambda: request.Ready(0))


@ranks(at_least=2)
@parameters(method=["rma-notify", "p2p"])
def case_a_child_that_is_forked_while_a_round_is_filled(comm, method):
    """To fill it is the parent's."""
    exchange = Turn(comm, method, "own", cuts=2)
    for turn in range(2):
        exchange.begin(turn, pause=lambda: forked(comm, [exchange.request]))
        exchange.check(turn, exchange.request.Wait())
    exchange.free()


@parameters(row=["Alltoallv", "Allgather"])
def case_in_place_is_not_opened_nor_given_up(comm, row):
    """What Start reads may be in the receive memory: peers do not write there earlier."""
    subject = make(comm, Cell(row, "rma-notify", memory="window", layout="in place"))
    for turn in range(4):
        subject.fill(turn)
        if row == "Alltoallv":
            subject.request.Release()
            assert subject.request.Open() is False
            assert not subject.request.direct
        subject.request.Start()
        subject.check(turn, subject.request.Wait())
    subject.free()


@parameters(method=MOST)
def case_requests_that_cannot_alternate(comm, method):
    memory = empty(comm, 2 * int(np.prod(SHAPE)), np.int64)
    a, b = (Turn(comm, method, into=memory) for _ in range(2))
    other = comm.Dup()
    elsewhere = Turn(other, method, "plain")
    raises(RequestError, lambda: alternate([a.request, a.request]), "twice")
    raises(RequestError, lambda: alternate([a.request, elsewhere.request]), "communicators")
    elsewhere.free()
    other.Free()
    own = Turn(comm, method, "own")
    if len(own.request.transport.arrays) == 2:
        raises(RequestError, lambda: alternate([a.request, own.request]), "two slots")
    own.free()
    alternate([])
    alternate([a.request, b.request])
    raises(RequestError, lambda: alternate([a.request, b.request]), "already")
    a.begin(0, opens=False)
    for call in (b.request.Start, b.request.Open, b.request.Release):
        raises(RequestError, call, "same memory is active")
    a.check(0, a.request.Wait())
    b.begin(1)
    b.check(1, b.request.Wait())
    raises(RequestError, lambda: alternate([b.request]), "used or freed")
    a.free()
    b.free()
    free(memory)


@parameters(method=["rma-notify", "mpi"])
def case_bad_chunks(comm, method):
    size = comm.size
    send = np.zeros((4, 2 * size))
    boxes = [(slice(0, 4), slice(2 * p, 2 * p + 2)) for p in range(size)]
    uneven = [(slice(0, 2 + 2 * (p == 0)), slice(2 * p, 2 * p + 2)) for p in range(size)]

    def init(chunks, boxes=boxes):
        spec = [np.zeros((4 * size, 2)), [(slice(4 * p, 4 * p + 4),) for p in range(size)]]
        return Alltoallw_init(comm, [send, boxes], spec, method=method, chunks=chunks)

    for chunks, words in [
        ((2, (4,)), ["axis 2", "2 dimensions"]),
        ((0, (2, 3)), ["(2, 3)", "extent 4"]),
        ((0, (2, 2, 4)), ["(2, 2, 4)"]),
        ((0, (0, 4)), ["(0, 4)"]),
        ((0, ()), ["extent 4"]),
        ((0, (1.5, 4)), ["(axis, stops)"]),
        (3, ["(axis, stops)"]),
    ]:
        raises(PatternError, lambda chunks=chunks: init(chunks), *words)
    if size > 1:
        raises(PatternError, lambda: init((0, (4,)), uneven), "extent")
    only = (0, (9,)) if comm.rank == size - 1 else (-2, (1, 4))  # one rank's error is everybody's
    raises(PatternError, lambda: init(only), "(9,)")
    init((-2, (1, 4))).Free()


@parameters(method=[name for name in DIRECT if name.startswith("rma")], memory=MEMORY)
def case_outlets_stay_mapped(comm, method, memory):
    """A late look at an outlet, even a write, is no segmentation fault."""
    exchange = Turn(comm, method, memory, cuts=2)
    exchange.begin(0)
    exchange.check(0, exchange.request.Wait())
    held = [array for chunk in exchange.request.outlets for _, _, array in chunk]
    assert held or not exchange.send.size
    exchange.free()
    comm.Barrier()
    for array in held:
        array[...] = array + 1
    comm.Barrier()
