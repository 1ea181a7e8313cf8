"""Choosing among methods by the time that their rounds take."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np
from mpi4py import MPI

from onesided.collectives.errors import ResourceError, UnsupportedError
from onesided.collectives.persistent import Persistent
from onesided.collectives.registry import Method

#: Rounds and seconds that one candidate may take, the first rounds not counted.
ROUNDS, SECONDS, WARM_UP = 20, 0.05, 3

R = TypeVar("R", bound=Persistent)


def cheapest(candidates: Iterable[Method[R]], cost: Callable[[Method[R]], float]) -> Method[R]:
    """Collective. The method of the least cost, which must be the same number on all ranks.

    Methods that do not work here are passed over; :class:`UnsupportedError` says why where none
    is left.
    """
    best, best_cost = None, math.inf
    reasons = []
    for method in candidates:
        try:
            this = cost(method)
        except (UnsupportedError, ResourceError) as error:
            reasons.append(f"{method.name}: {error}")
            continue
        if this < best_cost:
            best, best_cost = method, this
    if best is None:
        raise UnsupportedError(f"no method works here: {'; '.join(reasons)}")
    return best


def cost_of(comm: MPI.Intracomm, make: Callable[[], Persistent], iterations: int) -> float:
    """Collective. Seconds per round, or of so many rounds with initialization (0: not known).

    The number is that of the slowest rank, the same on all ranks. The request is freed.
    """
    began = time.perf_counter()
    request = make()
    init = time.perf_counter() - began
    try:
        times = _rounds(request, comm)
    finally:
        began = time.perf_counter()
        request.Free()
        init += time.perf_counter() - began
    mine = np.array([init, float(np.median(times))])
    comm.Allreduce(MPI.IN_PLACE, mine, MPI.MAX)
    return float(mine[0] + iterations * mine[1]) if iterations else float(mine[1])


def _rounds(request: Persistent, comm: MPI.Intracomm) -> list[float]:
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
