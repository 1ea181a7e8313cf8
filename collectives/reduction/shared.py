"""Reductions through memory that the ranks of a node share, and messages between their leaders.

*On a node.* Every rank has a ring of slots for its contributions and counts what it has put there;
who wants them reads them where they are, and reduces them in the order of the ranks. So a short
Allreduce is one copy, one counter, and a loop over the slots of all. Nobody writes a slot that
somebody may still read: a rank that the writer reads as well has told so by its own next
contribution, others count what they have taken.

*Long vectors* that everybody wants, or everybody a part of, are divided: each rank reduces its part
of every rank's contribution, and the others copy the result. Both go on segment by segment, so that
what is copied is in the caches when it is reduced, and read again.

*Between nodes.* The first rank of a node leads it: it reduces what its node contributes, the
leaders do among themselves what all ranks would (:mod:`.messages`), and each puts into its ring
what its node wants to have.

Sources: Jain et al., "Framework for Scalable Intra-Node Collective Operations using Shared Memory",
SC 2018 (release and gather); Katevenis et al. on XHC in Open MPI; Parsons and Pai, IPDPS 2014.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.broadcast.board import Segments
from onesided.collectives.context import Resources
from onesided.collectives.errors import UnsupportedError
from onesided.collectives.memory import ALIGNMENT, Control, aligned
from onesided.collectives.program import Chain, Plan, Step, address, copy, tell, wait_for
from onesided.collectives.reduction.messages import Team
from onesided.collectives.reduction.operation import Reduction, ReductionTransport
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

    def __init__(self, nbytes: int, start: int = 0) -> None:
        """``start``: bytes before it in the control memory."""
        self.nbytes, self._start = nbytes, start
        self._short = nbytes <= IN_LINE
        self._segments = Segments(nbytes, nbytes, 1, 4, 4) if self._short else (
            Segments.on_node(nbytes, 0)
        )
        self.turns, self.count = self._segments.turns, self._segments.count
        self.fit = self._segments.fit
        self._head = ALIGNMENT if self._short else 2 * ALIGNMENT
        self.stop = start + self._head + (4 * ALIGNMENT if self._short else self._segments.room)

    def bind(self, control: Control, me: int) -> None:
        """Local. The memory of all ranks of the node is there."""
        self._control, self._me = control, me

    def put(self, turn: int, source: Bytes, readers: Sequence[int]) -> Chain:
        """Local. The steps of a rank that puts a vector there; ``readers``: those whose taking it
        does not learn of in another way."""
        chain: Chain = []
        count, slots = self.count, self.count * self.turns if self.fit else self._segments.slots
        if self.fit:
            chain += [wait_for(self._taken(rank), count, -slots) for rank in readers]
        for i in range(count):
            if not self.fit:
                chain += [wait_for(self._taken(rank), count, i + 1 - count - slots)
                          for rank in readers]
            chain.append(copy(self.slot(self._me, turn, i), source[self.part(i)]))
            chain.append(tell(self._filled(self._me, turn), count, i + 1 - count))
        return chain

    def part(self, i: int) -> slice:
        """Segment ``i`` of the vector."""
        return self._segments.part(i)

    def slot(self, rank: int, turn: int, i: int) -> Bytes:
        """Local. Where a rank puts segment ``i``."""
        if self._short:
            return self._line(rank, turn)[8 : 8 + self.nbytes]
        return self._segments.slot(self._memory(rank)[self._head :], turn, i)

    def come(self, rank: int, turn: int, i: int) -> Step:
        """Local. Wait for segment ``i`` of a rank."""
        return wait_for(self._filled(rank, turn), self.count, i + 1 - self.count)

    def took(self, i: int) -> list[Step]:
        """Local. Say that segment ``i`` of all vectors has been taken, where they do not fit."""
        return [] if self.fit else [tell(self._taken(self._me), self.count, i + 1 - self.count)]

    def took_before(self) -> Plan:
        """Local. Where they fit: say that those of the rounds before have been taken."""
        return [[tell(self._taken(self._me), self.count, -self.count)]] if self.fit else []

    def _line(self, rank: int, turn: int) -> Bytes:
        start = self._head + turn * ALIGNMENT
        return self._memory(rank)[start : start + ALIGNMENT]

    def _filled(self, rank: int, turn: int) -> Cell:
        if self._short:
            return self._line(rank, turn)[:8].view(np.int64)
        return self._memory(rank)[ALIGNMENT : ALIGNMENT + 8].view(np.int64)

    def _taken(self, rank: int) -> Cell:
        return self._memory(rank)[:8].view(np.int64)

    def _memory(self, rank: int) -> Bytes:
        return self._control.ring(rank, self.stop)[self._start :]


class _Flat:
    """Everybody on a node reads what it wants of the others' contributions, and reduces it."""

    def __init__(self, reduction: Reduction, wants: dict[int, Sequence[int]]) -> None:
        """``wants``: by rank, whose contributions it reduces."""
        self.ring = Ring(reduction.nbytes)
        self._reduction, me = reduction, reduction.rank
        self._of = list(wants[me])
        self._readers = [rank for rank in wants if rank != me and me in wants[rank]]
        self._in_place = address(reduction.source) == address(reduction.target)
        unread = [rank for rank in self._of if rank != me and rank not in self._readers]
        self.tells = bool(unread)  # somebody learns only so that this rank has read
        if self.ring.fit:
            self._unheard = [rank for rank in self._readers if rank not in self._of]
        else:
            self._unheard = self._readers

    def put(self, turn: int) -> Plan:
        """Local. This rank's contribution, for its readers."""
        if not self._puts:
            return []
        return [self.ring.put(turn, self._reduction.source, self._unheard)]

    @property
    def _puts(self) -> bool:
        """Whether this rank's contribution goes into its ring: others want it, or it would be
        overwritten before it is reduced."""
        me = self._reduction.rank
        late = self._in_place and me in self._of and self._of.index(me) > 1
        return bool(self._readers) or late

    def take(self, turn: int, target: Bytes, part: slice) -> Chain:
        """Local. The reduction of a part of the contributions; nothing where none is wanted."""
        ring, reduction, me = self.ring, self._reduction, self._reduction.rank
        chain: Chain = []
        for i in range(ring.count if self._of else 0):
            here = ring.part(i)
            low, high = max(here.start, part.start), min(here.stop, part.stop)
            if low <= high:
                chain += [ring.come(r, turn, i) for r in self._of if r != me or self._puts]
            if low < high:
                inner = slice(low - here.start, high - here.start)
                sources = [
                    reduction.source[low:high] if r == me and not (self._in_place and self._puts)
                    else ring.slot(r, turn, i)[inner] for r in self._of
                ]
                goal = target[low - part.start : high - part.start]
                if len(sources) > 1 or address(sources[0]) != address(goal):
                    chain += reduction.fold.steps(goal, sources)
            chain += ring.took(i)
        return chain


class _Divided:
    """Everybody reduces a part of all contributions, and copies the others' where all want all."""

    def __init__(self, reduction: Reduction) -> None:
        self._reduction = reduction
        size, extent = reduction.ranks, reduction.fold.element.extent
        self._all = reduction.everybody_wants_all
        if self._all:
            count = reduction.nbytes // extent
            edges = [extent * (count * rank // size) for rank in range(size + 1)]
            self._parts = [slice(*edge) for edge in pairwise(edges)]
        else:
            self._parts = [share.part for share in reduction.shares]
        longest = max(part.stop - part.start for part in self._parts)
        wanted = max(SEGMENT // size, -(-longest // MOST_SEGMENTS))
        self._size = extent * max(1, -(-wanted // extent))
        self._count = -(-longest // self._size)
        self._slots = min(SLOTS, self._count)
        self._slot = size * aligned(self._size)
        self._results = 2 * ALIGNMENT + 2 * self._slots * self._slot
        self.room = self._results + self._slots * aligned(self._size)
        self.turns = 2

    def plan(self, control: Control, turn: int) -> Plan:
        """Local. A step for each segment: contribute it, reduce the one before, and copy the one
        before that."""
        reduction, count = self._reduction, self._count
        me, size = reduction.rank, reduction.ranks
        source, target = reduction.source, reduction.target
        memory = [control.ring(rank, self.room) for rank in range(size)]
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

        def result(rank: int, i: int) -> Bytes:
            place, here = self._results + i % self._slots * aligned(self._size), chunk(rank, i)
            return memory[rank][place : place + here.stop - here.start]

        chain: Chain = []
        for step in range(count + (2 if self._all else 1)):
            if step < count:
                behind = -2 * count if step < self._slots else step + 1 - count - self._slots
                chain += [wait_for(ready[other], count, behind) for other in others]
                chain += [copy(slot(me, r, step), source[chunk(r, step)]) for r in others]
                chain.append(tell(filled[me], count, step + 1 - count))
            i = step - 1
            if 0 <= i < count:
                chain += [wait_for(filled[other], count, i + 1 - count) for other in others]
                here, part = chunk(me, i), self._parts[me]
                goal = result(me, i) if self._all else (
                    target[here.start - part.start : here.stop - part.start]
                )
                came = [source[here] if r == me else slot(r, me, i) for r in range(size)]
                own = target[here] if self._all else goal
                for inner in self._pieces(goal.size):
                    chain += reduction.fold.steps(goal[inner], [each[inner] for each in came])
                    if self._all:
                        chain.append(copy(own[inner], goal[inner]))
                chain.append(tell(ready[me], count, i + 1 - count))
            i = step - 2
            if self._all and 0 <= i < count:
                for other in others:
                    chain.append(wait_for(ready[other], count, i + 1 - count))
                    chain.append(copy(target[chunk(other, i)], result(other, i)))
        return [chain]

    def _pieces(self, nbytes: int) -> list[slice]:
        extent = self._reduction.fold.element.extent
        size = extent * max(1, PIECE // extent)
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
        wants: dict[int, Sequence[int]] = {rank: [] for rank in node.ranks}
        if self._prefix:
            wants = {rank: [r for r in node.ranks if r in reduction.shares[rank].ranks]
                     for rank in node.ranks}
        self._own = wants[me]  # of the node, what this rank reduces for itself
        wants[self._leader] = node.ranks
        self.up = _Flat(reduction, wants)
        span = self._span(reduction, nodes)
        self._span_start = span.start
        self.down = Ring(span.stop - span.start, self.up.ring.stop)
        self.room = self.down.stop if len(node.ranks) > 1 else 0
        self.turns = max(self.up.ring.turns, self.down.turns)
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
        shares, fold = reduction.shares, reduction.fold
        alone = len(self._ranks) == 1
        self._total = reduction.source if alone else np.empty_like(reduction.source)
        whole = reduction.share.nbytes == span.stop - span.start and not self._prefix
        size = span.stop - span.start
        self._result = reduction.target if whole else np.empty(size, np.uint8)
        team = Team(reduction.context.comm, reduction.number, nodes.leaders, fold, resources)
        if self._prefix:
            team.scan(self._total, self._result, self._result[:0])
        elif reduction.everybody_wants_all:
            team.allreduce(self._total, self._result)
        elif reduction.everybody_wants_parts and nodes.in_order:
            parts = [self._of_node(reduction, nodes.of[leader]) for leader in nodes.leaders]
            team.reduce_scatter(self._total, self._result, parts)
        elif reduction.everybody_wants_parts:
            team.allreduce(self._total, self._result)
        else:
            root = next((r for r in range(reduction.ranks) if shares[r].ranks), 0)
            place = next(i for i, lead in enumerate(nodes.leaders) if root in nodes.of[lead])
            team.reduce(self._total, self._result, place)
        self.team = team
        self._behind = self._leader != nodes.leaders[0]

    def plan(self, control: Control | None, turn: int) -> Plan:
        reduction, up, down = self._reduction, self.up, self.down
        plan: Plan = []
        chain: Chain = []
        turns = turn % up.ring.turns, turn % down.turns
        if control is not None:
            up.ring.bind(control, reduction.rank)
            down.bind(control, reduction.rank)
            plan += up.ring.took_before() if up.tells else []
            plan += up.put(turns[0])
        if self.team is None:
            return [*plan, *self._follow(turns)]
        if control is not None:
            chain += up.take(turns[0], self._total, slice(0, reduction.nbytes))
        chain += self.team.chain
        if control is not None and self._takers:
            chain += down.put(turns[1], self._result, self._takers)
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

    def _follow(self, turns: tuple[int, int]) -> Plan:
        """What the other ranks of a node do."""
        reduction, down, leader = self._reduction, self.down, self._leader
        target, part = reduction.target, reduction.share.part
        chain = self.up.take(turns[0], target, part)
        if reduction.rank not in self._takers:
            return [chain]
        for i in range(down.count):
            chain.append(down.come(leader, turns[1], i))
            here = down.part(i)
            start = part.start - self._span_start
            low, high = max(here.start, start), min(here.stop, start + target.size)
            if low < high:
                came = down.slot(leader, turns[1], i)[low - here.start : high - here.start]
                goal = target[low - start : high - start]
                fold = reduction.fold
                chain.append(fold.step(goal, came, goal) if self._own else copy(goal, came))
            chain += down.took(i)
        return [*down.took_before(), chain]


class StoreAndSend(ReductionTransport):
    """Counters and slots on the node, persistent messages between nodes."""

    def __init__(self, operation: Reduction, resources: Resources) -> None:
        super().__init__(operation, resources)
        reduction = operation
        self._form: _Flat | _Divided | _Hierarchy
        if not reduction.node.alone:
            self._form = _Hierarchy(reduction, resources)
            room, self._turns = self._form.room, self._form.turns
        elif self._is_long(reduction):
            self._form = _Divided(reduction)
            room, self._turns = self._form.room, self._form.turns
        else:
            self._form = _Flat(reduction, {r: s.ranks for r, s in enumerate(reduction.shares)})
            room, self._turns = self._form.ring.stop, self._form.ring.turns
        self._control: Control | None = None
        if reduction.ranks > 1:
            self._control = Control(reduction, resources, room, False)

    @staticmethod
    def _is_long(reduction: Reduction) -> bool:
        divided = reduction.everybody_wants_all or reduction.everybody_wants_parts
        long = reduction.nbytes >= LONG and reduction.ranks > 1
        return divided and long and reduction.fold.quick

    def plans(self) -> list[Plan]:
        return [self._plan(turn) for turn in range(self._turns)]

    def _plan(self, turn: int) -> Plan:
        form, control, reduction = self._form, self._control, self.reduction
        if isinstance(form, _Hierarchy):
            return form.plan(control if form.room else None, turn)
        if control is None:
            source, target = reduction.source, reduction.target
            same = not target.size or address(source) == address(target)
            return [] if same else [[copy(target, source)]]
        if isinstance(form, _Divided):
            return form.plan(control, turn)
        form.ring.bind(control, reduction.rank)
        first = form.ring.took_before() if form.tells else []
        chain = form.take(turn, reduction.target, reduction.share.part)
        return [*first, *form.put(turn), *([chain] if chain else [])]

    def waiting_for(self, number: int) -> str:
        near = [f"rank {r}" for r in self.reduction.node.ranks if r != self.reduction.rank]
        return f"contributions of {', '.join(near) or 'other nodes'}"

    def forget(self) -> None:
        super().forget()
        if isinstance(self._form, _Hierarchy) and self._form.team is not None:
            self._form.team.forget()
