"""Partitioned sends around a ring, for the case modules: pairs, orders of marks, expectations."""

from __future__ import annotations

import itertools
import re
import threading

import numpy as np
import pytest
from cases import skip

from onesided.collectives import (
    Precv_init,
    Psend_init,
    Startall,
    Waitall,
    empty,
    free,
    partitioned_methods,
)

METHODS = ["auto", *partitioned_methods()]
PARTS = 33 * 17 * 64  # divided by many numbers
GUARD = -7


def able(method):
    """Skip where the MPI's own partitioned send is not to be trusted, with its reason."""
    if method == "mpi":
        from onesided.collectives.partitioned.native import distrust

        if distrust():
            skip(distrust())


def expected(stop, source, turn, start=0):
    return np.arange(start, stop, dtype=np.int64) * 3 + (1000003 * source + 7919 * turn)


class Pair:
    """A send to the right and a receive from the left, with guards around the receive buffer."""

    def __init__(self, comm, method, sends, receives, count=PARTS, aggregate=65536, tag=0,
                 own=True, distance=1, compiled=True):
        self.comm, self.count = comm, count
        self.right = (comm.rank + distance) % comm.size
        self.left = (comm.rank - distance) % comm.size
        self.source = np.zeros(count, np.int64)
        shape = count + 16
        self.shared = empty(comm, shape, np.int64) if own else None
        self.around = np.zeros(shape, np.int64) if self.shared is None else self.shared
        self.around[:] = GUARD
        self.target = self.around[8 : 8 + count]
        self.sends, self.receives = sends, receives
        options = {"method": method, "aggregate": aggregate}
        info = {"compiled": str(compiled)}
        self.send = Psend_init(comm, self.source, sends, self.right, tag, info=info, **options)
        self.receive = Precv_init(comm, self.target, receives, self.left, tag, **options)

    def start(self):
        Startall([self.receive, self.send])

    def fill(self, turn):
        self.source[:] = expected(self.count, self.comm.rank, turn)

    def part(self, turn, index):
        """Fill one partition of the send buffer; mark it afterwards."""
        size = self.count // self.sends
        start, stop = index * size, (index + 1) * size
        self.source[start:stop] = expected(stop, self.comm.rank, turn, start)

    def check(self, turn):
        assert np.array_equal(self.target, expected(self.count, self.left, turn)), (
            turn, np.flatnonzero(self.target != expected(self.count, self.left, turn))[:4])
        assert (self.around[:8] == GUARD).all()
        assert (self.around[8 + self.count :] == GUARD).all()

    def check_part(self, turn, index):
        size = self.count // self.receives
        start, stop = index * size, (index + 1) * size
        part = self.target[start:stop]
        assert np.array_equal(part, expected(stop, self.left, turn, start)), index

    def complete(self):
        Waitall([self.send, self.receive])

    def free(self):
        self.send.Free()
        self.receive.Free()
        if self.shared is not None:
            self.target = self.around = None
            free(self.shared)
            self.shared = None


def meet(pair):
    """A barrier that goes on sending: groups that gather leave while their rank tests."""
    barrier = pair.comm.Ibarrier()
    while not barrier.Test():
        pair.send.Test()


#: The MPI's own may send when all is ready, and MPICH does.
PROMPT = [method for method in METHODS if method != "mpi"]


def left_to_right(pair, turn, seed):
    for index in range(pair.sends):
        pair.part(turn, index)
        pair.send.Pready(index)


def reversed_order(pair, turn, seed):
    for index in reversed(range(pair.sends)):
        pair.part(turn, index)
        pair.send.Pready(index)


def random_order(pair, turn, seed):
    for index in np.random.default_rng([seed, turn, pair.comm.rank]).permutation(pair.sends):
        pair.part(turn, index)
        pair.send.Pready(index)


def at_once(pair, turn, seed):
    pair.fill(turn)
    pair.send.Pready_range(0, pair.sends - 1)


def in_lists(pair, turn, seed):
    order = np.random.default_rng([seed, turn, pair.comm.rank]).permutation(pair.sends)
    pair.fill(turn)
    for some in np.array_split(order, 3):
        pair.send.Pready_list(some)


def in_ranges(pair, turn, seed):
    rng = np.random.default_rng([seed, turn, pair.comm.rank])
    cuts = np.unique([0, pair.sends, *rng.integers(0, pair.sends, 4)])
    ranges = list(itertools.pairwise(cuts))
    for low, stop in [ranges[i] for i in rng.permutation(len(ranges))]:
        for index in range(low, stop):
            pair.part(turn, index)
        pair.send.Pready_range(low, stop - 1)


def from_threads(pair, turn, seed, threads=4):
    order = np.random.default_rng([seed, turn, pair.comm.rank]).permutation(pair.sends)
    pair.fill(turn)
    errors = []

    def work(some):
        try:
            for index in some:
                pair.send.Pready(int(index))
        except Exception as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(some,))
               for some in np.array_split(order, threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not errors, errors


ORDERS = [left_to_right, reversed_order, random_order, at_once, in_lists, in_ranges, from_threads]


def raises(kind, call, text):
    with pytest.raises(kind, match=re.escape(text)):
        call()
