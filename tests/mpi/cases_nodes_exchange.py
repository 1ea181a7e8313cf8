"""Exchanges on several nodes: real ones, virtual ones, or emulated by an info key."""

from __future__ import annotations

import time
from unittest import mock

import numpy as np
from cases import parameters, ranks, skip
from errors import agreed, raises
from exchange_data import MEMORY, Vector, info_of, tables

from onesided.collectives import (
    Alltoallw_init,
    PatternError,
    UnsupportedError,
    empty,
    free,
    progress,
)
from onesided.collectives.context import Context
from onesided.collectives.schedule import Put
from onesided.collectives.steps import CALL, COPY
from onesided.collectives.transports import node


@ranks(at_least=4)
def case_who_shares_a_node(comm, options):
    """The emulation never joins what is apart, and separates what it is told to."""
    whole = Context.of(comm).node()
    one_by_one = Context.of(comm).node(1)
    assert one_by_one.ranks == [comm.rank]
    assert set(Context.of(comm).node(2).ranks) <= set(whole.ranks)
    if "ranks_per_node" in options:
        assert len(Context.of(comm).node(int(options["ranks_per_node"])).ranks) == int(
            options["ranks_per_node"]
        )


def issued(transport):
    """What a round does for other ranks, in this order."""
    own = transport.arrays[0]
    return [{CALL: "put", COPY: "store"}[step[0]] for chain in transport.plans()[0]
            for step in chain
            if (step[0] == COPY and not np.may_share_memory(step[1], own))
            or isinstance(getattr(step[1], "__self__", None), Put)]


@ranks(at_least=4)
@parameters(method=["rma-fence-hier", "rma-lock-hier"])
def case_off_node_puts_come_first(comm, method, options):
    """Algorithm 2: all Puts to other nodes are issued before anything is stored on this one."""
    info = info_of(options) or {"ranks_per_node": "2"}
    exchange = Vector(comm, np.full((comm.size, comm.size), 3), method, info=info)
    near = len(Context.of(comm).node(int(info["ranks_per_node"])).ranks)
    expected = ["put"] * (comm.size - near) + ["store"] * (near - 1)
    assert issued(exchange.request.transport) == expected
    exchange.round(1)
    exchange.free()


# -- messages of nodes -----------------------------------------------------------------------------

#: The lowest rank of a rank's node, among so many.
LAYOUTS = {
    "pairs": lambda rank, size: rank // 2 * 2,
    "in turn": lambda rank, size: rank % 2,
    "uneven": lambda rank, size: 0 if rank < size - 1 else rank,
    "alone": lambda rank, size: rank,
}


#: Bytes up to which what a node has for another one goes together: nothing, some, or all of it.
TOGETHER = {"none": 0, "some": 200, "all": node.PAIR}


@ranks(at_least=4)
@parameters(layout=LAYOUTS, memory=MEMORY, together=TOGETHER)
def case_nodes_of_every_form(comm, layout, memory, together):
    """Patterns that are dense, of one direction, and empty, on nodes whose ranks need not follow
    each other."""
    if not Context.of(comm).node().alone:
        skip("what shares no memory cannot be one node")
    within = comm.Dup()
    firsts = [LAYOUTS[layout](rank, comm.size) for rank in range(comm.size)]
    Context.of(within)._firsts = np.array(firsts, np.int32)  # as MPI would have told
    for name, table in tables(comm.size).items():
        with mock.patch.object(node, "PAIR", TOGETHER[together]):
            exchange = Vector(within, table, "rma-node", memory)
        for turn in range(4):
            try:
                exchange.round(turn)
            except AssertionError as error:
                raise AssertionError(f"pattern {name!r}: {error}") from error
        exchange.free()
    within.Free()


@ranks(at_least=4, at_most=4)
@parameters(memory=MEMORY, more=[-1, 0, 1])
def case_what_is_short_between_nodes_is_one_message(comm, memory, more):
    """By all bytes of the ranks of a node: as many as PAIR, one element less, or more."""
    table = np.array([[1, 1, 1, 0], [1, 1, 2, 3], [3, 3, 1, 1], [3, 0, 1, 1]])
    table[0, 3] = node.PAIR // 8 - table[:2, 2:].sum() + more
    table[3, 1] = node.PAIR // 8 - table[2:, :2].sum()
    exchange = Vector(comm, table, "rma-node", memory, {"ranks_per_node": "2"})
    messages = comm.allgather(len(sends_of(exchange.request)))
    if Context.of(comm).node(2).counts == (2, 2):
        assert sum(messages[:2]) == (2 if more > 0 else 1)
        assert sum(messages[2:]) == 1
    for turn in range(4):
        exchange.round(turn)
    exchange.free()


def sends_of(request):
    """The messages that a rank starts in a round, whoever's data they have."""
    messages = request.transport._messages
    received = [m for landing in messages._landings.values() for m in landing.receives[0]]
    return [m for chain in messages.chains(0) for step in chain if step[0] == CALL
            if step[1].func.__name__ == "Startall" for m in step[1].args[0] if m not in received]


def leads(request):
    """Whether a rank sends what others of its node have stored."""
    return bool(request.transport._messages.filled)


@ranks(at_least=4)
@parameters(memory=MEMORY, slots=["1", "2"], does=["sends", "receives"],
            away=["Python", "asleep", "Test"], count=[5, 2700])  # fmt: skip
def case_a_rank_that_does_it_for_others_is_elsewhere(comm, memory, slots, does, away, count):
    """It has started, and does not wait before those have their data for whom it sends, or
    receives; the last rank has a node of its own."""
    size, rank, word = comm.size, comm.rank, np.zeros(1)
    table = np.zeros((size, size), int)
    if does == "sends":
        table[: size - 1, size - 1] = count
    else:
        table[size - 1, : size - 1] = count
    exchange = Vector(comm, table, "rma-node", memory,
                      {"ranks_per_node": str(size - 1), "slots": slots})  # fmt: skip
    request = exchange.request
    node = [r for r in request.operation.node.ranks if r != size - 1]
    if does == "sends":
        able, others = comm.allgather(leads(request)), [size - 1]
    else:
        able = comm.allgather(bool(request.transport._messages._landings))
        able = [can and r in node for r, can in enumerate(able)]
        others = [r for r in node if not able[r]]
    one = able.index(True) if any(able) else None
    for turn in range(6):
        exchange.fill(turn)
        if does == "sends" and rank not in (one, size - 1):
            time.sleep(0.002)  # at Start not all is there
        request.Start()
        if rank == one:
            for come in [comm.Irecv(word, other) for other in others]:
                while away == "Python" and not come.Test():
                    sum(range(100))
                while away == "Test" and not come.Test():
                    request.Test()
                come.Wait()
        exchange.check(turn, request.Wait())
        if rank in others and one is not None:
            comm.Send(word, one)
    exchange.free()


@ranks(at_least=2)
def case_what_needs_a_thread_is_refused_without(comm, options):
    """By name, on all ranks, and the next one works; under MPI's lower levels, too."""
    table, info = np.full((comm.size, comm.size), 3), info_of(options) or {}
    manual = {"progress": "manual"} if progress.may_call_from_any_thread() else {}
    agreed(comm, UnsupportedError, lambda: Vector(comm, table, "rma-node", info={**manual, **info}),
           "rma-node")  # fmt: skip
    exchange = Vector(comm, table, "rma-p2p", info=info)
    exchange.round(1)
    exchange.free()


# -- rows that several ranks of a node want --------------------------------------------------------

#: Of the nine rows of a source, those that a target wants.
WANTED = {
    "some": lambda rng, source, target: rng.permutation(9)[: rng.integers(1, 9)],
    "all": lambda rng, source, target: np.arange(9),
    "none twice": lambda rng, source, target: np.arange(target * 2, target * 2 + 2),
    "twice": lambda rng, source, target: np.array([3, 3, 1]),
    "to higher ranks": lambda rng, source, target: np.arange(9)[:: -1 if target % 2 else 1][
        : 9 * (target > source)],
    "from one rank": lambda rng, source, target: np.arange(target % 3, 9 * (source == 1), 2),
    "nothing": lambda rng, source, target: np.arange(0),
}


class Rows:
    """An exchange of rows of x, of so many elements each; a row of x is its number in thousands."""

    def __init__(self, comm, wanted, method, memory, width, info, dtype):
        rng, self.comm, size, rank = np.random.default_rng(5), comm, comm.size, comm.rank
        table = [[WANTED[wanted](rng, s, t) for t in range(size)] for s in range(size)]
        self.table = table
        numbers, came = np.concatenate(table[rank]), [table[s][rank] for s in range(size)]
        self.came = np.concatenate([1000 * s + each for s, each in enumerate(came)])
        rest = (width,) * (width > 1)
        self.window = None
        shape = (len(self.came), *rest)
        if memory == "own":
            recv = (shape, dtype)
        elif memory == "window":
            recv = self.window = empty(comm, shape, dtype)
        else:
            recv = np.zeros(shape[::-1], dtype).T
        self.buffers = [np.zeros((len(numbers), *rest), dtype), boxes(table[rank])], [
            recv, boxes(came)]
        self.request = Alltoallw_init(
            comm, *self.buffers, method=method, info=info, rows=numbers)
        numbers[:] = 99  # the caller's again

    def round(self, turn):
        array, rows = self.request.packed
        array.T[...] = rows + 1000 * self.comm.rank + 10**5 * turn
        self.request.Start()
        got = self.request.Wait()
        np.testing.assert_array_equal(got.T, np.broadcast_to(
            self.came + 10**5 * turn, got.T.shape).astype(got.dtype))

    def free(self):
        self.request.Free()
        if self.window is not None:
            free(self.window)


def boxes(rows):
    ends = np.cumsum([len(each) for each in rows])
    return [(slice(end - len(each), end),) if len(each) else None
            for each, end in zip(rows, ends.tolist(), strict=True)]


@ranks(at_least=2)
@parameters(wanted=WANTED, layout=LAYOUTS, memory=MEMORY, width=[1, 3], dtype=["f8", "u4", "c16"],
            together=TOGETHER)
def case_no_row_leaves_a_node_twice(comm, wanted, layout, memory, width, dtype, together):
    """A message has the rows that its node wants, each once; to this node go all blocks."""
    if not Context.of(comm).node().alone:
        skip("what shares no memory cannot be one node")
    within, rank, size = comm.Dup(), comm.rank, comm.size
    firsts = np.array([LAYOUTS[layout](each, size) for each in range(size)], np.int32)
    Context.of(within)._firsts = firsts
    with mock.patch.object(node, "PAIR", TOGETHER[together]):
        rows = Rows(within, wanted, "rma-node", memory, width, None, dtype)
    for turn in range(4):
        rows.round(turn)
    mine, near = rows.table[rank], firsts == firsts[rank]
    once = [np.unique(np.concatenate([mine[t] for t in np.flatnonzero(firsts == first)]))
            for first in np.unique(firsts) if first != firsts[rank]]
    sent = sum(len(each) for t, each in enumerate(mine) if near[t]) + sum(map(len, once))
    assert len(rows.request.packed[0]) == sent
    again = rows.request.like(*rows.buffers)
    rows.request.Free()
    rows.request = again
    for turn in range(2):
        rows.round(turn)
    rows.free()
    within.Free()


@parameters(method=["auto", "p2p", "rma-notify", "rma-p2p", "mpi-persistent"], width=[1, 3])
def case_rows_by_every_method(comm, method, width, options):
    """Who sends to ranks alone takes them from the send array."""
    rows = Rows(comm, "some", method, "own", width, info_of(options), "f8")
    for turn in range(3):
        rows.round(turn)
    rows.free()


def case_rows_that_are_none(comm):
    """Refused on all ranks, whoever has a mistake."""
    square, all_rows, mistaken = np.zeros((4, 4)), [(slice(0, 4),)] * comm.size, (
        comm.rank == comm.size - 1)
    recv = [((4 * comm.size, 4), float), [(slice(4 * s, 4 * s + 4),) for s in range(comm.size)]]
    for send, each, rows, words in (
        (square, all_rows, np.arange(3), "rows"), (square, all_rows, np.zeros((4, 4), int), "rows"),
        (square, [(slice(0, 4), slice(0, 2))] * comm.size, np.arange(4), "rows"),
        (square.T[:, :2], all_rows, np.arange(4), "rows"),
        (square, all_rows, [0.2, 0.7, 1, 2], "not integers"),
    ):  # fmt: skip
        given = ([send, each], rows) if mistaken else ([square, all_rows], np.arange(4))
        agreed(comm, PatternError, lambda given=given: Alltoallw_init(
            comm, given[0], recv, method="rma-node", rows=given[1]), words)  # fmt: skip
    with Alltoallw_init(comm, [square, all_rows], recv, method="p2p") as request:
        raises(UnsupportedError, lambda: request.packed, "no numbers")
