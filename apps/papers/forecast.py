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

They predict the paper's own broadcasts: ``passive``, by the tree, and ``one-sided``, which is
linear. The persistent methods share memory inside a node, of which neither model knows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import count
from statistics import median
from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.apps.bench.timing import Call, Variant, interleaved, nothing, repeats, unchecked
from onesided.apps.cli.failures import words
from onesided.apps.cli.statistics import quartiles
from onesided.collectives import OneSidedBroadcast, OnesidedError, bcast_linear
from onesided.collectives.trees import LARGEST_FIRST, children

PASSIVE, ONE_SIDED = "passive", "one-sided"
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

    def length(self, nbytes: int) -> float:
        """Local. Seconds between the first byte of a message and its last: (m - 1)G."""
        return max(nbytes - 1, 0) * self.byte_gap


@cache
def steps(size: int, order: str = LARGEST_FIRST) -> int:
    """Local. Steps until every rank of a binomial tree has the data; each rank serves its children
    one after the other, one in a step."""
    step = [0] * size
    for rank in range(size):  # a parent comes before its children
        for turn, child in enumerate(children(rank, size, 0, order), 1):
            step[child] = step[rank] + turn
    return max(step)


def binomial(network: LogGP, ranks: int, nbytes: int = 1, order: str = LARGEST_FIRST) -> float:
    """Local. Seconds until the root knows that all of two or more ranks have ``nbytes`` bytes. With
    one byte it is the LogP formula of the paper, with more the LogGP one."""
    sent = network.overhead + network.length(nbytes) + GAPS * network.gap
    hop = sent + network.latency + network.waiting  # until a child has seen the request
    return steps(ranks, order) * hop + network.overhead + network.latency


def linear(network: LogGP, ranks: int, nbytes: int = 1, order: str = "") -> float:
    """Local. The same for Puts from the root to one rank after another, who have no order of
    children; what opening and closing take is what waiting takes of the other."""
    others = ranks - 1
    sent = network.overhead + (others - 1) * max(network.gap, network.overhead)
    there = sent + others * network.length(nbytes) + network.latency
    return there + network.overhead + network.latency + network.waiting


#: Which one tells of a method.
FORMULAS = {PASSIVE: binomial, ONE_SIDED: linear}

# The parameters of LogP and LogGP of this machine, by Puts and ping-pongs between two ranks.
#
# Overhead, latency and the gaps are those of bare Puts: ``o`` is how long the call takes, ``2 L``
# the rest of a short Put that is flushed, ``g`` what another one in a row adds, ``G`` the slope
# over the length. What a rank that waits adds, ``o_r``, is the rest of a hop: a short broadcast by
# the method itself, so that it holds its software as well. The other ranks meanwhile wait in MPI,
# as they do in a broadcast.

SHORT = 8  # bytes
IN_A_ROW = 8  # Puts before one flush
ISSUES = 40  # Puts of which the call is timed
LONG = (1 << 16, 1 << 18, 1 << 20)  # bytes, for the slope
ROUNDS = 20


def _overhead(pair: MPI.Intracomm, put: Call, flush: Call) -> float:
    """Collective. Seconds that the call of a short Put takes, by the slower rank."""
    times = []
    for _ in range(ISSUES):
        pair.Barrier()
        began = time.perf_counter()
        put()
        times.append(time.perf_counter() - began)
        flush()
    pair.Barrier()
    slower: float = pair.allreduce(median(times), MPI.MAX)
    return slower


def _seconds_of(comm: MPI.Intracomm, calls: Mapping[str, Call]) -> dict[str, float]:
    """Collective. What each takes, by the slowest rank; all take turns in :data:`ROUNDS` rounds.
    The first quartile: other programs on the machine only ever add to a time."""
    why = unchecked("a probe moves bytes that nobody reads")
    variants = [Variant(call, why, name, repeats(comm, call)) for name, call in calls.items()]
    found = interleaved(comm, variants, iterations=ROUNDS, seconds=math.inf)
    return {name: quartiles(times)[0] for name, times in found.times.items()}


def of_puts(pair: MPI.Intracomm) -> LogGP:
    """Collective over two ranks. What Puts to each other cost; ``o_r`` is zero. Each length has
    memory of its own, so that it finds no more of it in the cache than a method does whose rounds
    alternate with those of others."""
    other, data = 1 - pair.rank, np.ones(max(LONG), np.uint8)
    window = MPI.Win.Allocate(sum(LONG), 1, comm=pair)
    window.Lock_all()

    def put(nbytes: int, place: int = 0) -> None:
        window.Put([data, nbytes, MPI.BYTE], other, [place, nbytes, MPI.BYTE])

    def flushed(nbytes: int, place: int = 0, times: int = 1) -> None:
        for _ in range(times):
            put(nbytes, place)
        window.Flush(other)

    calls: dict[str, Call] = {
        "put": partial(flushed, SHORT), "in a row": partial(flushed, SHORT, times=IN_A_ROW),
    }  # fmt: skip
    for number, nbytes in enumerate(LONG):
        calls[str(nbytes)] = partial(flushed, nbytes, sum(LONG[:number]))
    overhead = _overhead(pair, partial(put, SHORT), partial(window.Flush, other))
    times = _seconds_of(pair, calls)
    window.Unlock_all()
    window.Free()
    slope = np.polyfit(LONG, [times[str(nbytes)] for nbytes in LONG], 1)[0]
    return LogGP(
        latency=max(times["put"] - overhead, 0.0) / 2,
        overhead=overhead,
        gap=max(times["in a row"] - times["put"], 0.0) / (IN_A_ROW - 1),
        byte_gap=max(float(slope), 0.0),
    )


def _one_sided_hop(pair: MPI.Intracomm) -> float:
    """Collective over two ranks. Seconds of a short linear broadcast, opened and closed."""
    window = MPI.Win.Allocate(SHORT, 1, comm=pair)
    send = partial(bcast_linear, window, np.zeros(SHORT, np.uint8), 0, 0)
    seconds = _seconds_of(pair, {"hop": send if pair.rank == 0 else nothing})["hop"]
    window.Free()
    return seconds


def _passive_hop(pair: MPI.Intracomm) -> float:
    """Collective over two ranks. Seconds of a short hop of the passive broadcast."""
    data, epochs = np.zeros(SHORT, np.uint8), count(1)
    window = MPI.Win.Allocate(2 * SHORT, 1, comm=pair)
    try:
        with OneSidedBroadcast(pair) as runtime:
            wid = runtime.register(window)

            def to_and_fro() -> None:
                epoch = next(epochs)
                for root in (0, 1):
                    if pair.rank == root:
                        runtime.bcast(data, wid, root * SHORT, root)
                    else:
                        runtime.wait(wid, epoch, root)

            seconds = _seconds_of(pair, {"hop": to_and_fro})["hop"]
            runtime.flush()
    finally:
        window.Free()
    return seconds / 2


def parameters(comm: MPI.Intracomm, partner: int) -> tuple[dict[str, LogGP], dict[str, str]]:
    """Collective. By method, the network between rank 0 and ``partner``; or why there is none."""
    pair: Any = comm.Split(0 if comm.rank in (0, partner) else MPI.UNDEFINED, comm.rank)
    networks: dict[str, LogGP] = {}
    reasons: dict[str, str] = {}
    if pair != MPI.COMM_NULL:
        network = of_puts(pair)
        sent = network.overhead + GAPS * network.gap + network.latency
        whole = linear(network, 2, SHORT)  # closing an access waits for the answer, too
        hops = ((PASSIVE, _passive_hop, sent), (ONE_SIDED, _one_sided_hop, whole))
        for method, hop, known in hops:
            try:
                networks[method] = replace(network, waiting=max(hop(pair) - known, 0.0))
            except OnesidedError as error:
                reasons[method] = words(error)
        pair.Free()
    comm.Barrier()
    found: tuple[dict[str, LogGP], dict[str, str]] = comm.bcast((networks, reasons))
    return found
