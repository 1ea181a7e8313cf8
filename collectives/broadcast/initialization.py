"""``Bcast_init``: everything that needs agreement is checked here, once."""

from __future__ import annotations

import operator
import time
from collections.abc import Mapping
from typing import Any

from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import buffers, debug
from onesided.collectives.agreement import agreed
from onesided.collectives.broadcast import registry
from onesided.collectives.broadcast.operation import Broadcast, compare
from onesided.collectives.broadcast.request import BroadcastRequest
from onesided.collectives.context import Context
from onesided.collectives.errors import PatternError
from onesided.collectives.hints import Hints


def Bcast_init(
    comm: MPI.Comm,
    buf: Any,
    root: int = 0,
    *,
    method: str = "auto",
    info: Mapping[str, str] | MPI.Info | None = None,
) -> BroadcastRequest:
    """Collective. A persistent ``MPI_Bcast``: the root's data reach every rank, over and over.

    Parameters
    ----------
    buf
        An array or buffer of one piece, or mpi4py's ``[data, count, type]``; the same number of
        elements and the same dtype on every rank. It is bound and kept alive until ``Free``. The
        root's is read from ``Start`` until its ``Wait`` or ``Test`` completes, and may be
        read-only; the others' is written in the same time. In memory from :func:`empty` long data
        are copied once on a node, by all its ranks at the same time, straight out of the buffer.
    root
        The rank whose data are sent.
    method
        A name from :func:`broadcast_methods`.
    info
        Hints, see :class:`~onesided.collectives.hints.Hints`; unknown keys are ignored.

    Raises
    ------
    PatternError, MethodError, UnsupportedError, ResourceError
        On every rank, with the same words, before anything is started: a root that does not
        exist or differs between ranks, sizes or dtypes that differ, a buffer that is none, has
        gaps, holds Python objects or is read-only on a rank that receives.

    Source: ``MPI_Bcast_init`` of MPI-4.1; the methods as named in :mod:`.registry`.
    """
    began = time.perf_counter()
    context = Context.of(comm)
    with agreed(context.comm):
        kind = registry.find(method).load()
        hints = Hints.of(info)
        origin = _rank(root, context.comm.size)
        array, given = _message(buf, "send" if origin == context.comm.rank else "recv")
    compare(context, ("Bcast_init", method, hints), origin, array)
    context.node()  # these are collective where they are the first
    context.node(hints.ranks_per_node)
    broadcast = Broadcast(method, context, origin, array, given, hints, context.next_tag())
    request = kind.build(broadcast)
    request.watch = debug.watch(request)
    request.setup_time = time.perf_counter() - began
    return request


def _rank(root: Any, size: int) -> int:
    try:
        number = operator.index(root)
    except TypeError:
        raise PatternError(f"the root is {root!r}, not a rank") from None
    if not 0 <= number < size:
        raise PatternError(f"the root is {number}, the ranks are 0 to {size - 1}")
    return number


def _message(buf: Any, role: str) -> tuple[NDArray[Any], Any]:
    """Local. The elements that travel, in one dimension, and the data as the caller gave them."""
    if isinstance(buf, list | tuple):  # one count and one displacement may be plain numbers
        buf = [_span(part) for part in buf]
    vector = buffers.vector(buf, 1, role)
    start = vector.displs[0]
    return vector.flat[start : start + vector.counts[0]], vector.given


def _span(part: Any) -> Any:
    pair = isinstance(part, tuple) and len(part) == 2
    return ([part[0]], [part[1]]) if pair and all(isinstance(n, int) for n in part) else part
