"""The arguments of ``Psend_init`` and ``Precv_init``, checked on the rank that gives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.copies import as_bytes
from onesided.collectives.errors import PatternError
from onesided.collectives.partitioned.grouping import Grouping
from onesided.collectives.partitioned.letter import Letter
from onesided.collectives.partitioned.registry import code_of


@dataclass(frozen=True)
class Arguments:
    """What one side was given. ``memory`` is the buffer as bytes, ``given`` that of the caller."""

    given: Any
    memory: NDArray[np.uint8]
    partitions: int
    peer: int
    tag: int
    aggregate: int
    method: str
    code: int

    @property
    def nowhere(self) -> bool:
        """Whether the peer is ``MPI.PROC_NULL``."""
        return self.peer == MPI.PROC_NULL

    @property
    def grouping(self) -> Grouping:
        """The groups that this side would make as the sender."""
        return Grouping.of(self.partitions, self.memory.size, self.aggregate)

    def grouping_with(self, sender: Letter) -> Grouping:
        """The groups of a link: those of the sender."""
        return Grouping.of(sender.partitions, sender.nbytes, sender.aggregate)


def checked(
    comm: MPI.Intracomm, buf: Any, partitions: int, peer: int, tag: int, method: str,
    aggregate: int, writable: bool,
) -> Arguments:
    """Local. The arguments, or :class:`PatternError` (:class:`MethodError` for the method)."""
    code = code_of(method)
    bound = comm.Get_attr(MPI.TAG_UB)
    partitions = _integer("partitions", partitions, 1, 1 << 31)
    tag = _integer("tag", tag, 0, bound if isinstance(bound, int) else 32767)
    aggregate = _integer("aggregate, in bytes,", aggregate, 0, 1 << 62)
    if not isinstance(peer, int | np.integer) or not (
        0 <= peer < comm.size or peer == MPI.PROC_NULL
    ):
        raise PatternError(f"no rank {peer!r} in a communicator of {comm.size}")
    memory, count = _memory_of(buf, writable)
    if count % partitions:
        raise PatternError(f"{partitions} partitions do not divide a buffer of {count} elements")
    return Arguments(buf, memory, partitions, int(peer), tag, aggregate, method, code)


def _integer(name: str, value: Any, lowest: int, highest: int) -> int:
    if not isinstance(value, int | np.integer) or not lowest <= value <= highest:
        raise PatternError(f"{name} must be an integer from {lowest} to {highest}, not {value!r}")
    return int(value)


def _memory_of(buf: Any, writable: bool) -> tuple[NDArray[np.uint8], int]:
    """The bytes of a buffer without a copy, and the number of its elements."""
    try:
        array: NDArray[Any] = buf if isinstance(buf, np.ndarray) else np.asarray(memoryview(buf))
    except (TypeError, ValueError, BufferError) as error:
        raise PatternError(f"no contiguous buffer of numbers: {error}") from error
    if array.dtype.hasobject:
        raise PatternError(f"dtype {array.dtype} holds Python objects, which cannot be sent")
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        raise PatternError("the buffer must be contiguous; send a copy, or its parts")
    if writable and not array.flags.writeable:
        raise PatternError("the receive buffer cannot be written")
    return np.frombuffer(as_bytes(array), np.uint8), array.size
