"""The parameters of LogP and LogGP of this machine, by Puts and ping-pongs between two ranks.

Overhead, latency and the gap per byte are those of bare Puts in a window like that of the method:
``o`` is how long the call takes, ``2 L`` the rest of a short Put that is flushed, and ``G`` the
slope over the length. ``g`` is what another message in a row adds, as the method sends it: a Put
alone, or the half of a Put and a flag that are flushed one after the other. What a rank that waits
adds, ``o_r``, is the rest of a hop: a short broadcast to and fro between the two by the method
itself, so that it holds its software as well. The other ranks meanwhile wait in MPI, as they do in
a broadcast.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.broadcasters import BINOMIAL, ONE_SIDED, PASSIVE
from onesided.apps.failures import words
from onesided.collectives import Bcast_init, OneSidedBroadcast, OnesidedError, bcast_linear
from onesided.collectives.modelling.broadcasts import GAPS
from onesided.collectives.modelling.loggp import LogGP

SHORT = 8  # bytes
LONG = (1 << 16, 1 << 18, 1 << 20)  # bytes, for the slope
IN_A_ROW = 8
WITH_FLAG = 2  # messages that a persistent method sends to one rank: data and flag
ROUNDS = 20
WARM_UP = 5


@dataclass(frozen=True)
class Transport:
    """How a method sends: its window, a short message to one rank, and of how many that counts."""

    window: Callable[[MPI.Intracomm], MPI.Win]
    message: Callable[[MPI.Win, NDArray[np.uint8]], None]
    parts: int


def _over_memory(pair: MPI.Intracomm) -> MPI.Win:
    return MPI.Win.Create(np.zeros(LONG[-1], np.uint8), 1, comm=pair)


def _allocated(pair: MPI.Intracomm) -> MPI.Win:
    return MPI.Win.Allocate(LONG[-1], 1, comm=pair)


def _with_flag(window: MPI.Win, data: NDArray[np.uint8]) -> None:
    _bare(window, data)
    window.Flush(1)
    flag, place = [data[:SHORT], 1, MPI.INT64_T], [0, 1, MPI.INT64_T]
    window.Accumulate(flag, 1, place, MPI.REPLACE)
    window.Flush(1)


def _bare(window: MPI.Win, data: NDArray[np.uint8]) -> None:
    window.Put([data, SHORT, MPI.BYTE], 1, [0, SHORT, MPI.BYTE])


#: The persistent methods flag every message; the others leave the flushing to the end.
PERSISTENT = Transport(_over_memory, _with_flag, WITH_FLAG)
IN_WINDOW = Transport(_allocated, _bare, 1)


def of_puts(pair: MPI.Intracomm, transport: Transport) -> LogGP:
    """Collective over two ranks. What Puts from rank 0 to rank 1 cost; ``o_r`` is zero."""
    window = transport.window(pair)
    network = LogGP(0.0, 0.0, 0.0)
    if pair.rank == 0:
        window.Lock_all()
        network = _measured(window, transport)
        window.Unlock_all()
    pair.Barrier()
    window.Free()
    agreed: LogGP = pair.bcast(network)
    return agreed


def _measured(window: MPI.Win, transport: Transport) -> LogGP:
    """Local, at the origin."""
    data = np.ones(LONG[-1], np.uint8)

    def put(nbytes: int) -> tuple[float, float]:
        """Seconds that the call takes, and until the data are there."""
        began = time.perf_counter()
        window.Put([data, nbytes, MPI.BYTE], 1, [0, nbytes, MPI.BYTE])
        issued = time.perf_counter()
        window.Flush(1)
        return issued - began, time.perf_counter() - began

    def several(count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            transport.message(window, data)
        window.Flush(1)
        return time.perf_counter() - began

    short = [put(SHORT) for _ in range(WARM_UP + ROUNDS)][WARM_UP:]
    overhead = median(call for call, _ in short)
    whole = median(times for _, times in short)
    long = [median(put(nbytes)[1] for _ in range(ROUNDS)) for nbytes in LONG]
    rows, one = (median(several(count) for _ in range(ROUNDS)) for count in (IN_A_ROW, 1))
    return LogGP(
        latency=max(whole - overhead, 0.0) / 2,
        overhead=overhead,
        gap=max(rows - one, 0.0) / (IN_A_ROW - 1) / transport.parts,
        byte_gap=max(float(np.polyfit(LONG, long, 1)[0]), 0.0),
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

        return _half(pair, to_and_fro)


def one_sided_hop(pair: MPI.Intracomm) -> float:
    """Collective over two ranks. Seconds of a short linear broadcast, opened and closed."""
    data = np.zeros(SHORT, np.uint8)
    window = _allocated(pair)
    times = []
    if pair.rank == 0:
        for _ in range(WARM_UP + ROUNDS):
            began = time.perf_counter()
            bcast_linear(window, data, 0, 0)
            times.append(time.perf_counter() - began)
    pair.Barrier()
    window.Free()
    hop: float = pair.bcast(median(times[WARM_UP:]) if times else 0.0)
    return hop


def passive_hop(pair: MPI.Intracomm, timeouts: tuple[float, float]) -> float:
    """Collective over two ranks. Seconds of a short hop of the passive broadcast."""
    data = np.zeros(SHORT, np.uint8)
    waiter, flush = timeouts
    window = MPI.Win.Allocate(2 * SHORT, 1, comm=pair)
    try:
        with OneSidedBroadcast(pair, waiter_timeout=waiter, flush_timeout=flush) as runtime:
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

            half = _half(pair, to_and_fro)
            runtime.flush()
    finally:
        window.Free()
    return half


def _half(pair: MPI.Intracomm, to_and_fro: Callable[[], None]) -> float:
    """Collective over two ranks. Half of the time to and fro."""
    times = []
    pair.Barrier()
    for _ in range(WARM_UP + ROUNDS):
        began = time.perf_counter()
        to_and_fro()
        times.append(time.perf_counter() - began)
    half: float = pair.bcast(median(times[WARM_UP:]) / 2)
    return half


def parameters(
    comm: MPI.Intracomm, partner: int, timeouts: tuple[float, float]
) -> tuple[dict[str, LogGP], dict[str, str]]:
    """Collective. By method, the network between rank 0 and ``partner``; or why there is none.

    The persistent methods have the one of ``rma-binomial``.
    """
    pair: Any = comm.Split(0 if comm.rank in (0, partner) else MPI.UNDEFINED, comm.rank)
    networks: dict[str, LogGP] = {}
    reasons: dict[str, str] = {}
    if pair != MPI.COMM_NULL:
        hops: dict[str, tuple[Transport, Callable[[], float]]] = {
            BINOMIAL: (PERSISTENT, partial(persistent_hop, pair)),
            PASSIVE: (IN_WINDOW, partial(passive_hop, pair, timeouts)),
            ONE_SIDED: (IN_WINDOW, partial(one_sided_hop, pair)),
        }
        bare = {transport: of_puts(pair, transport) for transport in (PERSISTENT, IN_WINDOW)}
        for method, (transport, hop) in hops.items():
            try:
                networks[method] = with_hop(bare[transport], hop())
            except OnesidedError as error:
                reasons[method] = words(error)
        pair.Free()
    comm.Barrier()
    found: tuple[dict[str, LogGP], dict[str, str]] = comm.bcast((networks, reasons))
    return found
