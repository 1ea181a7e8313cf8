"""``onesided bench rma-mt``: one-sided messages of several threads, as the suite RMA-MT has them.

Latency, bandwidth and message rates, the latter of pairs and of a halo, by Put and Get in epochs of
fence, post-start-complete-wait, lock and lock_all, from 1 to many threads, and two-sided messages
of the main thread beside them. As in paper 002 the main thread opens and closes an epoch, and
between that wakes the threads and waits for the last of them; neither their making nor their end
is timed. Every message is checked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.store import Part
from onesided.apps.bench.sweep import Case, Labels, Make, sweep
from onesided.apps.bench.team import Team, Work, check_threads
from onesided.apps.bench.timing import Variant, nothing
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import METHOD, Report, byte_count
from onesided.apps.cli.statistics import Verdict
from onesided.collectives import UnsupportedError, agreed

Bytes = NDArray[np.uint8]
TWO_SIDED = "two-sided"
MOST_WINDOW = 64 << 20  # bytes: fewer messages where they are large
MESSAGES = 256  # of a thread in an epoch, but for latency
NEIGHBORS = 6  # of a rank in a halo

# -- who sends to whom ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Route:
    """The targets and the origins of a rank, a slot of memory for each of them."""

    outgoing: tuple[int, ...]
    incoming: tuple[int, ...]

    @property
    def slots(self) -> int:
        """How many slots of memory a rank has."""
        return max(len(self.outgoing), len(self.incoming))


def paired(rank: int, ranks: int) -> Route:
    """Local. The lower half of the ranks sends to the upper half."""
    half = ranks // 2
    if ranks % 2:
        raise UnsupportedError(f"pairs of ranks need an even number, this job has {ranks}")
    return Route((rank + half,), ()) if rank < half else Route((), (rank - half,))


def surrounded(rank: int, ranks: int) -> Route:
    """Local. Each rank sends to those that are 1, 2, 3 ... before and after it in a ring."""
    steps = [sign * (1 + k // 2) for k, sign in zip(range(NEIGHBORS), NEIGHBORS * (1, -1),
                                                    strict=False)]  # fmt: skip
    if ranks == 1:
        raise UnsupportedError("a halo needs two ranks or more")
    near = [step for step in steps if step % ranks]
    return Route(
        tuple((rank + step) % ranks for step in near),
        tuple((rank - step) % ranks for step in near),
    )


@dataclass(frozen=True)
class Pattern:
    """``many`` messages in an epoch, or one; ``flush``: after each under lock_all."""

    route: Callable[[int, int], Route]
    many: bool
    flush: bool = False


#: By the words of ``--patterns``.
PATTERNS: Mapping[str, Pattern] = {
    "latency": Pattern(paired, False),
    "bandwidth": Pattern(paired, True),
    "rate-pairs": Pattern(paired, True, flush=True),
    "rate-halo": Pattern(surrounded, True, flush=True),
}


@dataclass(frozen=True)
class Layout:
    """Places in memory: for every slot, thread and message."""

    slots: int
    threads: int
    messages: int
    size: int

    @property
    def nbytes(self) -> int:
        """Of all places."""
        return self.slots * self.threads * self.messages * self.size

    def places(self, thread: int) -> list[tuple[int, int]]:
        """Slot and place of the messages of a thread: one slot after the other, then the next."""
        each = self.threads * self.messages * self.size
        begin = thread * self.messages * self.size
        return [
            (slot, slot * each + begin + number * self.size)
            for number in range(self.messages)
            for slot in range(self.slots)
        ]


# -- epochs ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Epoch:
    """Between ``open`` and ``close`` the threads of this rank may put and get.

    Both are Collective where the targets take part, else Local; after ``close`` all operations are
    complete at their origins and their targets. ``free``: of what it holds of MPI.
    """

    open: Work
    close: Work
    free: Work = nothing


def fence(win: MPI.Win, route: Route) -> Epoch:
    """Collective. MPI_Win_fence of all ranks."""
    return Epoch(
        partial(win.Fence, MPI.MODE_NOPRECEDE), partial(win.Fence, MPI.MODE_NOSUCCEED)
    )


def pscw(win: MPI.Win, route: Route) -> Epoch:
    """Collective. Post, start, complete, wait: origins with their targets."""
    everyone = win.Get_group()
    origins = everyone.Incl(sorted(set(route.incoming)))
    targets = everyone.Incl(sorted(set(route.outgoing)))
    everyone.Free()

    def begin() -> None:
        if route.incoming:
            win.Post(origins)
        if route.outgoing:
            win.Start(targets)

    def end() -> None:
        if route.outgoing:
            win.Complete()
        if route.incoming:
            win.Wait()

    def free() -> None:
        for group in (targets, origins):
            if group != MPI.GROUP_EMPTY:
                group.Free()

    return Epoch(begin, end, free)


def lock(win: MPI.Win, route: Route) -> Epoch:
    """Local. A shared lock of every target."""
    targets = sorted(set(route.outgoing))

    def begin() -> None:
        for rank in targets:
            win.Lock(rank, MPI.LOCK_SHARED)

    def end() -> None:
        for rank in targets:
            win.Unlock(rank)

    return Epoch(begin, end)


LOCK_ALL = "lock_all"


def lock_all(win: MPI.Win, route: Route) -> Epoch:
    """Local. One call locks all ranks."""
    return Epoch(win.Lock_all, win.Unlock_all) if route.outgoing else Epoch(nothing, nothing)


#: By the words of ``--syncs``.
SYNCHRONISATIONS: Mapping[str, Callable[[MPI.Win, Route], Epoch]] = {
    "fence": fence, "pscw": pscw, "lock": lock, LOCK_ALL: lock_all,
}  # fmt: skip


# -- who transfers --------------------------------------------------------------------------------


class Transfer(ABC):
    """Messages of a layout, and whether they come as they should. Collective.

    ``sends`` and ``receives``: memory of this rank; ``givers``: ranks whose data come, by slot.
    """

    def __init__(
        self, comm: MPI.Intracomm, layout: Layout, sends: Bytes, receives: Bytes,
        givers: Sequence[int],
    ) -> None:  # fmt: skip
        self.comm, self.layout, self._givers = comm, layout, givers
        self._sends, self._receives = sends, receives
        self._places = np.arange(layout.nbytes // max(1, layout.slots), dtype=np.uint64)

    @abstractmethod
    def call(self) -> None:
        """Collective. One epoch, or the messages that stand for it."""

    @contextmanager
    def exposed(self) -> Iterator[None]:
        """Local. What the memory is looked at and written in."""
        yield

    def check(self, turn: int) -> Verdict:
        """Collective. The part of the bytes that did not come as they should, in a round."""
        with self.exposed():
            self._sends[:] = np.tile(self._data(self.comm.rank, turn), max(1, self.layout.slots))
            self._receives[:] = np.uint8(0)
        self.comm.Barrier()
        self.call()
        self.comm.Barrier()
        wrong = 0
        with self.exposed():
            each = self._places.size
            for slot, rank in enumerate(self._givers):
                part = self._receives[slot * each : (slot + 1) * each]
                wrong += int(np.count_nonzero(part != self._data(rank, turn)))
        return Verdict(self.comm.allreduce(wrong) / (self.layout.nbytes * self.comm.size), 0.0)

    def _data(self, rank: int, turn: int) -> Bytes:
        """Bytes of a slot that a rank sends in a turn; none of them is 0."""
        return (1 + (self._places * 7 + rank * 31 + turn * 113) % 251).astype(np.uint8)

    def free(self) -> None:
        """Collective."""
        self._sends = self._receives = self._sends[:0].copy()


class OneSided(Transfer):
    """Puts or gets of one or more threads in epochs of a window."""

    def __init__(
        self, comm: MPI.Intracomm, route: Route, layout: Layout, sync: str, op: str, *, flush: bool
    ) -> None:
        """Collective."""
        if layout.threads > 1:
            with agreed(comm):
                check_threads(f"{layout.threads} threads")
        self._win = MPI.Win.Allocate(layout.nbytes, 1, comm=comm)
        window: Any = self._win.tomemory()
        exposed: Bytes = np.frombuffer(window, np.uint8)
        own: Bytes = np.zeros(layout.nbytes, np.uint8)
        getting = op == "get"
        sends, receives = (exposed, own) if getting else (own, exposed)
        givers = route.outgoing if getting else route.incoming
        super().__init__(comm, layout, sends, receives, givers)
        self._epoch = SYNCHRONISATIONS[sync](self._win, route)
        self._team: Team | None = None
        self._transfer: Work = nothing
        if route.outgoing:
            flushed = flush and sync == LOCK_ALL
            works = [self._loop(route, thread, own, getting, flushed)
                     for thread in range(layout.threads)]  # fmt: skip
            self._transfer = works[0]
            if layout.threads > 1:
                self._team = Team(1 + layout.threads)
                self._transfer = partial(self._team.run, [nothing, *works])

    def _loop(self, route: Route, thread: int, own: Bytes, getting: bool, flush: bool) -> Work:
        """Local. A loop of calls of mpi4py, whose arguments are made before."""
        size, view, win = self.layout.size, own.data, self._win
        call = win.Get if getting else win.Put
        calls = [
            ((view[place : place + size], size, MPI.BYTE), route.outgoing[slot],
             (place, size, MPI.BYTE))
            for slot, place in self.layout.places(thread)
        ]  # fmt: skip

        def plain() -> None:
            for origin, rank, target in calls:
                call(origin, rank, target)

        def flushed() -> None:
            complete = win.Flush
            for origin, rank, target in calls:
                call(origin, rank, target)
                complete(rank)

        return flushed if flush else plain

    def call(self) -> None:
        """Collective."""
        epoch = self._epoch
        epoch.open()
        self._transfer()
        epoch.close()

    @contextmanager
    def exposed(self) -> Iterator[None]:
        """Local. Stores into the window are made under a lock of it."""
        self._win.Lock(self.comm.rank, MPI.LOCK_EXCLUSIVE)
        try:
            yield
        finally:
            self._win.Unlock(self.comm.rank)

    def free(self) -> None:
        """Collective."""
        if self._team is not None:
            self._team.close()
        self._epoch.free()
        self._transfer = nothing
        super().free()
        self._win.Free()


class TwoSided(Transfer):
    """The baseline: the main thread sends and receives; of latency one message and its answer."""

    def __init__(self, comm: MPI.Intracomm, route: Route, layout: Layout, *, many: bool) -> None:
        """Collective."""
        self._comm = comm.Dup()
        sends: Bytes = np.zeros(layout.nbytes, np.uint8)
        receives: Bytes = np.zeros(layout.nbytes, np.uint8)
        givers = route.incoming if many else (*route.outgoing, *route.incoming)
        super().__init__(comm, layout, sends, receives, givers)
        self._route, size = route, layout.size
        self._outgoing, self._incoming = (
            [((memory.data[place : place + size], size, MPI.BYTE), peers[slot])
             for slot, place in layout.places(0) if peers]
            for memory, peers in ((sends, route.outgoing), (receives, route.incoming))
        )  # fmt: skip
        self._pair = [
            [(memory.data[place : place + size], size, MPI.BYTE) for _, place in layout.places(0)]
            for memory in (sends, receives)
        ]
        self._exchange = self._together if many else self._there_and_back

    def call(self) -> None:
        """Collective."""
        self._exchange()

    def _together(self) -> None:
        """Receives are posted before sends; all complete together."""
        receive, send = self._comm.Irecv, self._comm.Isend
        requests = [receive(buffer, peer) for buffer, peer in self._incoming]
        requests += [send(buffer, peer) for buffer, peer in self._outgoing]
        MPI.Request.Waitall(requests)

    def _there_and_back(self) -> None:
        mine, theirs = self._pair
        first = bool(self._route.outgoing)
        (peer,) = self._route.outgoing or self._route.incoming
        for sends in (first, not first):
            for buffer in mine if sends else theirs:
                (self._comm.Send if sends else self._comm.Recv)(buffer, peer)

    def free(self) -> None:
        """Collective."""
        self._outgoing = self._incoming = []
        del self._pair
        super().free()
        self._comm.Free()


# -- the command ----------------------------------------------------------------------------------

REMARK = (
    "A time is that of an epoch, by the slowest rank; latency of two-sided messages: half of "
    "messages, one for each thread, and their answers. GB/s: bytes that a rank sends; "
    "messages_per_s: messages of a rank. "
    "lock_all flushes after each message where rates are measured, as in paper 002."
)


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where wrong data came."""
    report = Report("bench rma-mt", options.settings(), {"ranks": comm.size}, remarks=[REMARK],
                    across="message", by="pattern", baseline=TWO_SIDED)  # fmt: skip
    cases = [
        _case(name, size, threads, options, comm.size)
        for name in options.patterns
        for threads in sorted(set(options.threads))
        for size in sorted(set(options.sizes))
    ]
    sweep(comm, options, report, cases, "epochs")
    return report.end(comm, options)


def _case(name: str, size: int, threads: int, options: Options, ranks: int) -> Case:
    """Local. Every synchronization and operation with one size of messages."""
    variants = [{METHOD: TWO_SIDED}]
    variants += [{METHOD: sync, "op": op} for sync in options.syncs for op in options.ops]
    labels = {"pattern": name, "threads": str(threads), "message": byte_count(size)}
    return Case(labels, variants, partial(_opened, PATTERNS[name], size, threads),
                against=(TWO_SIDED,), region=2e-4, told=_told)  # fmt: skip


def _opened(
    pattern: Pattern, size: int, threads: int, comm: MPI.Intracomm, stack: ExitStack
) -> Make:
    """Collective. The layout of a size, and what makes a transfer."""

    def make(labels: Labels) -> Variant:
        route = pattern.route(comm.rank, comm.size)  # refused on all ranks, or on none
        slots = comm.allreduce(route.slots, op=MPI.MAX)
        room = MOST_WINDOW // (slots * threads * size)
        messages = max(1, min(MESSAGES, room)) if pattern.many else 1
        two_sided = labels[METHOD] == TWO_SIDED
        layout = Layout(slots, threads, messages, size)
        if two_sided:  # the main thread has the messages of all
            layout = Layout(slots, 1, threads * messages, size)
        transfer: Transfer
        if two_sided:
            transfer = TwoSided(comm, route, layout, many=pattern.many)
        else:
            transfer = OneSided(comm, route, layout, labels[METHOD], labels["op"],
                                flush=pattern.flush)  # fmt: skip
        sent = slots * layout.threads * messages
        steps = 2.0 if two_sided and not pattern.many else 1.0
        turns = count(1)
        return Variant(
            transfer.call, lambda: transfer.check(next(turns)), barriers=True, free=transfer.free,
            steps=lambda: steps, set_up=False,
            metrics={"bytes": sent * size, "message_bytes": size, "messages": sent},
        )  # fmt: skip

    return make


def _told(part: Part) -> None:
    """Local. Rates by the medians."""
    for row in part.rows:
        if row.times:
            row.metrics["messages_per_s"] = row.metrics["messages"] / float(np.median(row.times))
