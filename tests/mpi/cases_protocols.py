"""The step lists that exchanges, broadcasts and halos lower a round to, explored exhaustively.

Every rank names the memory and the counters of its steps by owner and offset; rank 0 explores all
interleavings of three or four rounds, and again without each thing that can be left out.
"""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from cases import parameters, ranks, skip
from exploration import Participant, ProtocolError, explore, filled, spared
from lowered import Ends, Names, wires

from onesided.collectives import (
    Alltoallv_init,
    Alltoallw_init,
    Bcast_init,
    HaloExchange,
    alternate,
    empty,
    free,
)
from onesided.collectives.arena import Arena
from onesided.collectives.context import Context
from onesided.collectives.halo import plan as halo_plan
from onesided.collectives.halo.faces import Place, grid_faces, listed_faces
from onesided.collectives.memory import find_region
from onesided.collectives.transports import node

pytestmark = pytest.mark.one_mpi

ROUNDS = 4


def names_of(comm, context, memory=None, most=64, ends=None):
    """Of control memory, by region and owner, and of an array from ``empty``."""
    regions = dict(Arena.of(context).regions)
    if memory is not None:
        regions["empty"] = find_region(memory)
    parts = [((str(number), rank), region.part(rank)) for number, region in regions.items()
             for rank in range(region.node.comm.size)]
    return Names(parts, comm.rank, most, ends)


def participant(names, transport):
    """What this rank does; None where a step is not one of shared memory."""
    plans = [names.plan(plan) for plan in transport.plans()]
    if any(plan is None for plan in plans):
        return None
    return Participant(plans, [names.cell(cell) for cell in transport.creditor()])


def patterns(size):
    """By name, who sends to whom."""
    everybody = {(a, b) for a in range(size) for b in range(size)}
    return {
        "all to all": everybody,
        "to the next": {(a, (a + 1) % size) for a in range(size)},
        "to rank 0": {(a, 0) for a in range(1, size)},
        "from rank 0": {(0, b) for b in range(1, size)},
    }


@parameters(
    pattern=["all to all", "to the next", "to rank 0", "from rank 0"],
    kind=["own", "one slot", "plain", "empty", "long in empty", "mixed"],
)
def case_exchange(comm, pattern, kind):
    if comm.size > 2 and pattern == "all to all":
        skip("too many states: the pairs are explored on two ranks")
    size, edges = comm.size, patterns(comm.size)[pattern]
    n = 40_000 if kind == "long in empty" else 4
    out = [n * ((comm.rank, peer) in edges) for peer in range(size)]
    into = [n * ((peer, comm.rank) in edges) for peer in range(size)]
    send, recv, memory = np.zeros(max(sum(out), 1), np.uint8), None, None
    mine = kind if kind != "mixed" else ("own", "plain", "long in empty")[comm.rank % 3]
    needs_empty = kind in ("empty", "long in empty", "mixed")
    if needs_empty:
        memory = empty(comm, max(sum(into), 1), np.uint8)
    if mine in ("empty", "long in empty"):
        recv = memory
    elif mine == "plain":
        recv = np.zeros(max(sum(into), 1), np.uint8)
    request = Alltoallv_init(
        comm, [send, out], None if recv is None else [recv, into], method="rma-notify",
        info={"slots": "1"} if kind == "one slot" else None,
    )  # fmt: skip
    names = names_of(comm, request.operation.context, memory, 1)
    me = participant(names, request.transport)
    starts = np.cumsum([0, *out])
    me.sends = [place for p in range(size) if out[p] for place in names.of(send[starts[p] :])]
    sources = comm.allgather([
        names.of(send[starts[p] :]) if out[p] else None for p in range(size)
    ])
    landed = np.cumsum([0, *into])
    arrays = request.transport.arrays
    me.reads = [
        {names.of(arrays[t % len(arrays)][landed[p] :])[0]: sources[p][comm.rank]
         for p in range(size) if into[p]}
        for t in range(request.transport.turns)
    ]  # fmt: skip
    examine(comm, me, edges, [request, memory])


@parameters(
    pattern=["all to all", "to the next", "to rank 0", "from rank 0"],
    way=["rma-notify, own", "rma-notify, one slot", "rma-notify, plain", "rma-notify, empty",
         "rma-fence, own", "rma-fence, plain"],
)
def case_filled(comm, pattern, way):
    """Of three rounds the caller writes two in two chunks, where Open says so; else it starts."""
    if comm.size > 2 and pattern == "all to all":
        skip("too many states: the pairs are explored on two ranks")
    fill(comm, patterns(comm.size)[pattern], *way.split(", "))


@ranks(at_least=2, at_most=2)
def case_filled_messages(comm):
    """Every chunk is a message."""
    fill(comm, {(0, 1)}, "p2p", "plain", rounds=2)


def fill(comm, edges, method, kind, rounds=ROUNDS):
    size, rank = comm.size, comm.rank
    boxes = [(slice(2 * peer, 2 * peer + 2),) for peer in range(size)]
    out, into = ([box if edge in edges else None for box, edge in zip(boxes, of, strict=True)]
                 for of in ([(rank, p) for p in range(size)], [(p, rank) for p in range(size)]))
    send, memory = np.zeros(2 * size, np.uint8), None
    recv = ((2 * size,), np.uint8) if "o" in kind else np.zeros(2 * size, np.uint8)
    if kind == "empty":
        recv = memory = empty(comm, 2 * size, np.uint8)
    context = Context.of(comm)
    ends = Ends(context)
    request = Alltoallw_init(
        comm, [send, out], [recv, into], method=method, chunks=(0, [1, 2]) if any(out) else None,
        info={"slots": "1"} if kind == "one slot" else None,
    )  # fmt: skip
    transport = request.transport
    names = names_of(comm, context, memory, ends=ends)
    me = participant(names, transport)
    outlets, laid = transport.outlets(), transport.filled_plans()
    for turn, plan in enumerate(map(names.plan, laid)):
        chunks = [[("copy", names.of(array), names.of(send[part])) for _, part, array in chunk]
                  + ends.begun(array for _, _, array in chunk)
                  for chunk in outlets[turn % len(outlets)]]  # fmt: skip
        chunks = [[step for step in chunk if step[1:2] != step[2:3]] for chunk in chunks]
        later = [step for chain in plan for step in chain] + [s for each in chunks for s in each]
        opening = [step for chain in me.plans[turn] for step in chain
                   if step[0] in ("raise", "await") and step not in later]
        if all(step[0] == "await" for step in opening):  # Open looks, and waits for nothing
            me.asks, opening = opening, []
        me.filled = [*me.filled, filled(rank, opening, chunks, plan)]
    me.opens = [(rank + i) % 3 > 0 for i in range(3)]  # in other rounds than the next rank
    me.sends = [place for box in out if box for place in names.of(send[box])]
    sources, arrays = comm.allgather([box and names.of(send[box]) for box in out]), transport.arrays
    me.reads = [
        {place: source for p, box in enumerate(into) if box
         for place, source in zip(names.of(arrays[t % len(arrays)][box]), sources[p][rank],
                                  strict=True)}
        for t in range(transport.turns if hasattr(transport, "turns") else len(arrays))
    ]  # fmt: skip
    needed = "credits" if (method, kind) == ("rma-notify", "empty") and size == 2 else ""
    examine(comm, me, edges, [request, memory], needed, ends.named(names), rounds)


#: Who sends to whom, where the last of three ranks has a node of its own, or two nodes have two.
BETWEEN = {
    "to a node": {(2, 0), (2, 1)},
    "from a node": {(0, 2), (1, 2)},
    "and to each other": {(2, 0), (2, 1), (0, 1)},
    "from each": {(0, 2), (1, 3)},
    "from two": {(0, 3), (1, 2), (1, 3)},
}


@ranks(at_least=3, at_most=3)
@parameters(pattern=["to a node", "from a node", "and to each other"], kind=["own", "plain"],
            way=["rank", "node"])
def case_messages_of_nodes(comm, pattern, kind, way):
    """One rank of a node sends, or receives, what is of, or for, both."""
    if way == "rank" and pattern != "from a node":
        skip("one rank sends")
    between_nodes(comm, pattern, kind, way)


@ranks(at_least=4, at_most=4)
@parameters(pattern=["from each", "from two"])
def case_messages_of_pairs_of_nodes(comm, pattern):
    """Both: what the one sends when it has got it, the other one receives."""
    between_nodes(comm, pattern, "own", "node")


def between_nodes(comm, pattern, kind, way):
    size, rank, edges = comm.size, comm.rank, BETWEEN[pattern]
    out = [int((rank, peer) in edges) for peer in range(size)]
    into = [int((peer, rank) in edges) for peer in range(size)]
    send = np.zeros(max(sum(out), 1), np.uint8)
    recv = None if kind == "own" else [np.zeros(max(sum(into), 1), np.uint8), into]
    context = Context.of(comm)
    ends = Ends(context)
    with mock.patch.object(node, "PAIR", node.PAIR if way == "node" else 0):
        request = Alltoallv_init(
            comm, [send, out], recv, method="rma-node", info={"ranks_per_node": "2"})
    names = names_of(comm, context, ends=ends)
    me, starts = participant(names, request.transport), np.cumsum([0, *out])
    me.sends = names.of(send[: sum(out)])
    sources = comm.allgather([names.of(send[starts[p] :][: out[p]]) for p in range(size)])
    landed, arrays = np.cumsum([0, *into]), request.transport.arrays
    me.reads = [
        {names.of(arrays[t % len(arrays)][landed[p] :])[0]: sources[p][rank]
         for p in range(size) if into[p]}
        for t in range(request.transport.turns)
    ]  # fmt: skip
    needed = "all" if pattern in ("to a node", "from a node") and way == "node" else ""
    examine(comm, me, edges, [request], needed, ends.named(names))


@ranks(at_least=3, at_most=3)
@parameters(kind=["own", "plain"])
def case_rows_of_nodes(comm, kind):
    """Two rows for both ranks of a node, the second of which gathers them the other way round."""
    rank, context = comm.rank, Context.of(comm)
    numbers = np.array([0, 1, 1, 0] if rank == 2 else [], np.int64)
    boxes = [(slice(0, 2),), (slice(2, 4),), None] if rank == 2 else [None] * 3
    into = [None, None, (slice(0, 2),) if rank < 2 else None]
    shape = 2 * (rank < 2)
    recv = (shape, np.uint8) if kind == "own" else np.zeros(shape, np.uint8)
    ends = Ends(context)
    request = Alltoallw_init(
        comm, [np.zeros(len(numbers), np.uint8), boxes], [recv, into], method="rma-node",
        info={"ranks_per_node": "2"}, rows=numbers)
    names = names_of(comm, context, ends=ends)
    me, array = participant(names, request.transport), request.packed[0]
    assert len(array) == 2 * (rank == 2)
    me.sends = names.of(array)
    sources = comm.bcast(names.of(array), 2)
    mine = {0: sources, 1: sources[::-1], 2: []}[rank]
    arrays = request.transport.arrays
    me.reads = [dict(zip(names.of(arrays[t % len(arrays)]), mine, strict=True))
                for t in range(request.transport.turns)]
    examine(comm, me, [0], [request], "all", ends.named(names))


@parameters(method=["rma-linear", "rma-binomial"], kind=["plain", "empty"], nbytes=[64, 70_000])
def case_broadcast(comm, method, kind, nbytes):
    memory = empty(comm, nbytes, np.uint8) if kind == "empty" else None
    data = np.zeros(nbytes, np.uint8) if memory is None else memory
    request = Bcast_init(comm, data, 0, method=method)
    names = names_of(comm, request.operation.context, memory, 1)
    me = participant(names, request.transport)
    if not all(comm.allgather(me is not None)):
        give_back([request, memory])
        skip("a round has steps that are not of shared memory")
    # a round copies in pieces: what begins at the buffer's start is followed
    source = comm.bcast(names.of(data))
    if comm.rank == 0:
        me.sends = source
    else:
        me.reads = [{names.of(data)[0]: source}]
    examine(comm, me, [0], [request, memory])


def box(cell):
    return (slice(cell, cell + 1),)


@parameters(
    pattern=["all to all", "to the next", "to rank 0", "from rank 0"],
    way=["staged", "store"], back=[False, True],
)
def case_halo(comm, pattern, way, back):
    """A cell for every peer, and behind them the ghosts of theirs."""
    if comm.size > 2 and (pattern, way, back) == ("all to all", "store", False):
        skip("too many states: the pairs are explored on two ranks")
    size, rank, edges = comm.size, comm.rank, patterns(comm.size)[pattern]
    out = [p for p in range(size) if p != rank and (rank, p) in edges]
    into = [p for p in range(size) if p != rank and (p, rank) in edges]
    memory = empty(comm, 2 * size, np.uint8)
    neighbors = [(p, box(p) if p in out else None, box(size + p) if p in into else None)
                 for p in sorted({*out, *into})]
    halo = a_halo(comm, memory, way, back, lambda array, number: listed_faces(
        neighbors, array.shape, size))
    names = names_of(comm, halo._ghosts.context, memory)
    cells = comm.allgather(names.of(memory))
    me = ghosts_of(names, halo)
    if back:  # what has been gathered in ghosts is added to what their owners have
        me.sends = [cells[rank][i] for i in [*out, *(size + p for p in into)]]
        reads = {cells[rank][p]: [cells[rank][p], cells[p][size + rank]] for p in out}
    else:
        me.sends = [cells[rank][p] for p in out]
        reads = {cells[rank][size + p]: cells[p][rank] for p in into}
    me.reads = [reads]
    examine(comm, me, edges, [halo, memory],
            "all" if size == 2 or pattern != "all to all" else "")  # fmt: skip


@parameters(way=["staged", "store"])
def case_halo_along_axes(comm, way):
    """A cell a rank, on a torus: corners come by way of those who have them as ghosts."""
    torus = comm.Create_cart((comm.size, 1), (True, True))
    memory = empty(torus, (3, 3), np.uint8)
    place = Place((comm.size, 1), (True, True), (comm.rank, 0))
    halo = a_halo(torus, memory, way, False, lambda array, number: grid_faces(
        array.shape, 1, place, "all", corners="axes"))
    names = names_of(torus, halo._ghosts.context, memory)
    cells = torus.allgather(names.of(memory))
    me = ghosts_of(names, halo)
    me.sends = [cells[comm.rank][4]]
    me.reads = [{cells[comm.rank][3 * i + j]: cells[(comm.rank + i - 1) % comm.size][4]
                 for i in range(3) for j in range(3)}]
    examine(torus, me, [0], [halo, memory, torus], "all" if comm.size == 2 else "")


def a_halo(comm, memory, way, back, faces_of):
    short, halo_plan.SHORT = halo_plan.SHORT, 0 if way == "store" else halo_plan.SHORT
    try:
        return HaloExchange.of(comm, memory, faces_of, None, None, *((np.add, 0) if back else ()))
    finally:
        halo_plan.SHORT = short


def ghosts_of(names, halo):
    return Participant([names.plan(plan) for plan in halo._ghosts.plans])


@parameters(order=["ab", "aab"], releases=[False, True], pattern=["to the next", "to rank 0"])
def case_alternate(comm, order, releases, pattern):
    """Two requests that receive into one memory, the second from everybody."""
    size, n, requests, sends, edges = comm.size, 2_000, {}, {}, {}
    memory = empty(comm, size * n, np.uint8)
    for name, each in zip("ab", (pattern, "from rank 0"), strict=True):
        edges[name] = patterns(size)[each]
        out = [n * ((comm.rank, peer) in edges[name]) for peer in range(size)]
        into = [n * ((peer, comm.rank) in edges[name]) for peer in range(size)]
        sends[name] = np.zeros(size * n, np.uint8)
        here = [n * peer for peer in range(size)]
        requests[name] = Alltoallv_init(
            comm, [sends[name], (out, here)], [memory, (into, here)], method="rma-notify")
    alternate(list(requests.values()))
    names = names_of(comm, requests["a"].operation.context, memory, 1)
    made = {name: participant(names, each.transport) for name, each in requests.items()}
    place = {name: [names.of(send[n * p :])[0] for p in range(size)]
             for name, send in sends.items()}
    sources, me = comm.allgather(place), Participant([], releases=releases, reads=[])
    me.grants = [cell for each in made.values() for cell in each.grants]
    me.sends = [each for name, places in place.items() for p, each in enumerate(places)
                if (comm.rank, p) in edges[name]]
    for number in range(ROUNDS):
        name = order[number % len(order)]
        turn = sum(order[i % len(order)] == name for i in range(number))
        me.plans.append(made[name].plans[turn % 2])
        me.reads.append({names.of(memory[n * p :])[0]: sources[p][name][comm.rank]
                         for p in range(size) if (p, comm.rank) in edges[name]})
    # elsewhere a credit is implied by data that have come the other way
    again = comm.size == 2 and (order, pattern) == ("aab", "to the next")
    examine(comm, me, edges, [*requests.values(), memory], "credits" if again else "")


def give_back(things):
    """Free requests, and memory from empty where there is any."""
    for thing in things:
        if isinstance(thing, np.ndarray):
            free(thing)
        elif thing is not None:
            thing.Free()


def examine(comm, me, edges, things, needed="", ends=None, rounds=ROUNDS):
    """Rank 0 explores; the others learn what it found, and ``things`` are given back.

    ``needed``: "all", nothing can be left out without harm (by a rank: not what MPI does with
    messages), or "credits", no rank can go on without one, or before its caller is ready.
    ``ends``: of this rank's messages."""
    everyone, messages = comm.gather(me), comm.gather(ends or {})
    found, states = "", 0
    if comm.rank == 0:
        assert edges, "nobody sends anything"
        everyone += wires(messages)
        rounds = min(rounds, ROUNDS if comm.size == 2 else 3)
        try:
            states = explore(everyone, rounds)
        except ProtocolError as error:
            found = str(error)
        if needed and not found:
            cells = {f"not wait for {cell}" for rank in everyone for cell in rank.grants}
            cells |= {f" {('ready', number)}" for number in range(comm.size)}
            harmless = {words for words in spared(everyone, rounds, comm.size)
                        if needed == "all" or any(words.endswith(cell) for cell in cells)}
            found = "; ".join(sorted(harmless))
    found, states = comm.bcast((found, states))
    assert not found, found
    assert states > 10, states
    give_back(things)
