"""The persistent broadcast: what all ranks have agreed on, and ``Bcast_init``, where they do."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.lib.format import drop_metadata
from numpy.typing import NDArray

from onesided.collectives.agreement import largest
from onesided.collectives.buffers import Side, simple
from onesided.collectives.context import Context, Resources
from onesided.collectives.errors import PatternError
from onesided.collectives.hints import Hints
from onesided.collectives.initialization import Call, Info, initialize
from onesided.collectives.memory import find_region, hold
from onesided.collectives.pattern import check_root, flat_bytes, pieces
from onesided.collectives.registry import BROADCAST, Method
from onesided.collectives.request import Request
from onesided.collectives.transport import Operation, Transport

#: The elements of a rank that has a mistake to tell.
_NOTHING: NDArray[Any] = np.empty(0, np.uint8)


@dataclass
class Broadcast(Operation):
    """All that a transport needs to know.

    ``array`` is what is sent or written, in one dimension: a part of the caller's memory, or where
    types with holes are packed, which is what ``side`` knows.
    """

    root: int
    array: NDArray[Any]
    side: Side

    @property
    def sent(self) -> Any:
        """The buffer as the caller gave it; what ``Wait`` returns is the same one."""
        return self.side.given

    @property
    def before(self) -> Callable[[], object] | None:
        """Local. What Start does first on the root."""
        return self.side.before

    @property
    def after(self) -> Callable[[NDArray[Any]], object] | None:
        """Local. What is done elsewhere when the data are there."""
        return self.side.after

    def buffers(self) -> list[object]:
        """Local. What must be kept alive as long as the request."""
        return [self.array, self.side.given]

    def elsewhere(self, memory: NDArray[Any], number: int) -> Broadcast:
        """Local. A broadcast in other memory, under a number of its own."""
        blank = Side(memory, memory.shape, memory.dtype, (), memory)
        return replace(self, array=memory, side=blank, number=number)

    @property
    def sends(self) -> bool:
        """True on the root."""
        return self.rank == self.root

    @property
    def nbytes(self) -> int:
        """Bytes that every rank has in the end."""
        return self.array.nbytes

    @property
    def in_window_memory(self) -> bool:
        """True where the buffer comes from :func:`~onesided.collectives.empty`."""
        return find_region(self.array) is not None

    def memory(self) -> NDArray[np.uint8]:
        """Local. The buffer as bytes."""
        return flat_bytes(self.array)

    def pieces(self) -> list[list[Any]]:
        """Local. The buffer as messages, each of which one MPI call can carry."""
        return [[piece, piece.size, MPI.BYTE] for piece in pieces(self.array)]


class BroadcastTransport(Transport):
    """A transport of a broadcast: ``Wait`` returns the caller's buffer."""

    operation: Broadcast

    def __init__(self, operation: Broadcast, resources: Resources) -> None:
        super().__init__(operation, resources)
        hold(resources, operation.array, operation.side.given)
        self.arrays = [operation.array]
        self.answers = [operation.sent]
        self.owns_slots = True  # rounds are counted by themselves, never with those of others

    def watched(self) -> tuple[list[NDArray[Any]], list[list[NDArray[Any]]], np.dtype[Any]]:
        data, byte = [self.operation.memory()], np.dtype(np.uint8)
        return (data, [[]], byte) if self.operation.sends else ([], [data], byte)


def Bcast_init(
    comm: MPI.Comm,
    buf: Any,
    root: int = 0,
    *,
    method: str = "auto",
    info: Info = None,
) -> Request:
    """Collective. A persistent ``MPI_Bcast``: the root's data reach every rank, over and over.

    Parameters
    ----------
    buf
        An array or buffer of one piece, or mpi4py's ``[data, count, type]``; the same number of
        elements and the same dtype on every rank. Types with holes are packed in Start, and
        unpacked when the round is complete. It is bound and kept alive until ``Free``. The
        root's is read from ``Start`` until its ``Wait`` or ``Test`` completes, and may be
        read-only; the others' is written in the same time. In memory from :func:`empty` long data
        are copied once on a node, by all its ranks at the same time, straight out of the buffer.
    root
        The rank whose data are sent; later ``request.operation.root``.
    method
        A name from ``methods("broadcast")``.
    info
        Hints, see :class:`~onesided.collectives.hints.Hints`; unknown keys are ignored.

    Raises
    ------
    PatternError, MethodError, UnsupportedError, ResourceError
        On every rank, with the same words, before anything is started: a root that does not
        exist or differs between ranks, sizes or dtypes that differ, a buffer that is none, has
        gaps, holds Python objects or is read-only on a rank that receives.

    References
    ----------
    ``MPI_Bcast_init`` of MPI-4.1; the methods as named in :mod:`..registry`.

    Examples
    --------
    >>> data = np.arange(3.0) if comm.rank == 0 else np.zeros(3)
    >>> with Bcast_init(comm, data, root=0) as request:
    ...     request.Start()
    ...     request.Wait().tolist()
    [0.0, 1.0, 2.0]
    """

    def read(context: Context, buf: Any) -> tuple[int, Side]:
        origin = check_root(root, context.comm.size)
        spec = simple(buf, 1, "send" if origin == context.comm.rank else "recv")
        return origin, spec.side([origin], [0])

    call = Call("Bcast_init", BROADCAST, read, _match)
    return initialize(call, comm, (buf,), method, info)


def _match(
    found: tuple[int, Side], method: Method, context: Context, hints: Hints,
    before: Broadcast | None,
) -> Broadcast:  # fmt: skip
    """Collective. Every rank must name the same root, number of elements and dtype."""
    root, side = found
    array, error = _NOTHING, None
    try:
        array = _elements(side)
    except Exception as problem:
        error = problem
    if before is None:
        _compare(context.comm, root, array, error)
    else:
        had = before.array
        if error is None and (array.size, array.dtype) != (had.size, had.dtype):
            error = PatternError(
                f"{array.size} elements of {array.dtype}, where request {before.number} has "
                f"{had.size} of {had.dtype}"
            )
        largest(context.comm, error, f"like broadcast {before.number}")
    number = context.next_tag()
    return Broadcast(method.name, method.any_order, context, hints, number, root, array, side)


def _elements(side: Side) -> NDArray[Any]:
    """Local. The elements that travel, in one dimension."""
    array = np.empty(side.shape, side.dtype) if side.array is None else side.array
    return array[side.blocks[0].box] if side.blocks else array[:0]


def _compare(
    comm: MPI.Intracomm, origin: int, array: NDArray[Any], error: Exception | None
) -> None:
    """Collective. Every rank must name the same root, number of elements and dtype."""
    mine = drop_metadata(array.dtype)  # not what the program has noted at it
    words = [origin, array.size, zlib.crc32(repr(mine).encode())]
    most = largest(comm, error, "broadcast", [*words, *(-word for word in words)])
    if [-word for word in most[3:]] == most[:3]:
        return
    everyone = comm.allgather((origin, array.size, mine))
    root = everyone[0][0]
    for rank, (theirs, _, _) in enumerate(everyone):
        if theirs != root:
            raise PatternError(f"rank 0 names root {root}, rank {rank} root {theirs}")
    _, size, dtype = everyone[root]
    for rank, (_, count, kind) in enumerate(everyone):
        if (count, kind) != (size, dtype):
            raise PatternError(
                f"the root, rank {root}, sends {size} elements of {dtype}, "
                f"rank {rank} expects {count} of {kind}"
            )
