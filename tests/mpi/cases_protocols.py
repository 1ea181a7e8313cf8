"""The step lists that rma-notify and the broadcasts lower a round to, explored exhaustively.

Every rank names the memory and the counters of its steps by owner and offset; rank 0 explores all
interleavings of three or four rounds.
"""

from __future__ import annotations

import numpy as np
from cases import parameters, skip
from exploration import Participant, ProtocolError, explore

from onesided.collectives import Alltoallv_init, Bcast_init, empty, free
from onesided.collectives.memory import Arena
from onesided.collectives.program import AWAIT, COPY, RAISE, address

ROUNDS = 4
KINDS = {COPY: "copy", RAISE: "raise", AWAIT: "await"}


class Names:
    """From addresses to names that all ranks of the node use."""

    def __init__(self, comm, request, memory):
        self.rank, self.parts = comm.rank, []
        regions = dict(Arena.of(request.operation.context).regions)
        if memory is not None:
            regions["empty"] = memory
        for number, region in regions.items():
            for node_rank in range(region.node.comm.size):
                part = region.part(node_rank)
                self.parts.append((number, node_rank, address(part), part.nbytes))

    def of(self, array):
        start = address(array)
        for number, node_rank, first, nbytes in self.parts:
            if first <= start < first + nbytes:
                return (str(number), node_rank, start - first)
        return ("private", self.rank, start)

    def chain(self, steps):
        named = []
        for step in steps:
            kind = KINDS.get(step[0])
            if kind is None:
                return None
            if kind == "copy":
                named.append((kind, self.of(step[1]), self.of(step[2])))
            else:
                named.append((kind, self.of(step[1]), step[2], step[3]))
        return named


def region_of(array):
    from onesided.collectives.memory import find_region

    return None if array is None else find_region(array)


def participant(comm, request, memory):
    """What this rank does; None where a step is not one of shared memory."""
    names, transport = Names(comm, request, region_of(memory)), request.transport
    plans = [[names.chain(chain) for chain in plan] for plan in transport.plans()]
    if any(chain is None for plan in plans for chain in plan):
        return None
    grants = [names.of(cell) for cell in transport.creditor()]
    return names, Participant(plans, grants)


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
    if comm.size == 1:
        skip("one rank has nobody to race with")
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
    names, me = participant(comm, request, memory)
    starts = np.cumsum([0, *out])
    me.sends = [names.of(send[starts[p] :]) for p in range(size) if out[p]]
    sources = comm.allgather([
        names.of(send[starts[p] :]) if out[p] else None for p in range(size)
    ])
    landed = np.cumsum([0, *into])
    arrays = request.transport.arrays
    me.reads = [
        {names.of(arrays[t % len(arrays)][landed[p] :]): sources[p][comm.rank]
         for p in range(size) if into[p]}
        for t in range(request.transport.turns)
    ]  # fmt: skip
    examine(comm, me, edges)
    request.Free()
    if memory is not None:
        free(memory)


@parameters(method=["rma-linear", "rma-binomial"], kind=["plain", "empty"], nbytes=[64, 70_000])
def case_broadcast(comm, method, kind, nbytes):
    if comm.size == 1:
        skip("one rank has nobody to race with")
    memory = empty(comm, nbytes, np.uint8) if kind == "empty" else None
    data = np.zeros(nbytes, np.uint8) if memory is None else memory
    request = Bcast_init(comm, data, 0, method=method)
    found = participant(comm, request, memory)
    if not all(comm.allgather(found is not None)):
        request.Free()
        if memory is not None:
            free(memory)
        skip("a round has steps that are not of shared memory")
    names, me = found
    # a round copies in pieces: what begins at the buffer's start is followed
    source = comm.bcast(names.of(data))
    if comm.rank == 0:
        me.sends = [source]
    else:
        me.reads = [{names.of(data): source}]
    examine(comm, me, [0])
    request.Free()
    if memory is not None:
        free(memory)


def examine(comm, me, edges):
    """Rank 0 explores; the others learn what it found."""
    everyone = comm.gather(me)
    found = ""
    states = 0
    if comm.rank == 0:
        assert edges, "nobody sends anything"
        try:
            states = explore(everyone, ROUNDS if comm.size == 2 else 3)
        except ProtocolError as error:
            found = str(error)
    found, states = comm.bcast((found, states))
    assert not found, found
    assert states > 10, states
