"""The step lists of reductions, and of rings of broadcasts, by exhaustion and without MPI: all
ranks of a node are in this process, with vectors of a few bytes and rings of a few slots."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from exploration import Participant, ProtocolError, explore, spared
from lowered import Names
from mpi4py import MPI

from onesided.collectives.broadcast import board
from onesided.collectives.broadcast.board import Segments, fill, take
from onesided.collectives.memory import ALIGNMENT
from onesided.collectives.reduction import shared
from onesided.collectives.reduction.folds import Element, Fold
from onesided.collectives.reduction.operation import Reduction, Share

FOLD = Fold(MPI.SUM, Element.of(MPI.UINT8_T, "send"))
NAMES = ["Allreduce", "Reduce", "Scan", "Exscan", "Reduce_scatter"]


@pytest.fixture(autouse=True)
def few_bytes(monkeypatch):
    """The limits of short and long, so that a byte or two are a segment."""
    for module, name, value in [
        (board, "SHORT", 0), (board, "LEAST_SEGMENT", 1), (board, "MOST_SEGMENT", 1),
        (board, "SLOTS", 2), (shared, "SEGMENT", 1), (shared, "SLOTS", 3),
    ]:  # fmt: skip
        monkeypatch.setattr(module, name, value)


class Node:
    """The control memory of the ranks of a node."""

    def __init__(self, ranks, room):
        self._memory = [np.zeros(room, np.uint8) for _ in range(ranks)]

    def ring(self, rank, room):
        return self._memory[rank][:room]

    def parts(self, words):
        """With names; ``words``: of the cache lines at the start of each."""
        lines = [slice(i * ALIGNMENT, (i + 1) * ALIGNMENT) for i in range(len(words))]
        found = [((word, rank), memory[line]) for rank, memory in enumerate(self._memory)
                 for word, line in zip(words, lines, strict=True)]
        return found + [(("slots", rank), memory) for rank, memory in enumerate(self._memory)]


def shares(name, ranks, nbytes):
    """What every rank wants; a Reduce goes to rank 1."""
    whole, size = slice(0, nbytes), -(-nbytes // ranks)
    if name == "Reduce":
        return [Share(whole, ranks) if r == 1 else Share(slice(0, 0), 0) for r in range(ranks)]
    if name == "Reduce_scatter":
        return [Share(slice(min(r * size, nbytes), min((r + 1) * size, nbytes)), ranks)
                for r in range(ranks)]
    over = {"Scan": range(1, ranks + 1), "Exscan": range(ranks)}.get(name, [ranks] * ranks)
    return [Share(whole, each) for each in over]


def flat(reduction):
    return shared._Flat(team(reduction))


def divided(reduction):
    return shared._Divided(team(reduction))


def team(reduction):
    wanted = reduction.shares
    return shared._Team(
        reduction.fold, reduction.rank, reduction.source, reduction.target,
        {rank: share.over for rank, share in enumerate(wanted)},
        {rank: share.part for rank, share in enumerate(wanted)},
    )  # fmt: skip


def led(reduction):
    """As between nodes, of which there is one: by a leader."""
    return shared._Hierarchy(reduction, SimpleNamespace())


COUNTERS = {flat: ["taken", "filled"], divided: ["filled", "ready"], led: []}


def ranks_of(form, name, ranks, nbytes, in_place):
    """What every rank does in a reduction."""
    wanted = shares(name, ranks, nbytes)
    sources = [np.zeros(nbytes, np.uint8) for _ in range(ranks)]
    targets = [np.zeros(share.nbytes, np.uint8) for share in wanted]
    if in_place:
        targets = [s if s.size == t.size else t for s, t in zip(sources, targets, strict=True)]
    node = SimpleNamespace(ranks=list(range(ranks)), firsts=np.zeros(ranks, int), alone=True)
    forms = []
    for rank, (source, target) in enumerate(zip(sources, targets, strict=True)):
        comm = SimpleNamespace(rank=rank, size=ranks, Send_init=None, Recv_init=None)
        context = SimpleNamespace(comm=comm, node=lambda _: node)
        hints = SimpleNamespace(ranks_per_node=None)
        forms.append(form(Reduction("rma-p2p", True, context, hints, 0, name, FOLD, source, target,
                                    wanted, None, None, ())))
    memory = Node(ranks, max(each.room for each in forms))
    names = Names([
        *memory.parts(COUNTERS[form]), *((("array", r), array) for r, array in enumerate(sources)),
        *((("result", r), array) for r, array in enumerate(targets)),
    ])  # fmt: skip
    given = [names.of(source) for source in sources]
    found = []
    for rank, made in enumerate(forms):
        plans = []
        for turn in range(made.turns):
            plan = made.plan(memory, turn)
            plans.append(names.plan([*plan[0], plan[1]] if isinstance(plan, tuple) else plan))
        share, results = wanted[rank], names.of(targets[rank])
        reads = {place: [each[share.part.start + i] for each in given[: share.over]]
                 for i, place in enumerate(results if share.over else [])}
        found.append(Participant(plans, sends=given[rank], reads=[reads]))
    return found


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", COUNTERS)
def test_reductions(form, name, ranks, in_place):
    made = ranks_of(form, name, ranks, ranks if name == "Reduce_scatter" else 1, in_place)
    assert explore(made, 3) > 50


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", [divided, led])
def test_reductions_of_many_segments(form, name, monkeypatch):
    """More of them than slots; what a leader gives to the others does not fit into its ring."""
    for module in (board, shared):
        monkeypatch.setattr(module, "TWICE", 0)
    assert explore(ranks_of(form, name, 2, 10, True), 3) > 200


def test_a_short_vector_is_in_a_ring_four_times(monkeypatch):
    monkeypatch.setattr(board, "SHORT", 1)
    made = ranks_of(flat, "Exscan", 3, 1, True)
    assert len(made[0].plans) == 4
    assert explore(made, 5) > 50


@pytest.mark.parametrize("name", NAMES)
def test_a_slot_too_few(name, monkeypatch):
    """A rank may be three segments behind, one where everybody keeps what it reduces."""
    monkeypatch.setattr(shared, "SLOTS", 1 if name == "Reduce_scatter" else 2)
    with pytest.raises(ProtocolError):
        explore(ranks_of(divided, name, 2, 8, True), 3)


@pytest.mark.parametrize(("form", "name"), [
    (flat, "Allreduce"), (flat, "Reduce"), (flat, "Exscan"), *((divided, name) for name in NAMES)
])  # fmt: skip
def test_nothing_can_be_left_out(form, name, monkeypatch):
    """But what is said of the contribution of a last rank that nobody else wants, and, in the order
    of the chains, that a rank's own one is there."""
    monkeypatch.setattr(shared, "IN_LINE", 0)  # a counter for all turns, so one less is too few
    ranks, nbytes = {flat: (3, 1), divided: (2, 8)}[form]
    harmless = {
        (flat, "Allreduce"): {f"rank {r} {words} ('filled', {r})" for r in range(3)
                              for words in ("does not wait for", "waits for one less of")},
        (divided, "Exscan"): {"rank 1 tells too early by ('filled', 1)"},
    }  # fmt: skip
    found = spared(ranks_of(form, name, ranks, nbytes, True), 3)
    assert found == harmless.get((form, name), set())


# -- broadcasts -----------------------------------------------------------------------------------


def cast(segments, readers):
    """A rank that fills a ring, and those that take out of it."""
    source, slots = np.zeros(segments.nbytes, np.uint8), np.zeros(segments.room, np.uint8)
    targets = [np.zeros(segments.nbytes, np.uint8) for _ in range(readers)]
    filled, *taken = np.zeros((readers + 1, 1), np.int64)
    names = Names([
        ("source", source), ("slots", slots), ("filled", filled),
        *((("taken", i), cell) for i, cell in enumerate(taken)),
        *((("target", i), target) for i, target in enumerate(targets)),
    ])  # fmt: skip
    turns, given = range(segments.turns), names.of(source)
    fills = [names.plan([fill(segments, turn, source, slots, filled, taken)]) for turn in turns]
    ranks = [Participant(fills, sends=given)]
    for target, cell in zip(targets, taken, strict=True):
        takes = [names.plan(take(segments, turn, target, slots, filled, cell)) for turn in turns]
        reads = dict(zip(names.of(target), given, strict=True))
        ranks.append(Participant(takes, reads=[reads]))
    return ranks


#: Bytes, those of a segment, slots: rings that hold two rounds, four of them, and less than one.
RINGS = {"two": (1, 1, 2), "four": (1, 1, 4), "two of two": (2, 1, 4), "part": (4, 1, 2),
         "large part": (4, 1, 3), "uneven": (5, 2, 2)}  # fmt: skip


@pytest.mark.parametrize("readers", [1, 2])
@pytest.mark.parametrize("ring", RINGS)
def test_rings_of_broadcasts(ring, readers):
    segments = Segments.of(*RINGS[ring])
    ranks = cast(segments, readers)
    rounds = 5 if segments.turns == 4 else 4
    assert explore(ranks, rounds) > 50
    # where taken goes up by two, one less is the same
    if ring != "two of two" and (readers == 1 or ring != "four"):
        assert spared(ranks, rounds) == set()
