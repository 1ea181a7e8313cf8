"""The reductions: what all ranks have agreed on, and the initialization functions, where they do.

All of them are one thing: every rank *contributes* a vector; a rank *wants* a part of it, reduced
over a range of ranks, in the order of the ranks.

====================  ================  =======================
operation             part              over the contributions
====================  ================  =======================
Allreduce             all               of all ranks
Reduce                all, at the root  of all ranks
Reduce_scatter        its block         of all ranks
Scan                  all               up to its own
Exscan                all               of the ranks below
Barrier               nothing           of all ranks
====================  ================  =======================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike, NDArray

from onesided.collectives.agreement import agree, agreed
from onesided.collectives.buffers import as_number, in_place
from onesided.collectives.context import Context, Resources
from onesided.collectives.errors import PatternError, RequestError
from onesided.collectives.hints import ESTIMATE, Hints
from onesided.collectives.initialization import Call, Info, initialize
from onesided.collectives.memory import hold
from onesided.collectives.pattern import check_root
from onesided.collectives.reduction.folds import Element, Fold, Message, made_of
from onesided.collectives.registry import REDUCTION, Method
from onesided.collectives.request import Request
from onesided.collectives.transport import Operation, Transport

Bytes = NDArray[np.uint8]

@dataclass(frozen=True)
class Share:
    """What one rank wants: bytes of the vector, over the first ``over`` ranks (none: nothing)."""

    part: slice
    over: int

    @property
    def nbytes(self) -> int:
        return int(self.part.stop - self.part.start)


@dataclass
class Reduction(Operation):
    """All that a transport needs to know.

    ``source`` is this rank's contribution, ``target`` where its share goes, as bytes, aligned; they
    are the same memory, or have none in common. Where the caller wants the result over other
    elements of the contribution, or where his memory is not aligned, the contribution is copied
    aside ``before`` a round; where that is not aligned or the type has gaps, the result is copied
    to him ``after`` it. ``shares`` are those of all ranks, the same everywhere. ``out`` and
    ``into`` are the caller's buffers as MPI's own function of this ``name`` takes them (``out`` is
    None for ``MPI.IN_PLACE``), ``rest`` are its other arguments.
    """

    name: str
    fold: Fold
    source: Bytes
    target: Bytes
    shares: list[Share]
    out: Message | None
    into: Message | None
    rest: tuple[Any, ...]
    before: Callable[[], object] | None = None
    after: Callable[[Any], object] | None = None
    words: str = ""

    @property
    def sent(self) -> Any:
        """The send data as the caller gave them."""
        return MPI.IN_PLACE if self.out is None else self.out.given

    @property
    def given(self) -> Any:
        """The receive buffer as the caller gave it."""
        return None if self.into is None else self.into.given

    def arguments(self, datatype: MPI.Datatype) -> tuple[Any, ...]:
        """Local. Those of MPI's own function."""
        if self.name == "Barrier":
            return ()
        if self.scatters_in_place:
            return ([self.source, datatype], [self.target, datatype], *self.rest)
        out = MPI.IN_PLACE if self.out is None else [self.out.memory, datatype]
        into = None if self.into is None else [self.into.memory, datatype]
        return (out, into, *self.rest)

    def buffers(self) -> list[object]:
        """Local. What must be kept alive as long as the request."""
        return [self.source, self.target, self.sent, self.given]

    def elsewhere(self, number: int) -> Reduction:
        """Local. The same in memory of its own, of zeros, under another number."""
        element = self.fold.element
        source, target, into = np.zeros_like(self.source), self.target, None
        if self.into is not None:
            part = self.out is None and self.everybody_wants_parts
            memory = np.zeros_like(target if part else self.into.memory)
            into, target = Message(memory, element, memory), memory[: target.size]
        return replace(self, source=source, target=target, number=number, before=None,
                       after=None, out=Message(source, element, source), into=into)

    @property
    def nbytes(self) -> int:
        """Bytes that every rank contributes."""
        return self.source.size

    @property
    def share(self) -> Share:
        return self.shares[self.rank]

    @property
    def everybody_wants_all(self) -> bool:
        """Whether all ranks have the same result in the end."""
        return all(s.part == slice(0, self.nbytes) and s.over == self.ranks for s in self.shares)

    @property
    def everybody_wants_parts(self) -> bool:
        """Whether the vector is divided among the ranks, each of which wants its part over all."""
        edges = [0, *(share.part.stop for share in self.shares)]
        wanted = [(share.part.start, share.over) for share in self.shares]
        follow = wanted == [(edge, self.ranks) for edge in edges[:-1]]
        return follow and edges[-1] == self.nbytes and self.ranks > 1

    @property
    def scatters_in_place(self) -> bool:
        """Whether the contribution is where the result, a part of it, shall be.

        MPI's own gets the copies that are made ``before`` a round: MPICH 5.0.1 ends the program in
        the middle of an uneven one (MPI-4.1 section 6.10.2 allows it).
        """
        return self.out is None and self.everybody_wants_parts

    @property
    def root(self) -> int | None:
        """The first rank that wants something."""
        return next((rank for rank, share in enumerate(self.shares) if share.over), None)

    @property
    def by_prefix(self) -> bool:
        """Whether ranks want the vector over some of the ranks only."""
        return any(0 < share.over < self.ranks for share in self.shares)


class ReductionTransport(Transport):
    """A transport of a reduction: ``Wait`` returns the caller's receive buffer."""

    operation: Reduction

    def __init__(self, operation: Reduction, resources: Resources) -> None:
        super().__init__(operation, resources)
        sides = (operation.out, operation.into)
        hold(resources, *(None if side is None else side.memory for side in sides))
        self.arrays = [operation.target]
        self.answers = [operation.given]
        self.owns_slots = True

    def watched(self) -> tuple[list[NDArray[Any]], list[list[NDArray[Any]]], np.dtype[Any]]:
        source, target = self.operation.source, self.operation.target
        if self.operation.out is None:
            return [], [[]], np.dtype(np.uint8)
        return [source], [[target]], np.dtype(np.uint8)


# -- the functions -------------------------------------------------------------------------------


def Barrier_init(comm: MPI.Comm, *, method: str = "auto", info: Info = None) -> Request:
    """Collective. A persistent ``MPI_Barrier``: no rank completes a round that any rank has not
    started.

    Parameters and errors as in :func:`Allreduce_init`. Source: MPI-4.1 section 6.13.1.

    Examples
    --------
    >>> with Barrier_init(comm) as barrier:
    ...     barrier.Start()
    ...     barrier.Wait()  # all have started
    """

    def read(context: Context) -> _Form:
        size = context.comm.size
        nothing = replace(Message.read(bytearray(0), "send"), given=None)
        fold = Fold(MPI.BOR, nothing.element)
        return _Form(fold, nothing, nothing, [Share(slice(0, 0), size)] * size)

    return _initialize("Barrier", comm, read, (), method, info)


def Reduce_init(
    comm: MPI.Comm, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, root: int = 0, *,
    method: str = "auto", info: Info = None,
) -> Request:  # fmt: skip
    """Collective. A persistent ``MPI_Reduce``: the root gets the reduction of all contributions.

    ``sendbuf`` may be ``MPI.IN_PLACE`` on the root, ``recvbuf`` is None, or whatever, elsewhere.
    Parameters and errors as in :func:`Allreduce_init`. Source: MPI-4.1 section 6.9.1.

    Examples
    --------
    >>> with Reduce_init(comm, np.ones(2), np.zeros(2), MPI.SUM, root=0) as request:
    ...     request.Start()
    ...     received = request.Wait()
    >>> comm.rank > 0 or bool((received == comm.size).all())
    True
    """

    def read(context: Context, sendbuf: Any, recvbuf: Any) -> _Form:
        size, rank = context.comm.size, context.comm.rank
        origin = check_root(root, size)
        if rank != origin and in_place(sendbuf):
            raise PatternError("MPI.IN_PLACE is for the root of a reduction")
        into = Message.read(recvbuf, "recv") if rank == origin else None
        out = into if into is not None and in_place(sendbuf) else None
        out = Message.read(sendbuf, "send") if out is None else out
        whole = slice(0, out.memory.size)
        shares = [Share(slice(0, 0), 0)] * size
        shares[origin] = Share(whole, size)
        return _Form(Fold(op, out.element), out, into, shares, (op, origin), f"to {origin}")

    return _initialize("Reduce", comm, read, (sendbuf, recvbuf), method, info)


def Allreduce_init(
    comm: MPI.Comm, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, *,
    method: str = "auto", info: Info = None,
) -> Request:  # fmt: skip
    """Collective. A persistent ``MPI_Allreduce``: every rank gets the same reduction.

    Parameters
    ----------
    sendbuf
        mpi4py's specification of a message: an array or buffer, ``[data, type]`` or
        ``[data, count, type]``, with as many elements of the same type on every rank, or
        ``MPI.IN_PLACE``: the contribution is in ``recvbuf``. Bound, and kept alive until ``Free``;
        read from ``Start`` until completion.
    recvbuf
        The same for the result, which ``Wait`` returns as it was given.
    op
        A predefined operation, or one of the caller's, which has to live until ``Free``.
        Contributions are reduced in the order of the ranks, whether it commutes or not; where the
        ranks of a node do not follow each other, commuting operations node by node. The result has
        the same bits on every rank and in every round of the request; another method may round in
        another way.
    method
        A name from ``methods("reduction")``.
    info
        Hints, see :class:`~onesided.collectives.hints.Hints`; unknown keys are ignored.

    Raises
    ------
    PatternError, MismatchError, MethodError, UnsupportedError, ResourceError
        On every rank, before anything is started: counts, types, operations or roots that differ,
        an operation that does not take the type.

    References
    ----------
    MPI-4.1 section 6.9.6.

    Examples
    --------
    >>> mine, total = np.ones(2), np.zeros(2)
    >>> with Allreduce_init(comm, mine, total, MPI.SUM) as request:
    ...     request.Start()
    ...     bool((request.Wait() == comm.size).all())
    True
    """
    return _whole("Allreduce", comm, sendbuf, recvbuf, op, lambda rank, size: size, method, info)


def Reduce_scatter_block_init(
    comm: MPI.Comm, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, *,
    method: str = "auto", info: Info = None,
) -> Request:  # fmt: skip
    """Collective. A persistent ``MPI_Reduce_scatter_block``: blocks of equal length.

    Parameters and errors as in :func:`Reduce_scatter_init`. Source: MPI-4.1 section 6.10.1.

    Examples
    --------
    >>> with Reduce_scatter_block_init(comm, np.ones(2 * comm.size), np.zeros(2)) as request:
    ...     request.Start()
    ...     bool((request.Wait() == comm.size).all())
    True
    """

    def read(context: Context, sendbuf: Any, recvbuf: Any) -> _Form:
        size, placed = context.comm.size, in_place(sendbuf)
        into = Message.read(recvbuf, "recv", size if placed else 1)
        count = into.count // size if placed else into.count
        return _scattered(context, sendbuf, into, [count] * size, op, block=True)

    return _initialize("Reduce_scatter_block", comm, read, (sendbuf, recvbuf), method, info)


def Reduce_scatter_init(
    comm: MPI.Comm, sendbuf: Any, recvbuf: Any, recvcounts: Sequence[int] | None = None,
    op: MPI.Op = MPI.SUM, *, method: str = "auto", info: Info = None,
) -> Request:  # fmt: skip
    """Collective. A persistent ``MPI_Reduce_scatter``: each rank gets its block of the reduction.

    ``recvcounts`` are the elements that each rank gets, in the order of the ranks, the same on all
    of them; without them those of ``recvbuf`` are asked for. With ``MPI.IN_PLACE`` the contribution
    is in ``recvbuf``, and the result at its beginning. Other parameters and errors as in
    :func:`Allreduce_init`. Source: MPI-4.1 section 6.10.2.

    Examples
    --------
    >>> counts = list(range(1, comm.size + 1))  # a block for each rank
    >>> mine = np.zeros(comm.rank + 1)
    >>> with Reduce_scatter_init(comm, np.ones(sum(counts)), mine, counts) as request:
    ...     request.Start()
    ...     bool((request.Wait() == comm.size).all())
    True
    """

    def read(context: Context, sendbuf: Any, recvbuf: Any) -> _Form:
        nonlocal recvcounts  # as they are now, also for another request like this one
        into = Message.read(recvbuf, "recv")
        if recvcounts is None:
            if in_place(sendbuf):
                raise PatternError("recvcounts are needed with MPI.IN_PLACE")
            return _scattered(context, sendbuf, into, None, op)
        if not isinstance(recvcounts, Iterable):
            raise PatternError(f"recvcounts are {recvcounts!r:.60}, no sequence")
        recvcounts = [as_number(count, "recvcount") for count in recvcounts]
        if len(recvcounts) != context.comm.size or any(count < 0 for count in recvcounts):
            raise PatternError(
                f"recvcounts are {recvcounts}, one for each of {context.comm.size} ranks is needed"
            )
        return _scattered(context, sendbuf, into, recvcounts, op)

    return _initialize("Reduce_scatter", comm, read, (sendbuf, recvbuf), method, info)


def Scan_init(
    comm: MPI.Comm, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, *,
    method: str = "auto", info: Info = None,
) -> Request:  # fmt: skip
    """Collective. A persistent ``MPI_Scan``: each rank gets the reduction up to its own
    contribution.

    Parameters and errors as in :func:`Allreduce_init`. Source: MPI-4.1 section 6.11.1.

    Examples
    --------
    >>> with Scan_init(comm, np.ones(1), np.zeros(1)) as request:
    ...     request.Start()
    ...     float(request.Wait()[0]) == comm.rank + 1
    True
    """
    return _whole("Scan", comm, sendbuf, recvbuf, op, lambda rank, size: rank + 1, method, info)


def Exscan_init(
    comm: MPI.Comm, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, *,
    method: str = "auto", info: Info = None,
) -> Request:  # fmt: skip
    """Collective. A persistent ``MPI_Exscan``: each rank gets the reduction of the ranks below it;
    rank 0's receive buffer is left alone.

    Parameters and errors as in :func:`Allreduce_init`. Source: MPI-4.1 section 6.11.2.

    Examples
    --------
    >>> with Exscan_init(comm, np.ones(1), np.zeros(1)) as request:
    ...     request.Start()
    ...     float(request.Wait()[0]) == comm.rank
    True
    """
    return _whole("Exscan", comm, sendbuf, recvbuf, op, lambda rank, size: rank, method, info)


def _whole(
    name: str, comm: MPI.Comm, sendbuf: Any, recvbuf: Any, op: MPI.Op,
    over: Callable[[int, int], int], method: str, info: Info,
) -> Request:  # fmt: skip
    """Collective. A reduction of which a rank wants all elements, over the contributions of the
    first ``over(rank, size)`` ranks; nothing where there is none."""

    def read(context: Context, sendbuf: Any, recvbuf: Any) -> _Form:
        into = Message.read(recvbuf, "recv")
        out = into if in_place(sendbuf) else Message.read(sendbuf, "send")
        counts = [over(rank, context.comm.size) for rank in range(context.comm.size)]
        shares = [Share(slice(0, out.memory.size if count else 0), count) for count in counts]
        return _Form(Fold(op, out.element), out, into, shares, (op,))

    return _initialize(name, comm, read, (sendbuf, recvbuf), method, info)


# -- in common -----------------------------------------------------------------------------------


@dataclass
class _Form:
    """What a rank has read of its arguments. ``shares`` of None: to be learned from all ranks.
    ``whole``: whoever receives, receives all elements."""

    fold: Fold
    out: Message
    into: Message | None
    shares: list[Share] | None
    rest: tuple[Any, ...] = ()
    words: str = ""
    whole: bool = True

    def __post_init__(self) -> None:
        """The two buffers against each other."""
        out, into = self.out, self.into
        if into is None:
            return
        sent, received = ((each.dtype, each.dtype.kind == "V" and made_of(each.datatype))
                          for each in (out.element, into.element))
        if sent != received:
            raise PatternError(f"{out.element} is sent, and {into.element}, another, received")
        if self.whole and out.count != into.count:
            raise PatternError(f"{out.count} elements are sent, and {into.count} received")
        if out is not into and np.may_share_memory(out.memory, into.memory):
            raise PatternError("the send and the receive buffer overlap; MPI.IN_PLACE says so")

    def __str__(self) -> str:
        return f"{self.out.count} elements, {self.fold} {self.words}".rstrip()


def _scattered(
    context: Context, sendbuf: Any, into: Message, counts: list[int] | None, op: MPI.Op,
    block: bool = False,
) -> _Form:  # fmt: skip
    placed = in_place(sendbuf)
    out = into if placed else Message.read(sendbuf, "send", len(counts or ()) if block else 1)
    fold = Fold(op, out.element)
    if counts is None:
        return _Form(fold, out, into, None, (None, op), whole=False)
    mine = counts[context.comm.rank]
    if sum(counts) != out.count or (not placed and mine != into.count):
        raise PatternError(
            f"rank {context.comm.rank} sends {out.count} elements and receives {into.count}; the "
            f"blocks have {counts}"
        )
    shares = _shares_of(counts, out.element)
    if block:
        return _Form(fold, out, into, shares, (op,), whole=False)
    return _Form(fold, out, into, shares, (counts, op), f"in blocks of {counts}", False)


def _shares_of(counts: Sequence[int], element: Element) -> list[Share]:
    edges = pairwise(accumulate(counts, initial=0))
    return [Share(slice(a * element.extent, b * element.extent), len(counts)) for a, b in edges]


def _initialize(
    name: str, comm: MPI.Comm, read: Callable[..., _Form], given: tuple[Any, ...], method: str,
    info: Info,
) -> Request:  # fmt: skip
    """Collective. One agreement, and what the transport needs."""

    def match(
        form: _Form, method: Method, context: Context, hints: Hints, before: Reduction | None
    ) -> Reduction:
        if form.shares is None:
            _learn(context, form)
        number = context.next_tag()
        with agreed(context.comm, f"reduction {number}"):
            if before is not None and (str(form), form.shares) != (before.words, before.shares):
                raise PatternError(f"{form}, where request {before.number} has {before.words}")
            return _reduction(name, number, method, context, hints, form)

    call = Call(f"{name}_init", REDUCTION, read, match, str)
    return initialize(call, comm, given, method, info)


def _learn(context: Context, form: _Form) -> None:
    """Collective. The blocks of a Reduce_scatter, from what every rank receives."""
    counts: list[int] = context.comm.allgather(0 if form.into is None else form.into.count)
    error = None
    if sum(counts) != form.out.count:
        error = PatternError(f"{form.out.count} elements are sent, the blocks have {counts}")
    agree(context.comm, error, "Reduce_scatter_init, blocks")
    form.shares = _shares_of(counts, form.out.element)
    form.rest = (counts, form.rest[1])


def _reduction(
    name: str, number: int, method: Method, context: Context, hints: Hints, form: _Form
) -> Reduction:
    shares, into = form.shares or [], form.into
    mine, source = shares[context.comm.rank], form.out.memory
    target = np.empty(0, np.uint8) if into is None else into.memory[: mine.nbytes]
    element, before, after = form.fold.element, None, None
    out = None if form.out is into and name != "Barrier" else form.out
    # a contribution that the result will be written over, or at an odd address, is copied aside
    if not element.aligned(source) or (out is None and not form.whole):
        source = np.empty_like(source)
        before = partial(np.copyto, source, form.out.memory)
    if not element.aligned(target) or (element.gaps and target.size):
        after, goal = partial(element.copy, target), np.empty_like(target)
        target = source if out is None and form.whole and before is not None else goal
    return Reduction(
        method.name, method.any_order, context, hints, number, name, form.fold, source, target,
        shares, out, into, form.rest, before, after, str(form),
    )  # fmt: skip


# -- sums that belong to a communicator ----------------------------------------------------------

#: Numbers of 8 bytes that travel in one cache line with the counter that tells of them.
FEW = 7


class Sums:
    """The sums over all ranks of a few numbers: write them to ``own``, call ``reduce``, or
    ``start`` and ``finish``, and find them in ``total``. Got from :func:`sums`.

    Examples
    --------
    >>> request = sums(comm, 1)
    >>> request.own[0] = comm.rank
    >>> request.start()  # compute something else meanwhile
    >>> total = request.finish()
    >>> float(total[0]) == comm.size * (comm.size - 1) / 2
    True
    """

    def __init__(self, comm: MPI.Comm, count: int, dtype: np.dtype[Any]) -> None:
        """Collective."""
        self.own: NDArray[Any] = np.zeros(count, dtype)
        self.total: NDArray[Any] = np.zeros(count, dtype)
        estimate = {"effort": ESTIMATE}  # nobody waits for measurements because of a few numbers
        self.request = Allreduce_init(comm, self.own, self.total, info=estimate)
        self.start, self.finish = self.request.Start, self.request.Wait

    def reduce(self) -> None:
        """Collective. One round."""
        try:
            self.start()
            self.finish()
        except RequestError:  # nothing was begun here
            raise
        except BaseException as error:
            self.give_up(error)
            raise

    def give_up(self, error: BaseException) -> None:
        """Local, internal. An exception has come between ``start`` and ``finish``, and nobody will
        finish: the request is broken by it, until :func:`drop_broken_sums`."""
        self.request.give_up(error)

    def of(self, *numbers: Any) -> list[Any]:
        """Collective. The sums of some numbers, at most as many as there is room for."""
        for place, number in enumerate(numbers):
            self.own[place] = number
        self.reduce()
        found: list[Any] = self.total.tolist()
        return found[: len(numbers)]


def sums(comm: MPI.Comm, count: int = FEW, dtype: DTypeLike = np.float64) -> Sums:
    """Collective the first time on a communicator, local afterwards. Sums of a few numbers.

    Up to ``count`` numbers of this dtype are summed by one persistent Allreduce that belongs to
    the communicator and lives as long. Who asks again gets the same object, or another one while
    that is active.

    Examples
    --------
    >>> request = sums(comm, 2)
    >>> request.own[:] = 1, comm.rank
    >>> request.reduce()
    >>> float(request.total[0]) == comm.size
    True
    """
    context, kind = Context.of(comm), np.dtype(dtype)
    place = 0
    while (known := context.shared.get((count, kind.str, place))) is not None:
        if not known.request.active:
            found: Sums = known
            return found
        place += 1
    made = context.shared[count, kind.str, place] = Sums(comm, count, kind)
    return made


def broken_sums(comm: MPI.Comm) -> bool:
    """Local. Whether this rank has sums of :func:`sums` that an exception ended in mid-round."""
    for each in Context.of(comm).shared.values():
        if each.request.state == "broken":
            return True
    return False


def drop_broken_sums(comm: MPI.Comm) -> None:
    """Collective. Free all of these that are broken on any rank; who asks again gets new ones."""
    shared = Context.of(comm).shared
    mine = [name for name, each in shared.items() if each.request.state == "broken"]
    for name in sorted({name for names in comm.allgather(mine) for name in names}):
        shared.pop(name).request.Free()
