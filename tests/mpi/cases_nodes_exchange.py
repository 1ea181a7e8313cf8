"""Exchanges on several nodes: real ones, virtual ones, or emulated by an info key."""

from __future__ import annotations

import numpy as np
from cases import parameters, ranks, skip
from exchange_data import MEMORY, Vector, tables

from onesided.collectives import UnsupportedError, progress
from onesided.collectives.context import Context
from onesided.collectives.program import CALL, COPY
from onesided.collectives.schedule import Put


def info_of(options):
    return {"ranks_per_node": options["ranks_per_node"]} if "ranks_per_node" in options else None


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


@ranks(at_least=4)
@parameters(layout=LAYOUTS, memory=MEMORY)
def case_nodes_of_every_form(comm, layout, memory):
    """Patterns that are dense, of one direction, and empty, on nodes whose ranks need not follow
    each other."""
    if not Context.of(comm).node().alone:
        skip("what shares no memory cannot be one node")
    within = comm.Dup()
    firsts = [LAYOUTS[layout](rank, comm.size) for rank in range(comm.size)]
    Context.of(within)._firsts = np.array(firsts, np.int32)  # as MPI would have told
    for name, table in tables(comm.size).items():
        exchange = Vector(within, table, "rma-node", memory)
        for turn in range(4):
            try:
                exchange.round(turn)
            except AssertionError as error:
                raise AssertionError(f"pattern {name!r}: {error}") from error
        exchange.free()
    within.Free()


@ranks(at_least=4)
@parameters(memory=MEMORY, slots=["1", "2"])
def case_a_rank_that_receives_for_others_is_elsewhere(comm, memory, slots):
    """It has started, and waits for a message that others send when they have got their data."""
    size, rank = comm.size, comm.rank
    table = np.zeros((size, size), int)
    table[size - 1, : size - 1] = 5  # from the last rank, which has a node of its own
    info = {"ranks_per_node": str(size - 1), "slots": slots}
    exchange = Vector(comm, table, "rma-node", memory, info)
    request, word = exchange.request, np.zeros(1)
    receives = comm.allgather(bool(request.transport._messages._landings))
    node = [r for r in request.operation.node.ranks if r != size - 1]
    receiver = next((r for r in node if receives[r]), None)
    assert (receiver is None) == (not node)
    others = [r for r in node if r != receiver]
    for turn in range(6):
        exchange.fill(turn)
        request.Start()
        if rank == receiver:
            for other in others:
                comm.Recv(word, other)
        exchange.check(turn, request.Wait())
        if rank in others:
            comm.Send(word, receiver)
    exchange.free()


@ranks(at_least=3)
@parameters(method=["rma-p2p", "rma-notify", "rma-node"])
def case_who_is_waited_for_in_words(comm, method):
    """Rounds are counted where their counters are; messages have none."""
    exchange = Vector(comm, tables(comm.size)["uneven"] + 1, method, info={"ranks_per_node": "2"})
    request = exchange.request
    exchange.round(0)
    comm.Barrier()
    words = request.transport.waiting_for(1)
    assert "has sent" not in words, words
    assert ("messages" in words) == (method == "rma-p2p"), words
    assert "has sent 1 of 2" in request.transport.waiting_for(2) or comm.size - 1 == comm.rank == 2
    exchange.free()


@ranks(at_least=2)
def case_what_needs_a_thread_is_refused_without(comm, options):
    """By name, on all ranks, and the next one works; under MPI's lower levels, too."""
    table, info = np.full((comm.size, comm.size), 3), info_of(options) or {}
    manual = {"progress": "manual"} if progress.may_call_from_any_thread() else {}
    text = ""
    try:
        Vector(comm, table, "rma-node", info={**manual, **info})
    except UnsupportedError as error:
        text = str(error)
    assert "rma-node" in text, text
    exchange = Vector(comm, table, "rma-p2p", info=info)
    exchange.round(1)
    exchange.free()
