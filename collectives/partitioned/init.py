"""``Psend_init`` and ``Precv_init``: local; what they do not know yet, the peer tells later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.buffers import vector
from onesided.collectives.errors import PatternError
from onesided.collectives.hints import Hints
from onesided.collectives.partitioned.channel import AUTO, check_name
from onesided.collectives.partitioned.handshake import (
    RECEIVER,
    SENDER,
    Arguments,
    Matching,
    Parameters,
    Reach,
    reach_of,
)
from onesided.collectives.partitioned.messages import tags_wanted
from onesided.collectives.partitioned.request import PartitionedReceive, PartitionedSend
from onesided.collectives.pattern import as_bytes

#: Bytes that a group holds at least, where partitions are smaller.
AGGREGATE = 65536

Info = Mapping[str, str] | MPI.Info | None


def Psend_init(
    comm: MPI.Intracomm, buf: Any, partitions: int, dest: int, tag: int = 0, *,
    method: str = AUTO, aggregate: int = AGGREGATE, info: Info = None,
) -> PartitionedSend:
    """Local. The sending side of a partitioned send, inactive.

    ``buf``: a contiguous array or buffer of ``partitions`` equal parts, or mpi4py's ``[data,
    count, type]`` and its shorter forms, whose count is that of one partition. Partitions are
    joined to *groups* of at most ``aggregate`` bytes (one partition at least), and a group leaves
    when all its partitions are ready; 0 joins nothing. The sender's value counts. ``method`` is a
    name of :func:`partitioned_methods`, the same on both sides or "auto" on one. Keys of ``info``:
    ``compiled=false`` counts partitions in Python where a compiled counter has been built,
    ``progress=manual`` keeps the progress thread away from this request; others are ignored.

    The receiver calls :func:`Precv_init` with as many bytes of the same type and the same tag, in
    as many partitions as it likes; requests of one pair and tag are matched in the order of their
    initialization, which no other call has to accompany. ``dest`` may be ``MPI.PROC_NULL``.

    Where no collective call of this package, such as :func:`empty`, has been made on ``comm``
    before, messages go over it with tags from the upper half of its range: a program that receives
    with ``MPI.ANY_TAG`` on it, mpi4py's default, gives a duplicate then. ``comm`` and the buffer
    must outlive the request.

    Raises :class:`PatternError` for partitions that do not divide the buffer, a buffer that is not
    contiguous, and tags or ranks out of range, :class:`MethodError` for an unknown method.

    Source: MPI-4.1 section 4.2.1.
    """
    check_name(method)
    matching, hints = Matching.of(comm), Hints.of(info)
    given = checked(comm, buf, partitions, dest, tag, aggregate, SENDER)
    base = matching.take_tags(tags_wanted(given.grouping))
    parameters = _parameters(SENDER, given, base, method, Reach())
    return PartitionedSend(given, matching, parameters, hints)


def Precv_init(
    comm: MPI.Intracomm, buf: Any, partitions: int, source: int, tag: int = 0, *,
    method: str = AUTO, aggregate: int = AGGREGATE, info: Info = None,
) -> PartitionedReceive:
    """Local. The receiving side of a partitioned send, inactive; see :func:`Psend_init`.

    Into a contiguous part of an array from :func:`empty` a sender on the same node stores, which is
    the fastest way, as many receives at a time as the array has links. ``MPI.ANY_SOURCE`` and
    ``MPI.ANY_TAG`` are refused, as by MPI.

    Source: MPI-4.1 section 4.2.1.
    """
    check_name(method)
    matching, hints = Matching.of(comm), Hints.of(info)
    given = checked(comm, buf, partitions, source, tag, aggregate, RECEIVER)
    base = matching.take_tags(1)
    reach, give_back = Reach(), None
    if not given.nowhere:
        reach, give_back = reach_of(comm, given.memory, given.peer)
    parameters = _parameters(RECEIVER, given, base, method, reach)
    return PartitionedReceive(given, matching, parameters, hints, give_back)


def _parameters(
    side: int, given: Arguments, base: int, method: str, reach: Reach
) -> Parameters:
    return Parameters(side, given.tag, given.memory.size, given.kind, given.partitions,
                      given.aggregate, base, method, reach)


# -- the arguments --------------------------------------------------------------------------------


def checked(
    comm: MPI.Intracomm, buf: Any, partitions: int, peer: int, tag: int, aggregate: int, side: int
) -> Arguments:
    """Local. The arguments, or :class:`PatternError`."""
    bound = comm.Get_attr(MPI.TAG_UB)
    partitions = _integer("partitions", partitions, 1, 1 << 31)
    tag = _integer("tag", tag, 0, bound if isinstance(bound, int) else 32767)
    aggregate = _integer("aggregate, in bytes,", aggregate, 0, 1 << 62)
    if not isinstance(peer, int | np.integer) or not (
        0 <= peer < comm.size or peer == MPI.PROC_NULL
    ):
        raise PatternError(f"no rank {peer!r} in a communicator of {comm.size}")
    given, array = _elements(buf, partitions, "send" if side == SENDER else "recv")
    if array.size % partitions:
        raise PatternError(
            f"{partitions} partitions do not divide a buffer of {array.size} elements"
        )
    memory = np.frombuffer(as_bytes(array), np.uint8)
    return Arguments(given, memory, array.dtype.str, partitions, int(peer), tag, aggregate)


def _integer(name: str, value: Any, lowest: int, highest: int) -> int:
    if not isinstance(value, int | np.integer) or not lowest <= value <= highest:
        raise PatternError(f"{name} must be an integer from {lowest} to {highest}, not {value!r}")
    return int(value)


def _elements(buf: Any, partitions: int, role: str) -> tuple[Any, NDArray[Any]]:
    """What the caller passed as data, and the elements that travel, without a copy.

    As in mpi4py, the count of ``[data, count, type]`` is that of one partition.
    """
    spec = buf
    if isinstance(buf, list | tuple) and len(buf) > 1 and isinstance(buf[1], int | np.integer):
        count = _integer("the count of a partition", buf[1], 0, 1 << 62)
        spec = [buf[0], [partitions * count], *buf[2:]]
    read = vector(spec, 1, role)
    return read.given, read.elements()
