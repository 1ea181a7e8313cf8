"""``onesided bench partitioned``: paper 004's sweep over the sizes of partitions.

Listing 1 of the paper: start, a loop over the partitions on several threads, wait. A buffer of one
size leaves in more and more partitions, marked in several orders, by the mechanisms of the paper
(a message each, the MPI's own partitioned send) and by ours, with aggregation and without.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import count

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.memory import receiving
from onesided.apps.bench.store import Part
from onesided.apps.bench.sweep import Case, Labels, Make, sweep
from onesided.apps.bench.team import Team
from onesided.apps.bench.timing import Variant, nothing
from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.options import Options, size
from onesided.apps.cli.report import Report, byte_count, duration
from onesided.apps.cli.statistics import Verdict
from onesided.apps.papers.options import MESSAGE_SIZES
from onesided.apps.papers.partitioned_sends import (
    BULK,
    NATIVE,
    ORDERS,
    RANKS,
    SCATTERED,
    SINGLE,
    Lane,
    Runner,
    Sending,
    Work,
    marks,
    sendings,
)
from onesided.collectives import UnsupportedError, agreed

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
        _, pace = checks.wrong(round_)
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
                   metrics={"bytes": lane.message.size, "partition_bytes":
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
