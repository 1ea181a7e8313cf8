"""Reductions through memory that the ranks of a node share, and messages between their leaders.

*On a node.* Every rank has a ring of slots for its contributions and counts what it has put there;
who wants them reads them where they are, and reduces them in the order of the ranks. So a short
Allreduce is one copy, one counter, and a loop over the slots of all. Nobody writes a slot that
somebody may still read: a rank that the writer reads as well has told so by its own next
contribution, others count what they have taken.

*Long vectors* are divided: each rank reduces its part of every rank's contribution, over as many of
the first ranks as somebody wants, and who wants it copies the result. Both go on segment by
segment, so that what is copied is in the caches when it is reduced, and read again.

*Between nodes.* The first rank of a node leads it: it reduces what its node contributes, the
leaders do among themselves what all ranks would (:mod:`.messages`), and each puts into its ring
what its node wants to have.

Sources: Jain et al., "Framework for Scalable Intra-Node Collective Operations using Shared Memory",
SC 2018 (release and gather); Katevenis et al. on XHC in Open MPI; Parsons and Pai, IPDPS 2014.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.agreement import agreed, largest
from onesided.collectives.arena import Control
from onesided.collectives.broadcast.board import TWICE, Segments, fill
from onesided.collectives.context import Resources
from onesided.collectives.errors import UnsupportedError
from onesided.collectives.memory import ALIGNMENT, aligned
from onesided.collectives.reduction.folds import Element, Fold
from onesided.collectives.reduction.messages import Team, carry_out
from onesided.collectives.reduction.operation import Reduction, ReductionTransport
from onesided.collectives.steps import Chain, Plan, Step, address, copy, tell, wait_for
from onesided.collectives.transport import Cell

Bytes = NDArray[np.uint8]

#: Bytes that are in one cache line with the counter that tells of them.
IN_LINE = ALIGNMENT - 8

#: Bytes from which a vector is divided among the ranks of a node, and those of a segment of it;
#: what has been reduced is copied in pieces that are in the nearest cache.
LONG, SEGMENT, PIECE = 1 << 16, 1 << 18, 1 << 14

#: Segments of a round that are in memory at a time: a rank may be three behind (it contributes one,
#: reduces the one before, and copies the one before that); and most of them in a round.
SLOTS, MOST_SEGMENTS = 4, 64


class Ring:
    """Vectors that the ranks of a node put there for each other, segment by segment.

    On every rank: [what it has taken | what it has put there | slots], or, where the vector is
    short, slots of one cache line each, with the counter in it.
    """

    def __init__(self, nbytes: int, element: Element, start: int = 0) -> None:
        """``start``: bytes before it in the control memory."""
        segments = self.segments = Segments.on_node(nbytes, unit=element.extent)
        self.turns, self.count, self.fit = segments.turns, segments.count, segments.fit
        self._short = nbytes <= IN_LINE and element.alignment <= 8
        self._start, self._head = start, ALIGNMENT if self._short else 2 * ALIGNMENT
        self.stop = start + self._head + self.segments.room

    def bind(self, control: Control, me: int) -> None:
        """Local. The memory of all ranks of the node is there."""
        self._control, self._me = control, me

    def put(self, turn: int, source: Bytes, readers: Sequence[int]) -> Chain:
        """Local. The steps of a rank that puts a vector there; ``readers``: those whose taking it
        does not learn of in another way."""
        return fill(self.segments, turn, source, self._slots(self._me),
                    self._filled(self._me, turn), [self._taken(rank) for rank in readers])

    def slot(self, rank: int, turn: int, i: int) -> Bytes:
        """Local. Where a rank puts segment ``i``."""
        return self.segments.slot(self._slots(rank), turn, i)

    def come(self, rank: int, turn: int, i: int) -> Step:
        """Local. Wait for segment ``i`` of a rank."""
        return wait_for(self._filled(rank, turn), self.count, i + 1 - self.count)

    def took(self, i: int) -> list[Step]:
        """Local. Say that segment ``i`` of all vectors has been taken, where they do not fit."""
        return [] if self.fit else [tell(self._taken(self._me), self.count, i + 1 - self.count)]

    def took_before(self) -> Plan:
        """Local. Where they fit: say that those of the rounds before have been taken."""
        return [[tell(self._taken(self._me), self.count, -self.count)]] if self.fit else []

    def _slots(self, rank: int) -> Bytes:
        return self._memory(rank)[self._head + 8 * self._short :]

    def _filled(self, rank: int, turn: int) -> Cell:
        start = self._head + turn * ALIGNMENT if self._short else ALIGNMENT
        return self._memory(rank)[start : start + 8].view(np.int64)

    def _taken(self, rank: int) -> Cell:
        return self._memory(rank)[:8].view(np.int64)

    def _memory(self, rank: int) -> Bytes:
        return self._control.ring(rank, self.stop)[self._start :]


@dataclass
class _Team:
    """The ranks of a node in their order. Each contributes ``source``; ``over``: by rank, how many
    of the first ones it reduces into ``target``, ``part``: what of the vector."""

    fold: Fold
    me: int
    source: Bytes
    target: Bytes
    over: dict[int, int]
    part: dict[int, slice]

    @property
    def ranks(self) -> list[int]:
        return list(self.over)

    def form(self, divided: bool) -> _Flat | _Divided:
        """Local. How they do it, which all must do alike. ``divided``: vectors that are long, but
        not very long, are divided, too."""
        nbytes = self.source.size
        long = nbytes > TWICE or (divided and nbytes >= LONG)
        return _Divided(self) if long and len(self.over) > 1 else _Flat(self)


class _Flat:
    """Everybody on a node reads what it wants of the others' contributions, and reduces it."""

    def __init__(self, team: _Team) -> None:
        self._team, me = team, team.me
        self.ring = Ring(team.source.size if len(team.over) > 1 else 0, team.fold.element)
        self.room, self.turns = self.ring.stop, self.ring.turns
        self._of = team.ranks[: team.over[me]]
        place = team.ranks.index(me)
        readers = [rank for rank, over in team.over.items() if rank != me and place < over]
        self._in_place = address(team.source) == address(team.target)
        self._tells = any(rank != me and rank not in readers for rank in self._of)
        self._unheard = [rank for rank in readers if rank not in self._of]
        #: This rank's contribution goes into its ring: others want it, or it would be overwritten
        #: before it is reduced.
        self._puts = bool(readers) or (self._in_place and me in self._of[2:])

    def plan(self, control: Control, turn: int) -> tuple[Plan, Chain]:
        """Local. What is done for others, and the chain at whose end the target is there."""
        self.ring.bind(control, self._team.me)
        plan = self.ring.took_before() if self._tells else []
        if self._puts:
            plan.append(self.ring.put(turn, self._team.source, self._unheard))
        return plan, self._take(turn)

    def _take(self, turn: int) -> Chain:
        ring, team, me = self.ring, self._team, self._team.me
        part, target = team.part[me], team.target
        chain: Chain = []
        for i in range(ring.count if self._of else 0):
            here = ring.segments.part(i)
            low, high = max(here.start, part.start), min(here.stop, part.stop)
            if low <= high:
                chain += [ring.come(r, turn, i) for r in self._of if r != me or self._puts]
            if low < high:
                if self._in_place and self._puts and me not in self._of:
                    chain.append(ring.come(me, turn, i))  # before it is overwritten
                inner = slice(low - here.start, high - here.start)
                sources = [
                    team.source[low:high] if r == me and not (self._in_place and self._puts)
                    else ring.slot(r, turn, i)[inner] for r in self._of
                ]
                goal = target[low - part.start : high - part.start]
                if len(sources) > 1 or address(sources[0]) != address(goal):
                    chain += team.fold.steps(goal, sources)
        return chain


class _Divided:
    """Everybody reduces a part of all contributions, over as many as somebody wants, and copies
    from the others what it wants of theirs."""

    def __init__(self, team: _Team) -> None:
        self._team = team
        size, extent = len(team.over), team.fold.element.extent
        vector = slice(0, team.source.size)
        self._highs = sorted(set(team.over.values()) - {0})
        #: Everybody keeps what it reduces: the parts are those of the vector.
        wanted = sum(part.stop - part.start for part in team.part.values())
        self._kept = self._highs == [size] and all(team.over.values()) and wanted == vector.stop
        if self._kept:
            self._parts = list(team.part.values())
        else:
            count = vector.stop // extent
            edges = [extent * (count * place // size) for place in range(size + 1)]
            self._parts = [slice(*edge) for edge in pairwise(edges)]
        longest = max(part.stop - part.start for part in self._parts)
        wanted = max(SEGMENT // size, -(-longest // MOST_SEGMENTS))
        self._size = extent * max(1, -(-wanted // extent))
        self._count = -(-longest // self._size)
        self._slots = min(SLOTS, self._count)
        self._slot = size * aligned(self._size)
        self._results = 2 * ALIGNMENT + 2 * self._slots * self._slot
        results = 0 if self._kept else len(self._highs) * self._slots
        self.room = self._results + results * aligned(self._size)
        self.turns = 2

    def plan(self, control: Control, turn: int) -> tuple[Plan, Chain]:
        """Local. A step for each segment: contribute it, reduce the one before, and copy the one
        before that. Ranks by their places in the team."""
        team, count = self._team, self._count
        ranks, source, target = team.ranks, team.source, team.target
        me, size, own = ranks.index(team.me), len(ranks), team.over[team.me]
        memory = [control.ring(rank, self.room) for rank in ranks]
        filled = [part[:8].view(np.int64) for part in memory]
        ready = [part[ALIGNMENT : ALIGNMENT + 8].view(np.int64) for part in memory]
        others = [(me + i) % size for i in range(1, size)]

        def chunk(rank: int, i: int) -> slice:
            part = self._parts[rank]
            low, high = (min(part.start + j * self._size, part.stop) for j in (i, i + 1))
            return slice(low, high)

        def slot(rank: int, reader: int, i: int) -> Bytes:
            place = 2 * ALIGNMENT + (turn * self._slots + i % self._slots) * self._slot
            place += reader * aligned(self._size)
            here = chunk(reader, i)
            return memory[rank][place : place + here.stop - here.start]

        def result(rank: int, over: int, i: int) -> Bytes:
            here = chunk(rank, i)
            if self._kept:
                start = self._parts[me].start
                return target[here.start - start : here.stop - start]
            place = self._highs.index(over) * self._slots + i % self._slots
            place = self._results + place * aligned(self._size)
            return memory[rank][place : place + here.stop - here.start]

        copies = own > 0 and not self._kept
        chain: Chain = []
        for step in range(count + (2 if copies else 1)):
            if step < count:
                behind = -2 * count if step < self._slots else step + 1 - count - self._slots
                chain += [wait_for(ready[other], count, behind) for other in others]
                chain += [copy(slot(me, r, step), source[chunk(r, step)]) for r in others]
                chain.append(tell(filled[me], count, step + 1 - count))
            i = step - 1
            if 0 <= i < count:
                chain += [wait_for(filled[other], count, i + 1 - count) for other in others]
                here = chunk(me, i)
                came = [source[here] if r == me else slot(r, me, i) for r in range(size)]
                for inner in self._pieces(here.stop - here.start):
                    sources: list[Bytes] = []
                    for below, over in pairwise([0, *self._highs]):
                        goal = result(me, over, i)[inner]
                        sources += [each[inner] for each in came[below:over]]
                        chain += team.fold.steps(goal, sources)
                        sources = [goal]
                    if copies:
                        chain.append(copy(target[here][inner], result(me, own, i)[inner]))
                chain.append(tell(ready[me], count, i + 1 - count))
            i = step - 2
            if copies and 0 <= i < count:
                for other in others:
                    chain.append(wait_for(ready[other], count, i + 1 - count))
                    chain.append(copy(target[chunk(other, i)], result(other, own, i)))
        return [], chain

    def _pieces(self, nbytes: int) -> list[slice]:
        extent = self._team.fold.element.extent
        size = extent * max(1, PIECE // extent) if self._team.fold.quick else max(nbytes, 1)
        return [slice(low, min(low + size, nbytes)) for low in range(0, nbytes, size)]


class _Nodes:
    """The nodes in the order of their first ranks, which lead them."""

    def __init__(self, reduction: Reduction) -> None:
        """Local. Raises :class:`UnsupportedError` on every rank where the order of the ranks
        is wanted and is not that of the nodes."""
        first: list[int] = reduction.node.firsts.tolist()
        self.leaders = sorted(set(first))
        self.of = {leader: [r for r, of in enumerate(first) if of == leader]
                   for leader in self.leaders}
        self.in_order = first == sorted(first)
        if not self.in_order and (reduction.by_prefix or not reduction.fold.commutes):
            raise UnsupportedError(
                f"{reduction.name} by {reduction.method} keeps the order of the ranks only where "
                "those of a node follow each other; use p2p"
            )


class _Hierarchy:
    """The leader of a node reduces what it contributes, and gives it what the leaders have come
    to."""

    def __init__(self, reduction: Reduction, resources: Resources) -> None:
        self._reduction = reduction
        nodes, node, me = _Nodes(reduction), reduction.node, reduction.rank
        self._ranks, self._leader = node.ranks, node.ranks[0]
        self._leads = me == self._leader
        self._prefix = reduction.by_prefix
        alone = len(node.ranks) == 1
        over = dict.fromkeys(node.ranks, 0)
        if self._prefix:
            shares = reduction.shares
            over = {rank: sum(r < shares[rank].over for r in node.ranks) for rank in node.ranks}
        self._own = over[me]  # of the node, what this rank reduces for itself
        over[self._leader] = len(node.ranks)
        total = reduction.target
        if self._leads:
            total = reduction.source if alone else np.empty_like(reduction.source)
        self._total = total
        parts = dict.fromkeys(node.ranks, slice(0, reduction.nbytes))
        self.up = _Team(reduction.fold, me, reduction.source, total, over, parts).form(False)
        span = self._span(reduction, nodes)
        self._span_start = span.start
        self.down = Ring(span.stop - span.start, reduction.fold.element, self.up.room)
        self.room = 0 if alone else self.down.stop
        self.turns = max(self.up.turns, self.down.turns)
        first = self._leader == nodes.leaders[0]
        self._takers = [
            rank for rank in node.ranks
            if rank != self._leader and reduction.shares[rank].nbytes
            and not (self._prefix and first)
        ]
        if reduction.nbytes == 0:
            self._takers = [rank for rank in node.ranks if rank != self._leader]
        self.team: Team | None = None
        if self._leads:
            self._lead(reduction, nodes, span, resources)

    def _span(self, reduction: Reduction, nodes: _Nodes) -> slice:
        """What comes to this node: all, or the parts of its ranks."""
        if reduction.everybody_wants_parts and nodes.in_order:
            return self._of_node(reduction, self._ranks)
        return slice(0, reduction.nbytes)

    @staticmethod
    def _of_node(reduction: Reduction, ranks: Sequence[int]) -> slice:
        return slice(reduction.shares[ranks[0]].part.start, reduction.shares[ranks[-1]].part.stop)

    def _lead(
        self, reduction: Reduction, nodes: _Nodes, span: slice, resources: Resources
    ) -> None:
        fold = reduction.fold
        whole = reduction.share.nbytes == span.stop - span.start and not self._prefix
        size = span.stop - span.start
        self._result = reduction.target if whole else np.empty(size, np.uint8)
        team = Team(reduction.context.comm, reduction.number, nodes.leaders, fold, resources)
        parts = [self._of_node(reduction, ranks) for ranks in nodes.of.values() if nodes.in_order]
        root = reduction.root or 0
        place = next(i for i, ranks in enumerate(nodes.of.values()) if root in ranks)
        carry_out(reduction, team, self._total, self._result, parts, place)
        self.team = team
        self._behind = self._leader != nodes.leaders[0]

    def plan(self, control: Control | None, turn: int) -> Plan:
        plan: Plan = []
        chain: Chain = []
        down = self.down
        if control is not None:
            plan, chain = self.up.plan(control, turn % self.up.turns)
            down.bind(control, self._reduction.rank)
        turn %= down.turns
        if self.team is None:
            return plan + self._follow(chain, turn)
        chain += self.team.chain
        if control is not None and self._takers:
            chain += down.put(turn, self._result, self._takers)
        return [*plan, [*chain, *self._keep()]]

    def _keep(self) -> list[Step]:
        """What the leader wants for itself."""
        reduction = self._reduction
        source, target, result = reduction.source, reduction.target, self._result
        if not target.size or address(target) == address(result):
            return []
        if not self._prefix:
            here = reduction.share.part
            start = here.start - self._span_start
            return [copy(target, result[start : start + target.size])]
        if not self._own:
            return [copy(target, result)]
        if self._behind:
            return [reduction.fold.step(target, result, source)]
        return [] if address(source) == address(target) else [copy(target, source)]

    def _follow(self, chain: Chain, turn: int) -> Plan:
        """What the other ranks of a node do, when they have what they reduce for themselves."""
        reduction, down, leader = self._reduction, self.down, self._leader
        target, part = reduction.target, reduction.share.part
        if reduction.rank not in self._takers:
            return [chain]
        for i in range(down.count):
            chain.append(down.come(leader, turn, i))
            here = down.segments.part(i)
            start = part.start - self._span_start
            low, high = max(here.start, start), min(here.stop, start + target.size)
            if low < high:
                came = down.slot(leader, turn, i)[low - here.start : high - here.start]
                goal = target[low - start : high - start]
                fold = reduction.fold
                chain.append(fold.step(goal, came, goal) if self._own else copy(goal, came))
            chain += down.took(i)
        return [*down.took_before(), chain]


def _long_are_divided(reduction: Reduction) -> bool:
    """Collective where the vector is long, but not very long. Whether each wants all, or a part of
    its own, over all, and no rank reduces by calls of Python, which may be another one where the
    compiled core is not everywhere."""
    wanted = reduction.everybody_wants_all or reduction.everybody_wants_parts
    if not wanted or not reduction.fold.predefined or not LONG <= reduction.nbytes <= TWICE:
        return False
    name = f"way of reduction {reduction.number}"
    return not largest(reduction.context.comm, None, name, [not reduction.fold.quick])[0]


class StoreAndSend(ReductionTransport):
    """Counters and slots on the node, persistent messages between nodes."""

    def __init__(self, operation: Reduction, resources: Resources) -> None:
        super().__init__(operation, resources)
        reduction = operation
        self._form: _Flat | _Divided | _Hierarchy
        if reduction.node.alone:
            shares = dict(enumerate(reduction.shares))
            over = {rank: share.over for rank, share in shares.items()}
            part = {rank: share.part for rank, share in shares.items()}
            self._form = _Team(
                reduction.fold, reduction.rank, reduction.source, reduction.target, over, part
            ).form(_long_are_divided(reduction))
        else:
            with agreed(reduction.context.comm, f"leaders of reduction {reduction.number}"):
                self._form = _Hierarchy(reduction, resources)
        self._control: Control | None = None
        if reduction.ranks > 1:
            self._control = Control(reduction, resources, self._form.room, False)

    def plans(self) -> list[Plan]:
        return [self._plan(turn) for turn in range(self._form.turns)]

    def _plan(self, turn: int) -> Plan:
        form, control, reduction = self._form, self._control, self.operation
        if isinstance(form, _Hierarchy):
            return form.plan(control if form.room else None, turn)
        if control is None:
            source, target = reduction.source, reduction.target
            same = not target.size or address(source) == address(target)
            return [] if same else [[copy(target, source)]]
        plan, chain = form.plan(control, turn)
        return [*plan, *([chain] if chain else [])]

    def waiting_for(self, number: int) -> str:
        near = [f"rank {r}" for r in self.operation.node.ranks if r != self.operation.rank]
        return f"contributions of {', '.join(near) or 'other nodes'}"
