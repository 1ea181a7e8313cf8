"""The transport chosen by measurement on the real pattern."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
from mpi4py import MPI

from onesided.collectives import registry
from onesided.collectives.construction import construct
from onesided.collectives.errors import ResourceError, UnsupportedError
from onesided.collectives.exchange import Exchange
from onesided.collectives.request import PersistentRequest

#: Rounds and seconds that one candidate may take, the first rounds not counted.
ROUNDS, SECONDS, WARM_UP = 20, 0.05, 3


class Auto(PersistentRequest):
    """Measures the candidates and becomes the best one.

    Candidates are the methods that allow any order; those of strict order as well where the
    caller promises it (info key ``mpi_assert_strict_persistent_collective_ordering``). With the
    info key ``expected_iterations`` = N the cost T_init + N T of each decides (the break-even rule
    of the paper, equations 1 to 3), without it T alone. Measured on scratch receive memory: the
    caller's is not touched.
    """

    @classmethod
    def build(cls, exchange: Exchange) -> PersistentRequest:
        """Collective. The request of the best transport; all ranks choose the same one."""
        best, best_cost = None, math.inf
        reasons = []
        for method in registry.methods().values():
            if not method.candidate or not (method.any_order or exchange.hints.strict):
                continue
            try:
                cost = _cost(method, exchange)
            except (UnsupportedError, ResourceError) as error:
                reasons.append(f"{method.name}: {error}")
                continue
            if cost < best_cost:
                best, best_cost = method, cost
        if best is None:
            raise UnsupportedError(f"no method works here: {'; '.join(reasons)}")
        return construct(best.load(), replace(exchange, method=best.name))


def _cost(method: registry.Method, exchange: Exchange) -> float:
    """Collective. Seconds per round, or of all expected rounds with initialization; the same
    number on all ranks."""
    comm = exchange.context.comm
    began = time.perf_counter()
    request = construct(method.load(), _scratch(method, exchange))
    init = time.perf_counter() - began
    try:
        times = _rounds(request, comm)
    finally:
        began = time.perf_counter()
        request.Free()
        init += time.perf_counter() - began
    mine = np.array([init, float(np.median(times))])
    comm.Allreduce(MPI.IN_PLACE, mine, MPI.MAX)
    number = exchange.hints.expected_iterations
    return float(mine[0] + number * mine[1]) if number else float(mine[1])


def _rounds(request: PersistentRequest, comm: MPI.Intracomm) -> list[float]:
    """Collective. Times of measured rounds; their number is agreed from the first ones."""
    times: list[float] = []
    total = WARM_UP + 1
    while len(times) < total:
        comm.Barrier()
        began = time.perf_counter()
        request.Start()
        request.Wait()
        times.append(time.perf_counter() - began)
        if len(times) == WARM_UP + 1:
            slowest = comm.allreduce(times[-1], MPI.MAX)
            total += min(ROUNDS, int(SECONDS / max(slowest, 1e-7)))
    return times[WARM_UP:]


def _scratch(method: registry.Method, exchange: Exchange) -> Exchange:
    """The same exchange into other memory of the same kind, under a number of its own."""
    recv, hints = exchange.recv, exchange.hints
    if recv.array is not None:
        if exchange.in_window_memory:
            hints = replace(hints, slots=1)
            recv = replace(recv, array=None)
        else:
            recv = replace(recv, array=np.empty_like(recv.array))
    number = exchange.context.next_tag()
    return replace(exchange, method=method.name, recv=recv, hints=hints, number=number)
