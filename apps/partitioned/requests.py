"""Contestants that send the buffer as one partitioned message: the MPI's own, and ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpi4py import MPI

from onesided.apps.partitioned.runner import Lane, Runner
from onesided.collectives import Precv_init, Psend_init, UnsupportedError


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
    return _runner(lane, request, request.Free)


def ours(method: str, aggregate: int, compiled: bool = True) -> Callable[[Lane], Runner]:
    """Local. What makes a contestant of one of our methods, counting in C where that is built."""
    info = {"compiled": str(compiled)}

    def make(lane: Lane) -> Runner:
        """Local. The handshake comes with the first round, and with it the method's refusal."""
        init: Any = Psend_init if lane.is_sender else Precv_init
        request = init(
            lane.comm, lane.message, lane.partitions, lane.peer, lane.tag,
            method=method, aggregate=aggregate, info=info,
        )
        return _runner(lane, request, request.Free)

    return make


def _runner(lane: Lane, request: Any, free: Callable[[], object]) -> Runner:
    if not lane.is_sender:
        return Runner(request.Start, wait=request.Wait, free=free)
    return Runner(request.Start, request.Pready, request.Pready_range, request.Wait, free)
