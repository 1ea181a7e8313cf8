"""``auto`` in every regime: where each rank receives, at every length that it looks at."""

from __future__ import annotations

import itertools

from cases import parameters, ranks
from operations import MEMORY, OPERATIONS, SOME, Trial
from reduction_data import OPERATIONS as REDUCTIONS
from reduction_data import Reduced, Row

from onesided.collectives.tuning import situations

ROUNDS = 2
ROWS = ["Gather", "Gatherv", "Scatter", "Scatterv", "Allgatherv", "Alltoall", "Alltoallv",
        "Alltoallw", "Neighbor_alltoallv"]  # fmt: skip
#: What may be said beside: nothing is known, nothing may be measured, nothing is worth it.
SAID = [{}, {"effort": "estimate"}, {"expected_iterations": "1"}]


def received(comm, operation, root):
    """The most bytes that a rank receives in blocks of the usual length."""
    counts = [operation.receives(rank, comm.size, root) or [] for rank in range(comm.size)]
    return 8 * max(sum(each) for each in counts)


def scales(comm, operation, threshold, root=0):
    """Blocks by which a rank receives as much as a threshold at most, and those above it."""
    below = threshold // received(comm, operation, root)
    return below, below + 1


def moves(comm, operation, memory, info, **more):
    trial = Trial(comm, operation, "auto", memory, info=info, **more)
    assert len(set(comm.allgather(trial.request.method))) == 1
    for turn in range(ROUNDS):
        trial.round(turn)
    trial.free()


@ranks(at_least=2)
@parameters(operation=ROWS, above=[False, True], said=SAID)
def case_memory_by_rank(comm, operation, above, said):
    """Each rank receives into memory of its own kind, or of the request's."""
    row = OPERATIONS[operation]
    scale = scales(comm, row, situations.PLAIN)[above]
    for memory in itertools.product(MEMORY, repeat=min(comm.size, 3)):
        by_rank = [memory[rank % len(memory)] for rank in range(comm.size)]
        moves(comm, row, by_rank, said, scale=scale)


@ranks(at_least=2)
@parameters(operation=["Gather", "Gatherv", "Scatter", "Scatterv", "Allgatherv", "Alltoall"],
            above=[False, True], said=SAID)
def case_in_place(comm, operation, above, said):
    """Some ranks have their data in place, and every rank in turn is the root."""
    row = OPERATIONS[operation]
    for root in range(comm.size if row.rooted else 1):
        scale = scales(comm, row, situations.PLAIN, root)[above]
        for memory in MEMORY[:2]:
            moves(comm, row, memory, said, scale=scale, in_place=True, root=root)


@ranks(at_least=2)
@parameters(operation=["Allgather", "Allgatherv", "Alltoall", "Alltoallv", "Alltoallw"],
            placed=SOME, holes=SOME)
def case_in_place_and_with_holes_on_some_ranks(comm, operation, placed, holes):
    """What is measured is what all ranks can do together."""
    for scale in (1, 300):
        moves(comm, OPERATIONS[operation], "plain", {}, scale=scale,
              in_place=SOME[placed](comm), holes=SOME[holes](comm))


@ranks(at_least=2)
@parameters(operation=REDUCTIONS, more=[-8, 0, 8], memory=["apart", "in place"], said=SAID)
def case_reduced_parts(comm, operation, more, memory, said):
    """Vectors around the length from which on messages are tried first."""
    row = Row(name=operation, kind="u1 BXOR", bytes=situations.LONG_PARTS, more=more,
              memory=memory, info=said)  # fmt: skip
    reduced = Reduced(comm, row)
    assert len(set(comm.allgather(reduced.request.method))) == 1
    for turn in range(ROUNDS):
        reduced.start(turn)
        reduced.request.Wait()
        assert not reduced.faults(turn)
    reduced.free()
