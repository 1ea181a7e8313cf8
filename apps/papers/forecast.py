"""What a broadcast costs in the LogP and LogGP models, paper 003, section 3; no MPI calls.

LogGP is of Alexandrov, Ionescu, Schauser, Scheiman 1995. The paper gives the binomial broadcast
``(o + 2q + L + o_r) log2(P) + o_s + L`` in LogP, and
``(o + (m - 1)G + 2q + L + o_r) log2(P) + o + L`` in LogGP. Of its symbols, ``q`` and ``o_s`` are
never defined. They are read as follows. A hop sends three messages (data, description, request),
so two gaps lie between them: ``q`` is the gap ``g``. The last term is the message to the done
counter of the root: ``o_s`` is the overhead ``o`` of sending it, as the LogGP formula has it.

``log2(P)`` is the number of steps, one hop each, because a rank completes the data at one child
before it serves the next. That is so for a power of two and the largest subtree first; here it is
:func:`steps`, for any number of ranks and both orders.

The linear broadcast, which the paper gives no formula for, issues all its Puts and then waits for
all: the data leave one after the other, a gap and their length apart, and the last ones are
acknowledged. Both models let pairs of ranks send at the same time without sharing anything.

What they predict for the contestants of ``onesided bench broadcast``: methods that share memory
inside a node send between nodes only; the binomial tree has as many ranks as there are nodes, and
the linear one the root and the ranks off its node. Where that is one rank there is nothing to
predict. The other two send to every rank.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import cycle
from statistics import median
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.timing import Variant, interleaved, nothing, repeats, unchecked
from onesided.apps.cli.failures import words
from onesided.apps.cli.report import byte_count
from onesided.apps.cli.statistics import quartiles, ratio
from onesided.apps.papers.broadcasters import BINOMIAL, LINEAR, ONE_SIDED, PASSIVE, Entrant
from onesided.collectives import (
    Bcast_init,
    OneSidedBroadcast,
    OnesidedError,
    PatternError,
    bcast_linear,
)
from onesided.collectives.trees import LARGEST_FIRST, children

#: Messages of a hop beyond the first: the description and the request.
GAPS = 2


@dataclass(frozen=True)
class LogGP:
    """The parameters of LogGP in seconds; LogP is LogGP for messages of one byte.

    ``latency`` is L, ``overhead`` o (of sending or receiving a message), ``gap`` g (the least time
    between two messages of a rank), ``byte_gap`` G (that between two bytes of a message), and
    ``waiting`` o_r: how long it takes a rank that waits actively to see a request (paper 003).
    """

    latency: float
    overhead: float
    gap: float
    byte_gap: float = 0.0
    waiting: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < math.inf:
                raise PatternError(f"{name} is {value!r}, not a time in seconds")

    def length(self, nbytes: int) -> float:
        """Local. Seconds between the first byte of a message and its last: (m - 1)G."""
        return max(nbytes - 1, 0) * self.byte_gap


def hop(network: LogGP, nbytes: int) -> float:
    """Local. Seconds from one rank to a child of it, which has then seen the request."""
    sent = network.overhead + network.length(nbytes) + GAPS * network.gap
    return sent + network.latency + network.waiting


@cache
def steps(size: int, order: str = LARGEST_FIRST) -> int:
    """Local. Steps until every rank of a binomial tree has the data; each rank serves its children
    one after the other, one in a step."""
    if size < 1:
        raise PatternError(f"a tree of {size} ranks")
    step = [0] * size
    for rank in range(size):  # a parent comes before its children
        for turn, child in enumerate(children(rank, size, 0, order), 1):
            step[child] = step[rank] + turn
    return max(step)


def binomial(network: LogGP, ranks: int, nbytes: int = 1, order: str = LARGEST_FIRST) -> float:
    """Local. Seconds until the root knows that all ranks have ``nbytes`` bytes.

    With one byte it is the LogP formula of the paper, with more the LogGP one.
    """
    _check(ranks, nbytes)
    hops = steps(ranks, order)
    if not hops:
        return 0.0
    return hops * hop(network, nbytes) + network.overhead + network.latency


def linear(network: LogGP, ranks: int, nbytes: int = 1) -> float:
    """Local. The same for Puts from the root to one rank after another."""
    _check(ranks, nbytes)
    others = ranks - 1
    if not others:
        return 0.0
    sent = network.overhead + (others - 1) * max(network.gap, network.overhead)
    there = sent + others * network.length(nbytes) + network.latency
    return there + network.overhead + network.latency


def _check(ranks: int, nbytes: int) -> None:
    if ranks < 1 or nbytes < 0:
        raise PatternError(f"a broadcast of {nbytes} bytes to {ranks} ranks")


# The parameters of LogP and LogGP of this machine, by Puts and ping-pongs between two ranks.
#
# Overhead, latency and the gap per byte are those of bare Puts in a window like that of the
# method: ``o`` is how long the call takes, ``2 L`` the rest of a short Put that is flushed, and
# ``G`` the slope over the length. ``g`` is what another message in a row adds, as the method
# sends it: a Put alone, or the half of a Put and a flag that are flushed one after the other.
# What a rank that waits adds, ``o_r``, is the rest of a hop: a short broadcast to and fro between
# the two by the method itself, so that it holds its software as well. The other ranks meanwhile
# wait in MPI, as they do in a broadcast.

SHORT = 8  # bytes
IN_A_ROW = 8  # Puts before one flush
ISSUES = 40  # Puts of which the call is timed
LONG = (1 << 16, 1 << 18, 1 << 20)  # bytes, for the slope
WITH_FLAG = 2  # messages that a persistent method sends to one rank: data and flag
ROUNDS = 20

Call = Callable[[], object]


def _places(sizes: Sequence[int]) -> tuple[dict[int, tuple[int, int]], int]:
    """Local. By size where its two places begin, and the bytes of all.

    Each has memory of its own, and they take turns, as slots of requests do: what is measured of
    one size finds no more of its memory in the cache than a method does whose rounds alternate
    with those of others.
    """
    at, end = {}, 0
    for nbytes in sizes:
        at[nbytes] = (end, end + nbytes)
        end += 2 * nbytes
    return at, end


def _putter(
    window: MPI.Win, target: int, data: NDArray[np.uint8], starts: Sequence[int] = (0,)
) -> Call:
    """Local. Puts the data, to these places in turn."""
    origin = [data, MPI.BYTE]
    targets = cycle([[start, data.size, MPI.BYTE] for start in starts])
    return lambda: window.Put(origin, target, next(targets))


class Puts:
    """Puts from each of two ranks to the other, in a passive epoch.

    ``calls`` are by name: ``"puts 1024"`` and short ones, all flushed; ``"notice"`` is a short one
    and a flag.
    """

    def __init__(
        self, pair: MPI.Intracomm, sizes: Sequence[int], stack: ExitStack, *, allocated: bool
    ) -> None:
        """Collective. The window, of memory that MPI allocates or of our own, goes with the stack,
        which is left collectively."""
        self._pair, other = pair, 1 - pair.rank
        at, end = _places(sizes)
        if allocated:
            window = MPI.Win.Allocate(end, 1, comm=pair)
        else:
            window = MPI.Win.Create(np.zeros(end, np.uint8), 1, comm=pair)
        stack.callback(window.Free)
        window.Lock_all()
        stack.callback(window.Unlock_all)
        data = np.ones(max(*sizes, SHORT), np.uint8)
        short = _putter(window, other, data[:SHORT])
        word, place = [data[:SHORT], 1, MPI.INT64_T], [0, 1, MPI.INT64_T]

        def flushed(put: Call, times: int = 1) -> None:
            for _ in range(times):
                put()
            window.Flush(other)

        def notice() -> None:
            flushed(short)
            window.Accumulate(word, other, place, MPI.REPLACE)
            window.Flush(other)

        self.calls: dict[str, Call] = {
            f"puts {nbytes}": partial(flushed, _putter(window, other, data[:nbytes], at[nbytes]))
            for nbytes in sizes
        }
        self.calls["put"] = partial(flushed, short)
        self.calls["puts in a row"] = partial(flushed, short, IN_A_ROW)
        self.calls["notice"] = notice
        self._issue: tuple[Call, Call] = (short, partial(window.Flush, other))

    def overhead(self) -> float:
        """Collective. Seconds that the call of a short Put takes, by the slower rank."""
        put, flush = self._issue
        times = []
        for _ in range(ISSUES):
            self._pair.Barrier()
            began = time.perf_counter()
            put()
            times.append(time.perf_counter() - began)
            flush()
        self._pair.Barrier()
        slower: float = self._pair.allreduce(median(times), MPI.MAX)
        return slower


def seconds_of(comm: MPI.Intracomm, calls: Mapping[str, Call]) -> dict[str, float]:
    """Collective. What each takes, by the slowest rank; all take turns in :data:`ROUNDS` rounds.

    The first quartile: other programs on the machine only ever add to a time.
    """
    why = unchecked("a probe moves bytes that nobody reads")
    variants = [Variant(call, why, name, repeats(comm, call)) for name, call in calls.items()]
    found = interleaved(comm, variants, iterations=ROUNDS, seconds=math.inf)
    return {name: quartiles(times)[0] for name, times in found.times.items()}


def of_puts(pair: MPI.Intracomm, *, flagged: bool) -> LogGP:
    """Collective over two ranks. What Puts cost; ``o_r`` is zero.

    ``flagged``: as the persistent methods send, into memory of the caller, and a flag after every
    message; the others leave the flushing to the end, and have memory of MPI's.
    """
    with ExitStack() as stack:
        puts = Puts(pair, LONG, stack, allocated=not flagged)
        overhead = puts.overhead()
        times = seconds_of(pair, puts.calls)
        pair.Barrier()
    in_a_row = max(times["puts in a row"] - times["put"], 0.0) / (IN_A_ROW - 1)
    slope = np.polyfit(LONG, [times[f"puts {nbytes}"] for nbytes in LONG], 1)[0]
    return LogGP(
        latency=max(times["put"] - overhead, 0.0) / 2,
        overhead=overhead,
        gap=times["notice"] / WITH_FLAG if flagged else in_a_row,
        byte_gap=max(float(slope), 0.0),
    )


def with_hop(network: LogGP, hop: float) -> LogGP:
    """Local. The same with an ``o_r`` such that a short hop takes so many seconds."""
    known = network.overhead + GAPS * network.gap + network.latency
    return replace(network, waiting=max(hop - known, 0.0))


def persistent_hop(pair: MPI.Intracomm) -> float:
    """Collective over two ranks. Seconds of a short hop of the persistent binomial broadcast."""
    data = np.zeros(SHORT, np.uint8)
    info = {"ranks_per_node": "1"}
    with ExitStack() as stack:
        requests = []
        for root in (0, 1):
            requests.append(Bcast_init(pair, data, root, method=BINOMIAL, info=info))
            stack.callback(requests[-1].Free)

        def to_and_fro() -> None:
            for request in requests:
                request.Start()
                request.Wait()

        return _hop(pair, to_and_fro) / 2


def one_sided_hop(pair: MPI.Intracomm) -> float:
    """Collective over two ranks. Seconds of a short linear broadcast, opened and closed."""
    data = np.zeros(SHORT, np.uint8)
    window = MPI.Win.Allocate(SHORT, 1, comm=pair)
    send = partial(bcast_linear, window, data, 0, 0)
    seconds = _hop(pair, send if pair.rank == 0 else nothing)
    window.Free()
    return seconds


def passive_hop(pair: MPI.Intracomm) -> float:
    """Collective over two ranks. Seconds of a short hop of the passive broadcast."""
    data = np.zeros(SHORT, np.uint8)
    window = MPI.Win.Allocate(2 * SHORT, 1, comm=pair)
    try:
        with OneSidedBroadcast(pair) as runtime:
            wid = runtime.register(window)
            epoch = 0

            def to_and_fro() -> None:
                nonlocal epoch
                epoch += 1
                for root in (0, 1):
                    if pair.rank == root:
                        runtime.bcast(data, wid, root * SHORT, root)
                    else:
                        runtime.wait(wid, epoch, root)

            seconds = _hop(pair, to_and_fro)
            runtime.flush()
    finally:
        window.Free()
    return seconds / 2


def _hop(pair: MPI.Intracomm, call: Call) -> float:
    return seconds_of(pair, {"hop": call})["hop"]


def parameters(
    comm: MPI.Intracomm, partner: int
) -> tuple[dict[str, LogGP], dict[str, str]]:
    """Collective. By method, the network between rank 0 and ``partner``; or why there is none.

    The persistent methods have the one of ``rma-binomial``.
    """
    pair: Any = comm.Split(0 if comm.rank in (0, partner) else MPI.UNDEFINED, comm.rank)
    networks: dict[str, LogGP] = {}
    reasons: dict[str, str] = {}
    if pair != MPI.COMM_NULL:
        flagged, bare = of_puts(pair, flagged=True), of_puts(pair, flagged=False)
        hops: dict[str, tuple[LogGP, Callable[[], float]]] = {
            BINOMIAL: (flagged, partial(persistent_hop, pair)),
            PASSIVE: (bare, partial(passive_hop, pair)),
            ONE_SIDED: (bare, partial(one_sided_hop, pair)),
        }
        for method, (network, hop) in hops.items():
            try:
                networks[method] = with_hop(network, hop())
            except OnesidedError as error:
                reasons[method] = words(error)
        pair.Free()
    comm.Barrier()
    found: tuple[dict[str, LogGP], dict[str, str]] = comm.bcast((networks, reasons))
    return found


@dataclass(frozen=True)
class Forecast:
    """``networks``: parameters by method; ``nodes``: by rank of the job, a number of its node."""

    networks: Mapping[str, LogGP]
    nodes: Sequence[int]

    def time(self, method: str, order: str, ranks: int, nbytes: int) -> float | None:
        """Local. Seconds of a broadcast among the first ``ranks``; None where no model applies."""
        rule = _RULES.get(method)
        network = None if rule is None else self.networks.get(rule.parameters)
        if rule is None or network is None:
            return None
        taking_part = rule.ranks([self._node(rank) for rank in range(ranks)])
        return None if taking_part < 2 else rule.time(network, taking_part, nbytes, order)

    def ratio(
        self, method: str, order: str, other: str, ranks: int, nbytes: int
    ) -> float | None:
        """Local. The time of one over that of another; None where there is no model of both."""
        mine = self.time(method, order, ranks, nbytes)
        theirs = self.time(other, "", ranks, nbytes)
        return None if mine is None or theirs is None else mine / theirs

    def _node(self, rank: int) -> int:
        return self.nodes[rank] if rank < len(self.nodes) else rank


@dataclass(frozen=True)
class _Rule:
    """Whose parameters hold for a method, which formula, and how many ranks it counts."""

    parameters: str
    time: Callable[[LogGP, int, int, str], float]
    ranks: Callable[[Sequence[int]], int]


def _linear(network: LogGP, ranks: int, nbytes: int, order: str) -> float:
    """One message to each rank; opening and closing the epoch is o_r."""
    return linear(network, ranks, nbytes) + network.waiting


def _flagged(network: LogGP, ranks: int, nbytes: int, order: str) -> float:
    """Data and a flag to each rank, and the ranks wait for it actively: o_r, once."""
    return _linear(replace(network, gap=WITH_FLAG * network.gap), ranks, nbytes, order)


_RULES = {
    LINEAR: _Rule(BINOMIAL, _flagged, lambda nodes: 1 + sum(node != nodes[0] for node in nodes)),
    BINOMIAL: _Rule(BINOMIAL, binomial, lambda nodes: len(set(nodes))),
    ONE_SIDED: _Rule(ONE_SIDED, _linear, len),
    PASSIVE: _Rule(PASSIVE, binomial, len),
}


# Where a tree overtakes the linear broadcast: in the sweep, and in the model; no MPI calls.

#: What overtakes what.
PAIRS = {BINOMIAL: LINEAR, PASSIVE: ONE_SIDED}
#: Number of ranks, bytes and name of a variant; seconds.
Times = Mapping[tuple[int, int, str], Sequence[float]]


@dataclass(frozen=True)
class Crossing:
    """From where on one method in an order is not slower than another, in a model and measured.

    ``over`` is ``"bytes"``, and then ``at`` is the number of ranks, or ``"ranks"``, and then it is
    the length in bytes. None: nowhere in the sweep; ``modelled`` is false where no model applies.
    """

    method: str
    order: str
    other: str
    over: str
    at: int
    predicted: float | None
    measured: float | None
    modelled: bool

    @property
    def heading(self) -> str:
        """Local. What is compared."""
        return f"{self.method} {self.order} overtakes {self.other}"

    @property
    def phrase(self) -> str:
        """Local. Where, in words."""
        at = f"on {self.at} ranks" if self.over == "bytes" else f"with {byte_count(self.at)}"
        model = f"model: {self._told(self.predicted)}" if self.modelled else "no model"
        return f"{at}: {self._told(self.measured)} ({model})"

    def _told(self, number: float | None) -> str:
        if number is None:
            return "no crossing"
        told = byte_count(round(number)) if self.over == "bytes" else f"{number:.3g} ranks"
        return f"from {told} on"


def crossings(
    forecast: Forecast,
    entered: Sequence[Entrant],
    sizes: Sequence[int],
    counts: Sequence[int],
    times: Times,
) -> list[Crossing]:
    """Local. Over the bytes for every number of ranks, then over the ranks for every length.

    Only what was timed, the model as well; ``sizes`` and ``counts`` ascend.
    """
    found: list[Crossing] = []
    for each in entered:
        other = PAIRS.get(each.method)
        if other is None:
            continue
        seen = {
            (count, size): ratio(times[count, size, each.name], times[count, size, other])
            for count in counts for size in sizes
            if (count, size, each.name) in times and (count, size, other) in times
        }  # fmt: skip
        model = {place: forecast.ratio(each.method, each.order, other, *place) for place in seen}
        for over, axis, every in (("bytes", 0, counts), ("ranks", 1, sizes)):
            for at in every:
                places = [place for place in seen if place[axis] == at]
                if len(places) <= axis:  # one number of ranks tells nothing about ranks
                    continue
                xs = [place[1 - axis] for place in places]
                known = [value for place in places if (value := model[place]) is not None]
                modelled = len(known) == len(places)
                found.append(Crossing(
                    each.method, each.order, other, over, at,
                    crossing(xs, known) if modelled else None,
                    crossing(xs, [seen[place] for place in places]), modelled,
                ))  # fmt: skip
    return found


def crossing(xs: Sequence[float], ratios: Sequence[float]) -> float | None:
    """Local. From which x on the ratios stay at one or below; None where they do not.

    A single time may be wrong, so the place is the one that disagrees with the fewest ratios.
    Between two neighbors whose ratios lie on both sides of one, it is interpolated in logarithms;
    where the first ratio is below one already it is the first x.
    """
    count = len(xs)
    faster = [ratio <= 1 for ratio in ratios]
    wrong = [sum(faster[:k]) + faster[k:].count(False) for k in range(count + 1)]
    best = min(range(count, -1, -1), key=lambda k: wrong[k])  # the later one of equals
    if best == count:
        return None
    if best == 0:
        return float(xs[0])
    before, after = math.log(ratios[best - 1]), math.log(ratios[best])
    if not before > 0 >= after:
        return float(xs[best])
    share = before / (before - after)
    low, high = math.log(xs[best - 1]), math.log(xs[best])
    return math.exp(low + share * (high - low))
