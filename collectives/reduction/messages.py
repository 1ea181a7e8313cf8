"""Reductions by persistent messages among any ranks: the reference, and what joins the nodes.

Every algorithm keeps the order of the ranks: what is reduced is always the contributions of ranks
that follow each other. So one way does for operations that commute and that do not, and results
have the same bits on all ranks and in all rounds.

==================  ========================================================================
Allreduce, short    recursive doubling
Allreduce, long     recursive halving, nearest rank first, then doubling back (Rabenseifner)
Reduce              up a binomial tree to the first rank, which sends the result to the root
Reduce_scatter      every rank sends every other rank its part
Scan, Exscan        recursive doubling over the ranks below
Barrier             recursive doubling of empty messages
==================  ========================================================================

Sources: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in
MPICH", IJHPCA 19(1), 2005; Hillis and Steele, CACM 29(12), 1986.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.context import Resources
from onesided.collectives.errors import UnsupportedError
from onesided.collectives.pattern import INT_MAX, pieces
from onesided.collectives.reduction.folds import Fold
from onesided.collectives.reduction.operation import Reduction, ReductionTransport
from onesided.collectives.steps import Chain, Plan, address, call, copy
from onesided.collectives.transports.mpi import Blocking, Call, Persistent, held

Bytes = NDArray[np.uint8]

#: Bytes from which an Allreduce moves halves instead of the whole.
LONG = 1 << 15


class Team:
    """Some ranks in their order, one of them this one, and the chain that it executes."""

    def __init__(
        self, comm: MPI.Intracomm, tag: int, members: Sequence[int], fold: Fold,
        resources: Resources,
    ) -> None:  # fmt: skip
        """Local. The messages are started by the steps, in the same order on both sides."""
        self.chain: Chain = []
        self._comm, self._tag, self._members, self._fold = comm, tag, list(members), fold
        self._resources = resources
        self._me, self._size = self._members.index(comm.rank), len(self._members)

    def _exchange(
        self, out: Sequence[tuple[int, Bytes]], into: Sequence[tuple[int, Bytes]]
    ) -> None:
        """Send and receive (member, bytes), and go on when all of that is done."""
        messages = [
            make([piece, MPI.BYTE], self._members[member], self._tag)
            for make, parts in ((self._comm.Recv_init, into), (self._comm.Send_init, out))
            for member, array in parts
            for piece in (pieces(array) or [array])
        ]
        if not messages:
            return
        self._resources.keep += [array for _, array in (*out, *into)]
        for message in messages:
            self._resources.on_release(message.Free)
        self.chain.append(call(partial(MPI.Prequest.Startall, messages), once=True))
        self.chain.append(call(partial(MPI.Prequest.Testall, messages), serves=False))

    def _reduce(self, target: Bytes, left: Bytes, right: Bytes) -> None:
        if target.size:
            self.chain.append(self._fold.step(target, left, right))

    def _copy(self, target: Bytes, source: Bytes) -> None:
        if target.size and address(target) != address(source):
            self.chain.append(copy(target, source))

    # -- the algorithms ----------------------------------------------------------------------------

    def allreduce(self, source: Bytes, target: Bytes) -> None:
        """All get the reduction of all; ``target`` may be ``source``.

        Where the members are no power of two, the first ones join in pairs, whose second stands
        for both.
        """
        power = 1 << (self._size.bit_length() - 1)
        extra, me = self._size - power, self._me
        came = np.empty_like(target)
        if me < 2 * extra:
            if me % 2 == 0:
                self._exchange([(me + 1, source)], [])
                self._exchange([], [(me + 1, target)])
                return
            self._exchange([], [(me - 1, came)])
            self._reduce(target, came, source)
            source = target
        place = me // 2 if me < 2 * extra else me - extra

        def member(place: int) -> int:
            return 2 * place + 1 if place < extra else place + extra

        partners = [member(place ^ bit) for bit in (1 << i for i in range(power.bit_length() - 1))]
        if target.size < LONG:
            for partner in partners:
                self._exchange([(partner, source)], [(partner, came)])
                self._join(target, source, came, partner)
                source = target
        else:
            self._halve(partners, source, target, came)
        if power == 1:
            self._copy(target, source)
        if me < 2 * extra:
            self._exchange([(me - 1, target)], [])

    def _join(self, target: Bytes, mine: Bytes, came: Bytes, partner: int) -> None:
        """In the order of the ranks."""
        if partner < self._me:
            self._reduce(target, came, mine)
        else:
            self._reduce(target, mine, came)

    def _halve(self, partners: list[int], source: Bytes, target: Bytes, came: Bytes) -> None:
        """Each time one half of the range is kept, and the other one given to the partner; then
        the ranges grow again, the other way round."""
        extent = self._fold.element.extent
        low, high = 0, target.size // extent
        way: list[tuple[int, slice, slice]] = []
        for partner in partners:
            middle = (low + high) // 2
            lower = slice(low * extent, middle * extent)
            upper = slice(middle * extent, high * extent)
            kept, given = (lower, upper) if self._me < partner else (upper, lower)
            low, high = (low, middle) if self._me < partner else (middle, high)
            self._exchange([(partner, source[given])], [(partner, came[kept])])
            self._join(target[kept], source[kept], came[kept], partner)
            source = target
            way.append((partner, kept, given))
        for partner, kept, given in reversed(way):
            self._exchange([(partner, target[kept])], [(partner, target[given])])

    def reduce(self, source: Bytes, target: Bytes, root: int) -> None:
        """The member ``root`` gets the reduction; elsewhere ``target`` is not used."""
        me, size, bit = self._me, self._size, 1
        work = target if me == root else np.empty_like(source)
        came = np.empty_like(source)
        while bit < size and not me & bit:
            if me + bit < size:
                self._exchange([], [(me + bit, came)])
                self._reduce(work, source, came)
                source = work
            bit <<= 1
        if me:
            self._exchange([(me - bit, source)], [])
            if me == root:
                self._exchange([], [(0, target)])
        elif root:
            self._exchange([(root, source)], [])
        else:
            self._copy(target, source)

    def reduce_scatter(self, source: Bytes, target: Bytes, parts: Sequence[slice]) -> None:
        """Each member gets its part; ``target`` has nothing in common with ``source``."""
        me, size = self._me, self._size
        others = [(me + i) % size for i in range(1, size)]
        came = {other: np.empty_like(target) for other in others}
        self._exchange(
            [(other, source[parts[other]]) for other in others if source[parts[other]].size],
            [(other, came[other]) for other in others if target.size],
        )
        if target.size:
            sources = [source[parts[me]] if i == me else came[i] for i in range(size)]
            self.chain += self._fold.steps(target, sources)

    def scan(self, source: Bytes, below: Bytes, upto: Bytes) -> None:
        """``below``: the reduction over the members below this one (not written by the first),
        ``upto``: with its own, which may be ``source``. Either may be empty: it is not wanted."""
        me, size, step = self._me, self._size, 1
        came = np.empty_like(source)
        wanted, upto = bool(upto.size), upto if upto.size else np.empty_like(source)
        first = True
        while step < size:
            out = [(me + step, source)] if me + step < size else []
            into = [(me - step, came)] if me >= step else []
            self._exchange(out, into)
            if into:
                if wanted or me + 2 * step < size:  # it is sent on
                    self._reduce(upto, came, source)  # first: below may be the source
                    source = upto
                if below.size and first:
                    self._copy(below, came)
                elif below.size:
                    self._reduce(below, came, below)
                first = False
            step <<= 1
        if wanted:
            self._copy(upto, source)


class PointToPoint(ReductionTransport):
    """The algorithms above among all ranks."""

    def __init__(self, operation: Reduction, resources: Resources) -> None:
        super().__init__(operation, resources)
        reduction = operation
        members = range(reduction.ranks)
        self._team = Team(
            reduction.context.comm, reduction.number, members, reduction.fold, resources
        )
        carry_out(reduction, self._team, reduction.source, reduction.target,
                  [share.part for share in reduction.shares], reduction.root,
                  reduction.share.over > reduction.rank)  # fmt: skip

    def plans(self) -> list[Plan]:
        return [[self._team.chain]]

    def waiting_for(self, number: int) -> str:
        return "contributions of other ranks"


def carry_out(
    reduction: Reduction, team: Team, source: Bytes, target: Bytes, parts: Sequence[slice],
    root: int | None, own: bool = False,
) -> None:  # fmt: skip
    """Local. What each member wants: all, the reduction over those below it, with its ``own`` or
    not, or its part, for which there are none where it has no place of its own: then it gets all.
    Or the member ``root`` alone wants all."""
    nothing = target[:0]
    if reduction.everybody_wants_all:  # of nothing, too: a barrier
        team.allreduce(source, target)
    elif reduction.by_prefix:
        team.scan(source, nothing if own else target, target if own else nothing)
    elif reduction.everybody_wants_parts and parts:
        team.reduce_scatter(source, target, parts)
    elif reduction.everybody_wants_parts:
        team.allreduce(source, target)
    elif root is not None:
        team.reduce(source, target, root)


# -- MPI's own -----------------------------------------------------------------------------------


class _OwnReduction(ReductionTransport):
    """A reduction by MPI's own function."""

    def __init__(self, operation: Reduction, resources: Resources) -> None:
        super().__init__(operation, resources)
        self.as_given = not operation.scatters_in_place

    def own_calls(self) -> list[list[Call]]:
        """Local. The one call of a round."""
        reduction, element = self.operation, self.operation.fold.element
        # of a Reduce_scatter, too, all of it: Open MPI 5.0 adds the counts up in an int
        if MPI.VERSION < 4 and reduction.nbytes // element.extent > INT_MAX:
            raise UnsupportedError(f"{reduction.name} with counts beyond {INT_MAX} on this MPI")
        (datatype,) = held([element.datatype], self.resources)
        return [[(reduction.name, reduction.arguments(datatype))]]


class BlockingReduction(_OwnReduction, Blocking):
    """``MPI_Allreduce``, or what was initialized, in ``Start``."""


class PersistentReduction(_OwnReduction, Persistent):
    """``MPI_Allreduce_init``, or what was initialized, or its nonblocking form."""
