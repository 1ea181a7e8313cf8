"""``onesided bench partitioned``: paper 004's sweep over the sizes of partitions.

Listing 1 of the paper: start, a loop over the partitions on several threads, wait. A buffer of one
size leaves in more and more partitions, marked in several orders, by the mechanisms of the paper
(a message each, the MPI's own partitioned send) and by ours, with aggregation and without.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, pairwise
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.memory import receiving
from onesided.apps.bench.selection import named
from onesided.apps.bench.store import Part
from onesided.apps.bench.sweep import Case, Labels, Make, sweep
from onesided.apps.bench.team import Team
from onesided.apps.bench.timing import Variant, clocked, nothing
from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.options import ALL, Options, size
from onesided.apps.cli.report import Report, byte_count, duration
from onesided.apps.cli.statistics import Verdict
from onesided.apps.papers.options import MESSAGE_SIZES
from onesided.collectives import (
    Precv_init,
    Psend_init,
    UnsupportedError,
    agreed,
    partitioned_methods,
)

TURNS = 3  # rounds of a check; Open MPI's partitioned send is right in the first one only
PROBES = 16  # looks for messages between the start and the first mark of a checked round
FEW = 8  # rounds that the least measurement runs
WARM = 1e-3  # seconds of rounds before each timed one: in Listing 1 a round follows another
SEED = 0  # of the randomized order
READY, AFTER = "until ready", "after last"
REMARK = (
    "Times go from a barrier until both ranks have completed, after a millisecond of the same that "
    "does not count; after last: from when the sender's last partition was ready. Every partition "
    "is checked with data that change from round to round. Threads mark under Python's lock, one "
    "at a time; they overlap only where MPI or NumPy let go of it."
)
FOREIGN = (
    "psend is the MPI's own partitioned send as it is: WRONG, the receiver found other data than "
    "were sent; its times say how long that took."
)

# -- a side of the transfer ------------------------------------------------------------------------

SENDER, RECEIVER = 0, 1
RANKS = 2


@dataclass(frozen=True)
class Lane:
    """What all variants have in common: two ranks, a buffer on each, and its partitions.

    ``tag``: of the variant's own messages, where it sends one for all partitions.
    """

    comm: MPI.Intracomm
    message: NDArray[np.uint8]
    partitions: int
    tag: int = 0

    @property
    def is_sender(self) -> bool:
        return self.comm.rank == SENDER

    @property
    def peer(self) -> int:
        """Local. The other rank."""
        return RECEIVER if self.is_sender else SENDER

    def pieces(self) -> list[Any]:
        """Local, alike on both ranks. The partitions of this side, as MPI takes them;
        ``UnsupportedError`` where not each can have a tag of its own."""
        bound = self.comm.Get_attr(MPI.TAG_UB)
        if isinstance(bound, int) and self.partitions - 1 > bound:
            raise UnsupportedError(f"{self.partitions} message tags, this MPI has {bound + 1}")
        return [[piece, MPI.BYTE] for piece in self.message.reshape(self.partitions, -1)]


@dataclass
class Runner:
    """The steps of one side: Listing 1's start, loop over partitions, and wait.

    ``mark`` sends or receives one partition, ``mark_range`` those from the first to the last, both
    included; None where this side, or this way, does nothing of the kind.
    """

    start: Callable[[], object] = nothing
    mark: Callable[[int], object] | None = None
    mark_range: Callable[[int, int], object] | None = None
    wait: Callable[[], object] = nothing
    free: Callable[[], object] = nothing


# Variants that send a message for every partition, and the one that sends a single message.
#
# As Tables 1 and 2 of the paper have them; a partition's number is its tag, so that threads on both
# sides find each other.


def single(lane: Lane) -> Runner:
    """Local. The whole buffer by one blocking message, when everything is ready."""
    transfer = lane.comm.Send if lane.is_sender else lane.comm.Recv
    return Runner(wait=partial(transfer, [lane.message, MPI.BYTE], lane.peer, lane.tag))


def blocking(lane: Lane) -> Runner:
    """Local. Send and Recv."""
    transfer = lane.comm.Send if lane.is_sender else lane.comm.Recv
    pieces, peer = lane.pieces(), lane.peer
    return Runner(mark=lambda index: transfer(pieces[index], peer, index))


def persistent(lane: Lane) -> Runner:
    """Local. Send_init and Recv_init beforehand, Start, Waitall."""
    make = lane.comm.Send_init if lane.is_sender else lane.comm.Recv_init
    requests: list[Any] = [make(each, lane.peer, k) for k, each in enumerate(lane.pieces())]
    starts = [request.Start for request in requests]

    def free() -> None:
        for request in requests:
            request.Free()

    wait = partial(MPI.Request.Waitall, requests)
    return Runner(mark=lambda index: starts[index](), wait=wait, free=free)


def immediate(lane: Lane) -> Runner:
    """Local. Isend and Irecv, Waitall."""
    begin = lane.comm.Isend if lane.is_sender else lane.comm.Irecv
    pieces, peer = lane.pieces(), lane.peer
    requests = [MPI.REQUEST_NULL for _ in pieces]

    def mark(index: int) -> None:
        requests[index] = begin(pieces[index], peer, index)

    return Runner(mark=mark, wait=partial(MPI.Request.Waitall, requests))


# Variants that send the buffer as one partitioned message: the MPI's own, and ours.


def native(lane: Lane) -> Runner:
    """Local. ``MPI_Psend_init`` and ``MPI_Precv_init`` as they are.

    :class:`UnsupportedError` where this MPI has none. It is not asked whether they work: wrong data
    are for the verification to find.
    """
    init = lane.comm.Psend_init if lane.is_sender else lane.comm.Precv_init
    try:
        request = init([lane.message, MPI.BYTE], lane.partitions, lane.peer, lane.tag)
    except (MPI.Exception, NotImplementedError) as error:
        raise UnsupportedError(f"no partitioned send in this MPI: {error}") from error
    return _runner(lane, request)


def ours(method: str, aggregate: int) -> Callable[[Lane], Runner]:
    """Local. What makes a variant of one of our methods."""

    def make(lane: Lane) -> Runner:
        """Local. The handshake comes with the first round, and with it the method's refusal."""
        init: Any = Psend_init if lane.is_sender else Precv_init
        request = init(
            lane.comm, lane.message, lane.partitions, lane.peer, lane.tag,
            method=method, aggregate=aggregate,
        )
        return _runner(lane, request)

    return make


def _runner(lane: Lane, request: Any) -> Runner:
    runner = Runner(request.Start, wait=request.Wait, free=request.Free)
    if lane.is_sender:
        runner.mark, runner.mark_range = request.Pready, request.Pready_range
    return runner


# In which order partitions are marked ready, and by which thread: geometry without any MPI.
#
# The loop schemes of section 4.2 of the paper on partitioned communication in Open MPI.

#: What each thread marks, of so many partitions, threads and a seed.
Order = Callable[[int, int, int], list[list[int]]]


def runs(indices: Sequence[int]) -> list[tuple[int, int]]:
    """Local. The same in as few ranges as keep the order: first and last of each."""
    found: list[tuple[int, int]] = []
    for index in indices:
        if found and index == found[-1][1] + 1:
            found[-1] = (found[-1][0], index)
        else:
            found.append((index, index))
    return found


def left_to_right(partitions: int, threads: int, seed: int) -> list[list[int]]:
    """Local. Every thread has a part of its own, and marks it from its lowest partition on."""
    return _split(list(range(partitions)), threads)


def randomized(partitions: int, threads: int, seed: int) -> list[list[int]]:
    """Local. All partitions in one random order, of which every thread has a part."""
    shuffled: list[int] = np.random.default_rng(seed).permutation(partitions).tolist()
    return _split(shuffled, threads)


def neighborhood(partitions: int, threads: int, seed: int) -> list[list[int]]:
    """Local. Partitions are the cells of a grid, row by row, and every thread has a tile of it.

    A thread begins with the border of its tile, for which neighbors wait (the first row, the two
    ends of every other row, the last row), and goes on with the rows inside.
    """
    rows, columns = rectangle(partitions)
    down, across = rectangle(threads)
    return [
        [row * columns + column for row, column in _tile(top, bottom, left, right)]
        for top, bottom in _cuts(rows, down)
        for left, right in _cuts(columns, across)
    ]


ORDERS: Mapping[str, Order] = {
    "left-to-right": left_to_right, "randomized": randomized, "neighborhood": neighborhood,
}  # fmt: skip
SCATTERED = ("randomized",)  # no partitions beside each other follow each other: ranges do not pay


def rectangle(cells: int) -> tuple[int, int]:
    """Local. Rows and columns of the grid of so many cells that is closest to a square."""
    rows = next(rows for rows in range(math.isqrt(cells), 0, -1) if cells % rows == 0)
    return rows, cells // rows


def _tile(top: int, bottom: int, left: int, right: int) -> Iterable[tuple[int, int]]:
    """Row and column of every cell, the border first."""
    columns = range(left, right)
    for row in range(top, bottom):
        inner = top < row < bottom - 1
        ends = dict.fromkeys((left, right - 1)) if columns else ()
        yield from ((row, column) for column in (ends if inner else columns))
    for row in range(top + 1, bottom - 1):
        yield from ((row, column) for column in range(left + 1, right - 1))


def _cuts(length: int, parts: int) -> list[tuple[int, int]]:
    ends = [part * length // parts for part in range(parts + 1)]
    return list(pairwise(ends))


def _split(indices: list[int], parts: int) -> list[list[int]]:
    return [indices[start:end] for start, end in _cuts(len(indices), parts)]


#: What one thread does in a round; returns when its last partition was ready, by the clock.
Work = Callable[[], float]
ONE_BY_ONE, BULK, WHOLE = "one by one", "in bulk", ""


def marks(runner: Runner, marking: str, indices: Sequence[int]) -> Work | None:
    """Local. A call for every partition, or for every range of them; None where there is nothing to
    mark. The loop is as short as Python allows."""
    known: dict[str, tuple[Callable[..., object] | None, Sequence[tuple[int, ...]]]] = {
        ONE_BY_ONE: (runner.mark, [(index,) for index in indices]),
        BULK: (runner.mark_range, runs(indices)),
    }
    call, ranges = known.get(marking, (None, []))
    if call is None:
        return None
    *most, last = ranges
    clock = time.perf_counter

    def work() -> float:
        for each in most:
            call(*each)
        ready = clock()
        call(*last)
        return ready

    return work


AUTO = "auto"

#: Bytes of the groups to which ours join partitions: not at all, and the default.
AGGREGATES = (0, 65536)


@dataclass(frozen=True)
class Sending:
    """A way of sending a buffer in partitions, and how it can be marked.

    ``aggregate``: of ours, bytes of a group. ``multiple``: several threads that mark are
    several that call MPI.
    """

    method: str
    make: Callable[[Lane], Runner]
    markings: Sequence[str]
    aggregate: int | None = None
    multiple: bool = True

    def labels(self, marking: str) -> dict[str, str]:
        """Of a row."""
        grouped = {"aggregate": byte_count(self.aggregate)} if self.aggregate else {}
        marked = {"marked": marking} if marking else {}
        return {"method": self.method, **grouped, **marked}


SINGLE = Sending("single", single, [WHOLE], multiple=False)
NATIVE = Sending("psend", native, [ONE_BY_ONE, BULK])
_OTHERS = (
    SINGLE,
    Sending("send", blocking, [ONE_BY_ONE]),
    Sending("persistent", persistent, [ONE_BY_ONE]),
    Sending("isend", immediate, [ONE_BY_ONE]),
    NATIVE,
)


def sendings(text: str) -> list[Sending]:
    """Local. Those that ``--comm`` means, the single message first.

    ``all``: the mechanisms of the paper and every method of ours with every aggregation; ``auto``
    is no method of its own, but can be asked for. :class:`CommandError` for an unknown name.
    """
    known = {each.method: [each] for each in _OTHERS}
    for method in (*partitioned_methods(), AUTO):
        known[method] = [
            Sending(method, ours(method, size), [ONE_BY_ONE, BULK], size, multiple=False)
            for size in AGGREGATES
        ]
    asked = [name for name in known if name != AUTO] if text == ALL else named(text, known)
    return [each for name in dict.fromkeys([SINGLE.method, *asked]) for each in known[name]]


# -- the command -----------------------------------------------------------------------------------


class Round:
    """Start, the loop over partitions on several threads, wait. Calling it runs it.

    ``ready`` adds up the seconds from the beginning of a call until the last partition was ready
    (the bytes were there, the last mark began), on this side.
    """

    def __init__(self, runner: Runner, team: Team, works: Sequence[Work]) -> None:
        self.runner, self.ready = runner, 0.0
        self._team, self._works = team, works

    def __call__(self, meanwhile: Callable[[], object] = nothing) -> None:
        """Local, as far as the way is: the other side runs its own."""
        runner = self.runner
        begin = time.perf_counter()
        runner.start()
        meanwhile()
        ready = self._team.run(self._works) or [time.perf_counter()]
        runner.wait()
        self.ready += max(ready) - begin


class Check:
    """Sends data that change with every round, and looks at every partition."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._places = np.arange(-(-lane.message.size // 8), dtype=np.uint64)
        self._turn = 0

    def wrong(self, round_: Round) -> tuple[int, float]:
        """Collective. The most partitions that were wrong after a round; seconds of the fastest.

        The receiver looks as soon as it has waited. The sender destroys its buffer as soon as it
        has waited, which every correct transfer allows.
        """
        lane, wrong, taken = self._lane, 0, list[float]()
        for _ in range(TURNS):
            expected = self._data()
            lane.message[:] = expected if lane.is_sender else ~expected
            lane.comm.Barrier()
            begin = time.perf_counter()
            round_(self._nudge)
            seconds = time.perf_counter() - begin
            if lane.is_sender:
                lane.message[:] = ~expected
            else:
                wrong = max(wrong, self._differing(expected))
            taken.append(lane.comm.allreduce(seconds, op=MPI.MAX))
        worst: int = lane.comm.allreduce(wrong, op=MPI.MAX)
        return worst, min(taken)

    def _nudge(self) -> None:
        """Local. MPI makes progress before the first partition is ready."""
        for _ in range(PROBES):
            self._lane.comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG)

    def _data(self) -> NDArray[np.uint8]:
        """Bytes that no other round has, and no other place."""
        self._turn += 1
        words = (self._places << np.uint64(24)) + np.uint64(self._turn)
        return words.view(np.uint8)[: self._lane.message.size]

    def _differing(self, expected: NDArray[np.uint8]) -> int:
        differs = self._lane.message != expected
        return int(differs.reshape(self._lane.partitions, -1).any(axis=1).sum())


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; 1 where data were wrong with anything but the MPI's own."""
    if comm.size != RANKS:
        raise CommandError(
            f"it needs a sender and a receiver, {RANKS} ranks; the job has {comm.size}"
        )
    ways = sendings(options.comm)
    orders, threads = list(dict.fromkeys(options.orders)), list(dict.fromkeys(options.threads))
    sets = [(order, threads[0]) for order in orders] + [(orders[0], n) for n in threads[1:]]
    places = [(part, *each) for part in partition_sizes(options) for each in sets]
    pattern = {"ranks": RANKS, "buffer_bytes": options.buffer}
    report = Report("bench partitioned", options.settings(), pattern, remarks=[REMARK],
                    across="partition", by="order", baseline=SINGLE.method)  # fmt: skip
    share, tags = options.seconds / len(places), count()
    cases = [_case(ways, *place, options, share, tags) for place in places]
    sweep(comm, options, report, cases, "sending")
    return report.end(comm, options)


def _case(
    ways: Sequence[Sending], part: int, order: str, threads: int, options: Options, share: float,
    tags: count[int],
) -> Case:
    """Local. All ways with so many bytes of a partition, an order of the marks, and threads."""
    known = {
        tuple(way.labels(marking).items()): (way, marking)
        for way in ways for marking in way.markings if marking != BULK or order not in SCATTERED
    }  # fmt: skip

    def opened(comm: MPI.Intracomm, stack: ExitStack) -> Make:
        received = receiving(comm, options.memory, options.buffer, stack)
        lane = Lane(comm, received, options.buffer // part)
        if lane.is_sender:  # checks write to it before it is timed: untouched pages are all one
            lane = replace(lane, message=np.zeros(options.buffer, np.uint8))
        team = Team(threads)
        stack.callback(team.close)
        checks = Check(lane)
        shares = [each for each in ORDERS[order](lane.partitions, threads, SEED) if each]

        def make(labels: Labels) -> Variant:
            way, marking = known[tuple(labels.items())]
            return _ready(way, marking, replace(lane, tag=next(tags)), team, shares, checks, share)

        return make

    labels = {"partition": byte_count(part), "order": order, "threads": str(threads)}
    return Case(labels, [dict(each) for each in known], opened,
                against=(SINGLE.method, NATIVE.method), rest=AFTER, told=_native)  # fmt: skip


def _ready(
    way: Sending, marking: str, lane: Lane, team: Team, shares: Sequence[Sequence[int]],
    checks: Check, share: float,
) -> Variant:
    """Collective. A way after its first rounds, from which its pace is known.

    What it cannot do, it says before or in the first one, on both ranks.
    """  # fmt: skip
    if way.multiple and team.threads > 1 and MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise UnsupportedError("several threads need MPI_THREAD_MULTIPLE")
    made: list[Runner] = []
    try:
        with agreed(lane.comm):
            made.append(way.make(lane))
        works = [marks(made[0], marking, each) for each in shares]
        round_ = Round(made[0], team, [work for work in works if work is not None])
        (_, pace), extra = clocked(lane.comm, partial(checks.wrong, round_))
        if FEW * pace > share / 2:
            left = f"the {duration(share)} that --seconds leaves"
            raise UnsupportedError(f"rounds take too long for {left}")
    except Exception:
        for each in made:
            each.free()
        raise

    def check() -> Verdict:
        wrong, _ = checks.wrong(round_)
        return Verdict(wrong / lane.partitions, 0.0)

    def ready() -> float:  # a mean over both ranks, which is to be the sender's
        return RANKS * round_.ready if lane.is_sender else 0.0

    return Variant(round_, check, warm_up=WARM, parts={READY: ready}, free=made[0].free,
                   extra=extra, metrics={"bytes": lane.message.size, "partition_bytes":
                            lane.message.size // lane.partitions})  # fmt: skip


def _native(part: Part) -> None:
    """Local. What the MPI's own does wrong is told, and no mistake of this command."""
    for row in part.rows:
        if row.method == NATIVE.method and row.verdict is not None and not row.verdict.passed:
            row.metrics["wrong partitions"] = row.verdict.error
            row.verdict = None
            if FOREIGN not in part.remarks:
                part.remarks.append(FOREIGN)


def partition_sizes(options: Options) -> list[int]:
    """Local. Bytes of a partition, ascending; :class:`CommandError` for one that does not fit."""
    nbytes = options.buffer
    if options.sizes is None:
        found = [part for part in map(size, MESSAGE_SIZES.split()) if nbytes % part == 0]
        return found or [nbytes]
    for part in options.sizes:
        if nbytes % part:
            raise CommandError(f"partitions of {part} bytes do not divide a buffer of {nbytes}")
    return sorted(set(options.sizes))
