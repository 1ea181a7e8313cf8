"""``onesided bench partitioned``: paper 004's sweep over the sizes of partitions.

Listing 1 of the paper: start, a loop over the partitions on several threads, wait. A buffer of one
size leaves in more and more partitions, marked in several orders, by the mechanisms of the paper
(a message each, the MPI's own partitioned send) and by ours, with aggregation and without.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, islice, pairwise, product
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided import collectives
from onesided.apps.bench.choices import named, receiving
from onesided.apps.bench.store import Part
from onesided.apps.bench.sweep import Case, Labels, Make, sweep
from onesided.apps.bench.team import Team, Work, check_threads
from onesided.apps.bench.timing import Variant, clocked, nothing
from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.options import ALL, Options, size
from onesided.apps.cli.report import METHOD, Report, byte_count, duration
from onesided.apps.cli.statistics import Verdict
from onesided.apps.papers.options import MESSAGE_SIZES
from onesided.collectives import UnsupportedError, agreed, partitioned_methods

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

RANKS = 2


@dataclass(frozen=True)
class Lane:
    """What all variants have in common: two ranks, a buffer on each, and its partitions. ``tag``:
    of the variant's own messages, where it sends one for all partitions. ``turns``: numbers of the
    rounds that are checked."""

    comm: MPI.Intracomm
    message: NDArray[np.uint8]
    partitions: int
    tag: int = 0
    turns: Iterator[int] = field(default_factory=count)

    @property
    def is_sender(self) -> bool:
        return self.comm.rank == 0

    @property
    def peer(self) -> int:
        return 1 - self.comm.rank

    def pieces(self) -> list[Any]:
        """Local, alike on both ranks. The partitions of this side, as MPI takes them;
        ``UnsupportedError`` where not each can have a tag of its own."""
        bound = self.comm.Get_attr(MPI.TAG_UB)
        if isinstance(bound, int) and self.partitions - 1 > bound:
            raise UnsupportedError(f"{self.partitions} message tags, this MPI has {bound + 1}")
        return [[piece, MPI.BYTE] for piece in self.message.reshape(self.partitions, -1)]


@dataclass
class Runner:
    """The steps of one side: Listing 1's start, loop over partitions, and wait. ``mark`` sends or
    receives one partition, ``mark_range`` those from the first to the last, both included; None
    where this side, or this way, does nothing of the kind."""

    start: Callable[[], object] = nothing
    mark: Callable[[int], object] | None = None
    mark_range: Callable[[int, int], object] | None = None
    wait: Callable[[], object] = nothing
    free: Callable[[], object] = nothing


# Tables 1 and 2 of the paper: a single message, and one for every partition, whose number is its
# tag, so that threads on both sides find each other.


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
    return Runner(
        mark=lambda index: starts[index](), wait=partial(MPI.Request.Waitall, requests),
        free=lambda: [request.Free() for request in requests],
    )  # fmt: skip


def immediate(lane: Lane) -> Runner:
    """Local. Isend and Irecv, Waitall."""
    begin = lane.comm.Isend if lane.is_sender else lane.comm.Irecv
    pieces, peer = lane.pieces(), lane.peer
    requests = [MPI.REQUEST_NULL for _ in pieces]

    def mark(index: int) -> None:
        requests[index] = begin(pieces[index], peer, index)

    return Runner(mark=mark, wait=partial(MPI.Request.Waitall, requests))


# One partitioned message: the MPI's own, and ours.


def native(lane: Lane) -> Runner:
    """Local. ``MPI_Psend_init`` and ``MPI_Precv_init`` as they are. :class:`UnsupportedError` where
    this MPI has none. It is not asked whether they work: wrong data are for the verification to
    find."""
    init = lane.comm.Psend_init if lane.is_sender else lane.comm.Precv_init
    try:
        request = init([lane.message, MPI.BYTE], lane.partitions, lane.peer, lane.tag)
    except (MPI.Exception, NotImplementedError) as error:
        raise UnsupportedError(f"no partitioned send in this MPI: {error}") from error
    return _runner(lane, request)


def ours(lane: Lane, method: str, aggregate: int) -> Runner:
    """Local. The handshake comes with the first round, and with it the method's refusal."""
    init: Any = collectives.Psend_init if lane.is_sender else collectives.Precv_init
    given = lane.comm, lane.message, lane.partitions, lane.peer, lane.tag
    return _runner(lane, init(*given, method=method, aggregate=aggregate))


def _runner(lane: Lane, request: Any) -> Runner:
    runner = Runner(request.Start, wait=request.Wait, free=request.Free)
    if lane.is_sender:
        runner.mark, runner.mark_range = request.Pready, request.Pready_range
    return runner


ONE_BY_ONE, BULK, WHOLE = "one by one", "in bulk", ""
SINGLE, NATIVE, AUTO = "single", "psend", "auto"
#: What makes a mechanism of the paper, and how its partitions are marked.
MECHANISMS: Mapping[str, tuple[Callable[[Lane], Runner], Sequence[str]]] = {
    SINGLE: (single, [WHOLE]),
    "send": (blocking, [ONE_BY_ONE]),
    "persistent": (persistent, [ONE_BY_ONE]),
    "isend": (immediate, [ONE_BY_ONE]),
    NATIVE: (native, [ONE_BY_ONE, BULK]),
}
AGGREGATE = 65536  # bytes of the groups to which ours can join partitions: the default


def variants(text: str, order: str) -> list[dict[str, str]]:
    """Local. The labels of those that ``--comm`` means, the single message first. ``all``: the
    mechanisms of the paper and every method of ours, with aggregation and without; ``auto`` is no
    method of its own, but can be asked for. :class:`CommandError` for an unknown name."""
    known = [*MECHANISMS, *partitioned_methods()]
    found = []
    for name in dict.fromkeys([SINGLE, *(known if text == ALL else named(text, [*known, AUTO]))]):
        _, markings = MECHANISMS.get(name, MECHANISMS[NATIVE])
        for grouped in [{}] if name in MECHANISMS else [{}, {"aggregate": byte_count(AGGREGATE)}]:
            for marking in markings:
                if marking != BULK or order not in SCATTERED:
                    marked = {"marked": marking} if marking else {}
                    found.append({METHOD: name, **grouped, **marked})
    return found


# -- in which order partitions are marked ready, and by which thread -------------------------------

# The loop schemes of section 4.2 of the paper on partitioned communication in Open MPI.


def left_to_right(partitions: int, threads: int) -> list[list[int]]:
    """Local. Every thread has a part of its own, and marks it from its lowest partition on."""
    return [list(range(*part)) for part in _cuts(partitions, threads)]


def randomized(partitions: int, threads: int) -> list[list[int]]:
    """Local. All partitions in one random order, of which every thread has a part."""
    shuffled: list[int] = np.random.default_rng(SEED).permutation(partitions).tolist()
    return [shuffled[start:end] for start, end in _cuts(partitions, threads)]


def neighborhood(partitions: int, threads: int) -> list[list[int]]:
    """Local. Partitions are the cells of a grid, row by row, and every thread has a tile of it. A
    thread begins with the border of its tile, for which neighbors wait (the first row, the two ends
    of every other row, the last row), and goes on with the rows inside."""
    rows, columns = rectangle(partitions)
    down, across = rectangle(threads)
    return [
        [row * columns + column for row, column in _tile(*vertical, *horizontal)]
        for vertical in _cuts(rows, down)
        for horizontal in _cuts(columns, across)
    ]


#: What each thread marks, of so many partitions and threads.
ORDERS: Mapping[str, Callable[[int, int], list[list[int]]]] = {
    "left-to-right": left_to_right, "randomized": randomized, "neighborhood": neighborhood,
}  # fmt: skip
SCATTERED = ("randomized",)  # no partitions beside each other follow each other: ranges do not pay


def rectangle(cells: int) -> tuple[int, int]:
    """Local. Rows and columns of the grid of so many cells that is closest to a square."""
    rows = next(rows for rows in range(math.isqrt(cells), 0, -1) if cells % rows == 0)
    return rows, cells // rows


def _tile(top: int, bottom: int, left: int, right: int) -> Iterable[tuple[int, int]]:
    """Row and column of every cell, the border first."""
    for row, column in product(range(top, bottom), range(left, right)):
        if row in (top, bottom - 1) or column in (left, right - 1):
            yield row, column
    yield from product(range(top + 1, bottom - 1), range(left + 1, right - 1))


def _cuts(length: int, parts: int) -> list[tuple[int, int]]:
    return list(pairwise(part * length // parts for part in range(parts + 1)))


def runs(indices: Sequence[int]) -> list[tuple[int, int]]:
    """Local. The same in as few ranges as keep the order: first and last of each."""
    found: list[tuple[int, int]] = []
    for index in indices:
        if found and index == found[-1][1] + 1:
            found[-1] = (found[-1][0], index)
        else:
            found.append((index, index))
    return found


def marks(runner: Runner, marking: str, indices: Sequence[int]) -> Work | None:
    """Local. A call for every partition, or for every range of them, which tells when the last one
    was ready, by the clock; None where there is nothing to mark. The loop is as short as Python
    allows."""
    call = {ONE_BY_ONE: runner.mark, BULK: runner.mark_range}.get(marking)
    if call is None:
        return None
    ranges: Sequence[tuple[int, ...]] = [(index,) for index in indices]
    *most, last = runs(indices) if marking == BULK else ranges
    clock = time.perf_counter

    def work() -> float:
        for each in most:
            call(*each)
        ready = clock()
        call(*last)
        return ready

    return work


# -- the command -----------------------------------------------------------------------------------


class Round:
    """Start, the loop over partitions on several threads, wait. Calling it runs it. ``ready`` adds
    up the seconds from the beginning of a call until the last partition was ready (the bytes were
    there, the last mark began), on this side."""

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


def checked(lane: Lane, round_: Round) -> tuple[int, float]:
    """Collective. The most partitions that were wrong after a round; seconds of the fastest. Data
    change with every round. The receiver looks as soon as it has waited. The sender destroys its
    buffer as soon as it has waited, which every correct transfer allows."""
    places = np.arange(-(-lane.message.size // 8), dtype=np.uint64) << np.uint64(24)
    wrong, taken = 0, list[float]()

    def nudge() -> None:
        """MPI makes progress before the first partition is ready."""
        for _ in range(PROBES):
            lane.comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG)

    for turn in islice(lane.turns, TURNS):
        expected = (places + np.uint64(turn)).view(np.uint8)[: lane.message.size]
        lane.message[:] = expected if lane.is_sender else ~expected
        lane.comm.Barrier()
        begin = time.perf_counter()
        round_(nudge)
        seconds = time.perf_counter() - begin
        if lane.is_sender:
            lane.message[:] = ~expected
        else:
            differs = (lane.message != expected).reshape(lane.partitions, -1)
            wrong = max(wrong, int(differs.any(axis=1).sum()))
        taken.append(lane.comm.allreduce(seconds, op=MPI.MAX))
    worst: int = lane.comm.allreduce(wrong, op=MPI.MAX)
    return worst, min(taken)


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; 1 where data were wrong with anything but the MPI's own."""
    if comm.size != RANKS:
        raise CommandError(
            f"it needs a sender and a receiver, {RANKS} ranks; the job has {comm.size}"
        )
    orders, threads = list(dict.fromkeys(options.orders)), list(dict.fromkeys(options.threads))
    sets = [(order, threads[0]) for order in orders] + [(orders[0], n) for n in threads[1:]]
    places = [(part, *each) for part in partition_sizes(options) for each in sets]
    pattern = {"ranks": RANKS, "buffer_bytes": options.buffer}
    report = Report("bench partitioned", options.settings(), pattern, remarks=[REMARK],
                    across="partition", by="order", baseline=SINGLE)  # fmt: skip
    share, tags = options.seconds / len(places), count()
    cases = [
        Case({"partition": byte_count(part), "order": order, "threads": str(n)},
             variants(options.comm, order), partial(_opened, part, order, n, options, share, tags),
             against=(SINGLE, NATIVE), rest=AFTER, told=count_native_mistakes)
        for part, order, n in places
    ]  # fmt: skip
    sweep(comm, options, report, cases, "sending")
    return report.end(comm, options)


def _opened(
    part: int, order: str, threads: int, options: Options, share: float, tags: Iterator[int],
    comm: MPI.Intracomm, stack: ExitStack,
) -> Make:
    """Collective. Buffers with so many bytes of a partition, threads with their marks, and what
    makes a way with them."""
    received = receiving(comm, options.memory, -(-options.buffer // 8), stack).view(np.uint8)
    lane = Lane(comm, received[: options.buffer], options.buffer // part)
    with agreed(comm):
        if lane.is_sender:  # checks write to it before it is timed: untouched pages are all one
            lane = replace(lane, message=np.zeros(options.buffer, np.uint8))
    team = Team.of_all(comm, threads)
    stack.callback(team.close)
    shares = [each for each in ORDERS[order](lane.partitions, threads) if each]
    return lambda labels: _ready(labels, replace(lane, tag=next(tags)), team, shares, share)


def _ready(
    labels: Labels, lane: Lane, team: Team, shares: Sequence[Sequence[int]], share: float
) -> Variant:
    """Collective. A way after its first rounds, from which its pace is known. What it cannot do, it
    says before or in the first one, on both ranks."""
    method, made = labels[METHOD], list[Runner]()
    try:
        with agreed(lane.comm):
            if method not in MECHANISMS:
                made.append(ours(lane, method, AGGREGATE if "aggregate" in labels else 0))
            else:
                if method != SINGLE and team.threads > 1:
                    check_threads("a message of every thread")
                made.append(MECHANISMS[method][0](lane))
        works = [marks(made[0], labels.get("marked", WHOLE), each) for each in shares]
        round_ = Round(made[0], team, [work for work in works if work is not None])
        (_, pace), extra = clocked(lane.comm, partial(checked, lane, round_))
        if FEW * pace > share / 2:
            left = f"the {duration(share)} that --seconds leaves"
            raise UnsupportedError(f"rounds take too long for {left}")
    except Exception:
        for each in made:
            each.free()
        raise

    def check() -> Verdict:
        wrong, _ = checked(lane, round_)
        return Verdict(wrong / lane.partitions, 0.0)

    def ready() -> float:  # a mean over both ranks, which is to be the sender's
        return RANKS * round_.ready if lane.is_sender else 0.0

    size = lane.message.size
    return Variant(
        round_, check, warm_up=WARM, parts={READY: ready}, free=made[0].free, extra=extra,
        metrics={"bytes": size, "partition_bytes": size // lane.partitions},
    )  # fmt: skip


def count_native_mistakes(part: Part) -> None:
    """Local. What the MPI's own does wrong is told, and no mistake of this command."""
    for row in part.rows:
        if row.method == NATIVE and row.verdict is not None and not row.verdict.passed:
            partitions = row.nbytes // row.metrics["partition_bytes"]
            row.metrics["wrong partitions"] = round(row.verdict.error * partitions)
            row.verdict = None
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
