"""What a decision holds for: the machine, and the class of a pattern."""

from __future__ import annotations

import math
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import numpy as np
from mpi4py import MPI

from onesided.collectives.broadcast.operation import Broadcast
from onesided.collectives.context import Context, Node
from onesided.collectives.exchange import Exchange
from onesided.collectives.hardware import processor


@cache
def machine() -> str:
    """Local. Processor, MPI library, thread level and version of this package."""
    library = MPI.Get_library_version().splitlines()[0].split(",")[0].strip("\x00 ")
    try:
        package = version("onesided")
    except PackageNotFoundError:
        package = "of the sources"
    return f"{processor()}; {library}; thread level {MPI.Query_thread()}; onesided {package}"


def of_exchange(exchange: Exchange) -> str:
    """Collective, the same on all ranks. The class of an exchange.

    The most that a rank sends to others on its node, off it and to itself, in half powers of two,
    the most messages, how far the busiest rank is above the mean, and the kind of receive memory.
    """
    node, rank = exchange.node, exchange.rank
    itemsize = exchange.send.dtype.itemsize
    near, far, own = [], [], 0
    for block in exchange.send.blocks:
        if block.peer == rank:
            own += block.size * itemsize
        elif block.peer in node.rank_of:
            near.append(block.size * itemsize)
        else:
            far.append(block.size * itemsize)
    total = sum(near) + sum(far) + own
    most = np.array([sum(near), sum(far), own, len(near), len(far), total], np.float64)
    mean = np.array([float(total)])
    exchange.context.comm.Allreduce(MPI.IN_PLACE, most, MPI.MAX)
    exchange.context.comm.Allreduce(MPI.IN_PLACE, mean, MPI.SUM)
    mean /= exchange.context.comm.size
    skew = most[5] / mean[0] if mean[0] else 1.0
    memory = "own" if exchange.owned else "window" if exchange.in_window_memory else "plain"
    slots = exchange.hints.slots if exchange.owned else 1
    return (
        f"exchange: {_layout(exchange.context, node)}; {_size(most[0])} in {most[3]:.0f} on the "
        f"node, {_size(most[1])} in {most[4]:.0f} off it, {_size(most[2])} to itself; "
        f"skew {_size(skew)}; {memory}, {slots} slots, {exchange.most_chunks} chunks"
    )


def of_broadcast(broadcast: Broadcast) -> str:
    """Collective, the same on all ranks. The class of a broadcast."""
    inside = broadcast.context.comm.allreduce(broadcast.in_window_memory, MPI.LAND)
    memory = "window" if inside else "plain"
    hints = broadcast.hints
    return (
        f"broadcast: {_layout(broadcast.context, broadcast.node)}; {_size(broadcast.nbytes)}; "
        f"{memory}; {hints.child_order}, segments of {hints.segment_bytes}"
    )


def _layout(context: Context, node: Node) -> str:
    most = context.comm.allreduce(len(node.ranks), MPI.MAX)
    return f"{context.comm.size} ranks, {most} to a node"


def _size(number: float) -> str:
    """A number rounded to a half power of two."""
    return "0" if number <= 0 else f"2^{round(2 * math.log2(number)) / 2:g}"
