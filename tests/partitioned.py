"""Partitioned sends around a ring, for the case modules: pairs, orders of marks, expectations."""

from __future__ import annotations

import functools
import itertools

import numpy as np
from columns import together
from mpi4py import MPI
from table import covering

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


def expected(stop, source, turn, start=0):
    return np.arange(start, stop, dtype=np.int64) * 3 + (1000003 * source + 7919 * turn)


class Pair:
    """A send to the right and a receive from the left, with guards around the receive buffer."""

    def __init__(self, comm, method, sends, receives, count=PARTS, aggregate=65536, tag=0,
                 own=True, distance=1, compiled=True, made=True):
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
        self.options = {"tag": tag, "method": method, "aggregate": aggregate}
        self.info = {"compiled": str(compiled)}
        self.send = self.receive = None
        if made:
            self.make_send()
            self.make_receive()

    def make_send(self):
        """Once."""
        if self.send is None:
            self.send = Psend_init(self.comm, self.source, self.sends, self.right, info=self.info,
                                   **self.options)

    def make_receive(self):
        """Once."""
        if self.receive is None:
            self.receive = Precv_init(self.comm, self.target, self.receives, self.left,
                                      **self.options)

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


def left_to_right(pair, turn, seed):
    for index in range(pair.sends):
        pair.part(turn, index)
        pair.send.Pready(index)


def reversed_order(pair, turn, seed):
    for index in reversed(range(pair.sends)):
        pair.part(turn, index)
        pair.send.Pready(index)


def evens_then_odds(pair, turn, seed):
    """No group is beside another at first: each wants an entry of its own on a board."""
    pair.fill(turn)
    for index in (*range(0, pair.sends, 2), *range(1, pair.sends, 2)):
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

    def work(some):
        for index in some:
            pair.send.Pready(int(index))

    together(*[functools.partial(work, some) for some in np.array_split(order, threads)])


ORDERS = [left_to_right, reversed_order, evens_then_odds, random_order, at_once, in_lists,
          in_ranges, from_threads]  # fmt: skip

# -- axes ----------------------------------------------------------------------------------------

#: In what order the two sides come: a send that finds no peer at ``Start`` may meet it in a mark.
NOBODY, RECEIVER, SENDER, BY_A_MARK = "nobody", "receiver", "sender", "met by a mark"

AXES = {
    "method": METHODS,
    "groups": [1, 63, 64, 65, 768],  # a board has 64 entries
    "per": [1, 3, "auto", "large"],  # partitions to a group
    "elements": [1, 40],  # of a partition
    "receives": ["one", "other", "as many"],
    "order": ORDERS,
    "late": [NOBODY, RECEIVER, SENDER, BY_A_MARK],
    "elsewhere": [NOBODY, RECEIVER, SENDER],  # in a call of plain MPI until its peer is done
    "own": [True, False],  # the receive buffer comes from empty
    "compiled": [True, False],
    "asked": [False, True],  # Parrived until it is true, partition by partition
}


def rows(comm):
    """The combinations for so many ranks; only ``rma`` needs memory from ``empty``. And, in every
    way, a board that is full in the round in which the sides meet."""
    found = covering(AXES, 2, comm.size, fits)
    full = {"method": "rma", "groups": 768, "per": 1, "elements": 1, "receives": "one",
            "late": BY_A_MARK, "own": True, "asked": False}  # fmt: skip
    found += [full | {"order": order, "elsewhere": who, "compiled": compiled}
              for order in ORDERS for who in (SENDER, RECEIVER) for compiled in (True, False)]
    return [Row(each) for each in found]


def fits(row):
    """Whether the values that are chosen fit together."""
    return row.get("own", True) or row.get("method") != "rma"


class Row(dict):
    """A combination, with a name to choose it by."""

    def __str__(self):
        return ",".join(getattr(value, "__name__", str(value)) for value in self.values())

    def pair(self, comm):
        """The two ends of a rank, not yet made."""
        per = self["per"] if self["per"] == 3 else 1
        sends = self["groups"] * per - (per > 1)  # the last group is smaller
        receives = {"one": 1, "other": self["elements"], "as many": sends}[self["receives"]]
        whole = 8 * self["elements"] * per
        aggregate = {"auto": 65536, "large": 1 << 40, 1: 0}.get(self["per"], whole)
        return Pair(comm, self["method"], sends, receives, count=sends * self["elements"],
                    aggregate=aggregate, own=self["own"], compiled=self["compiled"], made=False)


def promised():
    """Whether rounds end that nobody advances: below multiple a thread may not call MPI."""
    return MPI.Query_thread() == MPI.THREAD_MULTIPLE
