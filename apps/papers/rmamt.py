"""``onesided bench rma-mt``: one-sided messages of several threads, as the suite RMA-MT has them.

Latency, bandwidth and message rates, the latter of pairs and of a halo, by Put and Get in epochs of
fence, post-start-complete-wait, lock and lock_all, from 1 to many threads, and two-sided messages
of the main thread beside them. As in paper 002 the main thread opens and closes an epoch, and
between that wakes the threads and waits for the last of them; neither their making nor their end
is timed. Every message is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.store import Part
from onesided.apps.bench.sweep import Case, Labels, Make, sweep
from onesided.apps.bench.team import Team, Work
from onesided.apps.bench.timing import REGION, Variant, nothing
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import METHOD, Report, byte_count
from onesided.apps.cli.statistics import Verdict
from onesided.collectives import UnsupportedError

Bytes = NDArray[np.uint8]
TWO_SIDED = "two-sided"
MOST_WINDOW = 64 << 20  # bytes: fewer messages where they are large
MESSAGES = 256  # of a thread in an epoch, but for latency
STEPS = (1, -1, 2, -2, 3, -3)  # to the neighbors of a rank in a halo

# -- who sends to whom ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Route:
    """The targets and the origins of a rank, a slot of memory for each of them."""

    outgoing: tuple[int, ...]
    incoming: tuple[int, ...]


def paired(rank: int, ranks: int) -> Route:
    """Local. The lower half of the ranks sends to the upper half."""
    half = ranks // 2
    if ranks % 2:
        raise UnsupportedError(f"pairs of ranks need an even number, this job has {ranks}")
    return Route((rank + half,), ()) if rank < half else Route((), (rank - half,))


def surrounded(rank: int, ranks: int) -> Route:
    """Local. Each rank sends to those that are up to three before and after it in a ring."""
    if ranks == 1:
        raise UnsupportedError("a halo needs two ranks or more")
    near = [step for step in STEPS if step % ranks]
    out, into = (tuple((rank + way * step) % ranks for step in near) for way in (1, -1))
    return Route(out, into)


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
        return self.slots * self.threads * self.messages * self.size

    def messages_of(self, thread: int, memory: Bytes) -> list[tuple[int, int, Any]]:
        """Slot, place and buffer of the messages of a thread: one in each slot, then the next."""
        begin, size = thread * self.messages * self.size, self.size
        places = [
            (slot, slot * (self.nbytes // self.slots) + begin + number * size)
            for number in range(self.messages)
            for slot in range(self.slots)
        ]
        view = memory.data
        return [(slot, at, (view[at : at + size], size, MPI.BYTE)) for slot, at in places]


# -- epochs ---------------------------------------------------------------------------------------

#: What opens an epoch, in which the threads of this rank may put and get; what closes it; and what
#: frees what it holds of MPI. The first two are Collective where the targets take part, else Local;
#: after closing all operations are complete at their origins and their targets.
Epoch = tuple[Work, Work, Work]


def fence(win: MPI.Win, route: Route) -> Epoch:
    """Collective. MPI_Win_fence of all ranks."""
    begin, end = (partial(win.Fence, mode) for mode in (MPI.MODE_NOPRECEDE, MPI.MODE_NOSUCCEED))
    return begin, end, nothing


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

    return begin, end, free


def lock(win: MPI.Win, route: Route) -> Epoch:
    """Local. A shared lock of every target."""
    targets = sorted(set(route.outgoing))

    def begin() -> None:
        for rank in targets:
            win.Lock(rank, MPI.LOCK_SHARED)

    def end() -> None:
        for rank in targets:
            win.Unlock(rank)

    return begin, end, nothing


LOCK_ALL = "lock_all"


def lock_all(win: MPI.Win, route: Route) -> Epoch:
    """Local. One call locks all ranks."""
    begin, end = (win.Lock_all, win.Unlock_all) if route.outgoing else (nothing, nothing)
    return begin, end, nothing


#: By name.
SYNCHRONISATIONS: Mapping[str, Callable[[MPI.Win, Route], Epoch]] = {
    "fence": fence, "pscw": pscw, "lock": lock, LOCK_ALL: lock_all,
}  # fmt: skip


# -- who transfers --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Transfer:
    """Messages of a layout, made ready. ``call``: Collective, one epoch, or the messages that stand
    for it. ``sends`` and ``receives``: memory of this rank, which is looked at and written in a
    context of ``exposed``; ``givers``: ranks whose data come, by slot. ``free``: Collective."""

    call: Work
    free: Work
    sends: Bytes
    receives: Bytes
    givers: Sequence[int]
    exposed: Callable[[], AbstractContextManager[None]] = nullcontext


def one_sided(
    comm: MPI.Intracomm, route: Route, layout: Layout, sync: str, op: str, *, flush: bool
) -> Transfer:
    """Collective. Puts or gets of one or more threads in epochs of a window."""
    several = layout.threads > 1
    members = 1 + layout.threads if several and route.outgoing else 1
    team = Team.of_all(comm, members, f"{layout.threads} threads" if several else "")
    win = MPI.Win.Allocate(layout.nbytes, 1, comm=comm)
    window: Any = win.tomemory()
    memory: Bytes = np.frombuffer(window, np.uint8)
    own: Bytes = np.zeros(layout.nbytes, np.uint8)
    begin, end, release = SYNCHRONISATIONS[sync](win, route)
    transfer: Callable[[], object] = nothing
    if route.outgoing:
        works = [_loop(win, op, flush and sync == LOCK_ALL, route, layout, thread, own)
                 for thread in range(layout.threads)]  # fmt: skip
        transfer = partial(team.run, [nothing, *works]) if several else works[0]

    def call() -> None:
        begin()
        transfer()
        end()

    def free() -> None:
        team.close()
        release()
        win.Free()

    @contextmanager
    def exposed() -> Iterator[None]:
        win.Lock(comm.rank, MPI.LOCK_EXCLUSIVE)
        try:
            yield
        finally:
            win.Unlock(comm.rank)

    if op == "get":
        return Transfer(call, free, memory, own, route.outgoing, exposed)
    return Transfer(call, free, own, memory, route.incoming, exposed)


def _loop(
    win: MPI.Win, op: str, flush: bool, route: Route, layout: Layout, thread: int, own: Bytes
) -> Work:
    """Local. A loop of calls of mpi4py, whose arguments are made before."""
    begin: Callable[..., object] = win.Get if op == "get" else win.Put
    complete = win.Flush
    calls = [
        (buffer, route.outgoing[slot], (place, layout.size, MPI.BYTE))
        for slot, place, buffer in layout.messages_of(thread, own)
    ]

    def plain() -> None:
        for origin, rank, target in calls:
            begin(origin, rank, target)

    def flushed() -> None:
        for origin, rank, target in calls:
            begin(origin, rank, target)
            complete(rank)

    return flushed if flush else plain


def two_sided(comm: MPI.Intracomm, route: Route, layout: Layout, *, many: bool) -> Transfer:
    """Collective. The baseline: the main thread sends and receives, everything at once, or of
    latency messages and their answers."""
    apart = comm.Dup()
    sends: Bytes = np.zeros(layout.nbytes, np.uint8)
    receives: Bytes = np.zeros(layout.nbytes, np.uint8)
    both = (*route.outgoing, *route.incoming)  # of a pair: the other one
    targets, origins = (route.outgoing, route.incoming) if many else (both, both)
    outgoing, incoming = (
        [(buffer, peers[slot]) for slot, _, buffer in layout.messages_of(0, memory) if peers]
        for memory, peers in ((sends, targets), (receives, origins))
    )

    def together() -> None:
        """Receives are posted before sends; all complete together."""
        receive, send = apart.Irecv, apart.Isend
        requests = [receive(buffer, peer) for buffer, peer in incoming]
        requests += [send(buffer, peer) for buffer, peer in outgoing]
        MPI.Request.Waitall(requests)

    def there_and_back() -> None:
        first = bool(route.outgoing)
        for sending in (first, not first):
            transfer = apart.Send if sending else apart.Recv
            for buffer, peer in outgoing if sending else incoming:
                transfer(buffer, peer)

    return Transfer(together if many else there_and_back, apart.Free, sends, receives, origins)


def check(comm: MPI.Intracomm, layout: Layout, transfer: Transfer, turn: int) -> Verdict:
    """Collective. The part of the bytes that did not come as they should, in a round."""
    length = layout.nbytes // layout.slots

    def data(rank: int) -> Bytes:
        """Bytes of a slot that a rank sends in this turn: 251 again and again, none of them 0."""
        some = 1 + (np.arange(251) * 7 + rank * 31 + turn * 113) % 251
        return np.resize(some.astype(np.uint8), length)

    with transfer.exposed():
        transfer.sends[:] = np.tile(data(comm.rank), layout.slots)
        transfer.receives[:] = 0
    comm.Barrier()
    transfer.call()
    comm.Barrier()
    with transfer.exposed():
        slots = transfer.receives.reshape(layout.slots, -1)
        wrong = sum(int(np.count_nonzero(slots[slot] != data(rank)))
                    for slot, rank in enumerate(transfer.givers))  # fmt: skip
    return Verdict(comm.allreduce(wrong) / (layout.nbytes * comm.size), 0.0)


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
    variants = [{METHOD: TWO_SIDED}]
    variants += [{METHOD: name, "op": op} for name in SYNCHRONISATIONS for op in ("put", "get")]
    cases = [
        Case({"pattern": name, "threads": str(threads), "message": byte_count(size)}, variants,
             partial(_opened, PATTERNS[name], size, threads), against=(TWO_SIDED,), region=REGION,
             told=_told)
        for name in options.patterns
        for threads in sorted(set(options.threads))
        for size in sorted(set(options.sizes))
    ]  # fmt: skip
    sweep(comm, options, report, cases, "epochs")
    return report.end(comm, options)


def _opened(
    pattern: Pattern, size: int, threads: int, comm: MPI.Intracomm, stack: ExitStack
) -> Make:
    """Collective. The layout of a size, and what makes a transfer."""

    def make(labels: Labels) -> Variant:
        route = pattern.route(comm.rank, comm.size)  # refused on all ranks, or on none
        slots = comm.allreduce(max(len(route.outgoing), len(route.incoming)), op=MPI.MAX)
        room = MOST_WINDOW // (slots * threads * size)
        messages = max(1, min(MESSAGES, room)) if pattern.many else 1
        if labels[METHOD] == TWO_SIDED:  # the main thread has the messages of all
            layout = Layout(slots, 1, threads * messages, size)
            transfer = two_sided(comm, route, layout, many=pattern.many)
        else:
            layout = Layout(slots, threads, messages, size)
            transfer = one_sided(comm, route, layout, labels[METHOD], labels["op"],
                                 flush=pattern.flush)  # fmt: skip
        steps = 2.0 if labels[METHOD] == TWO_SIDED and not pattern.many else 1.0
        sent, turns = layout.nbytes // size, count(1)
        return Variant(
            transfer.call, lambda: check(comm, layout, transfer, next(turns)), barriers=True,
            free=transfer.free, steps=lambda: steps, set_up=False,
            metrics={"bytes": layout.nbytes, "message_bytes": size, "messages": sent},
        )  # fmt: skip

    return make


def _told(part: Part) -> None:
    """Local. Rates by the medians."""
    for row in part.rows:
        if row.times:
            row.metrics["messages_per_s"] = row.metrics["messages"] / float(np.median(row.times))
