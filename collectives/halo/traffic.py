"""The messages of a halo on one rank: planned, made, rehearsed and given back together.

Every face has two *halves*, what leaves and what comes. They are records without methods that say
what a round has to copy and whom to call, because a step of a small block takes no longer than a
few calls.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import progress
from onesided.collectives.agreement import largest
from onesided.collectives.context import Context
from onesided.collectives.copies import Copy
from onesided.collectives.errors import ResourceError
from onesided.collectives.halo.faces import Face
from onesided.collectives.halo.pieces import Pieces
from onesided.collectives.memory import Region, aligned, empty, find_region, free
from onesided.collectives.partitioned.init import Precv_init, Psend_init
from onesided.collectives.partitioned.request import PartitionedReceive, PartitionedSend
from onesided.collectives.pattern import Box


@dataclass(frozen=True)
class Route:
    """A face with the pieces that leave and those that come; None where there is nothing.

    The tags tell the messages of one sender and receiver apart.
    """

    face: Face
    send: Pieces | None
    recv: Pieces | None
    send_tag: int
    recv_tag: int


class Flags:
    """One byte for every piece that leaves, and one for every piece that comes."""

    def __init__(self) -> None:
        self.bytes = bytearray()

    def take(self, count: int) -> int:
        """Local. The first of ``count`` further flags."""
        first = len(self.bytes)
        self.bytes.extend(bytes(count))
        return first


def _nothing(*_: object) -> None:
    """Local. A half without pieces, and one that needs no call."""


@dataclass(eq=False)
class Half:
    """``pieces`` are boxes of the array, ``first`` is the flag of the first one."""

    pieces: tuple[Box, ...] = ()
    first: int = 0
    span: slice = field(init=False)
    ones: bytes = field(init=False)

    def __post_init__(self) -> None:
        self.span = slice(self.first, self.first + len(self.pieces))
        self.ones = b"\1" * len(self.pieces)


@dataclass(eq=False)
class Outgoing(Half):
    """What leaves. A piece is copied, where ``copies`` has any, and then marked; all of them by
    ``whole``."""

    copies: Sequence[Copy] = ()
    whole: Sequence[Copy] = ()
    mark: Callable[[int], None] = _nothing
    mark_all: Callable[[], None] = _nothing
    request: PartitionedSend | None = None


@dataclass(eq=False)
class Incoming(Half):
    """What comes. A piece that has arrived is copied, where ``copies`` has any; then its flag is
    set. ``lock`` guards these copies."""

    copies: Sequence[Copy] = ()
    whole: Sequence[Copy] = ()
    arrived: Callable[[int], bool] = bool
    wait: Callable[[], object] = _nothing
    test: Callable[[], bool] = bool
    request: PartitionedReceive | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


def message_out(
    box: Box, pieces: Pieces, face: NDArray[Any], message: NDArray[Any] | None,
    request: PartitionedSend, flags: Flags,
) -> Outgoing:
    """Local. To another rank: packed into ``message``, or straight from the array without one."""
    copies = [] if message is None else list(
        zip(pieces.places(message), [face[part] for part in pieces.boxes], strict=True)
    )
    whole = None if message is None else pieces.whole(message)
    mark_all: Callable[[], None] = (
        partial(request.Pready, 0) if pieces.count == 1
        else partial(request.Pready_range, 0, pieces.count - 1)
    )
    return Outgoing(
        pieces.within(box), flags.take(pieces.count), copies,
        copies if whole is None else [(whole, face)], request.Pready, mark_all, request,
    )  # fmt: skip


def message_in(
    box: Box, pieces: Pieces, face: NDArray[Any], message: NDArray[Any] | None,
    request: PartitionedReceive, flags: Flags,
) -> Incoming:
    """Local. From another rank: unpacked from ``message``, or straight into the array."""
    copies = [] if message is None else list(
        zip([face[part] for part in pieces.boxes], pieces.places(message), strict=True)
    )
    whole = None if message is None else pieces.whole(message)
    return Incoming(
        pieces.within(box), flags.take(pieces.count), copies,
        copies if whole is None else [(face, whole)], request.Parrived, request.Wait,
        request.Test, request,
    )  # fmt: skip


def mirror_in(box: Box, pieces: Pieces, flags: Flags, probe: Callable[..., object]) -> Incoming:
    """Local. From this rank itself: there when :func:`mirror_out` has copied it."""
    first, stop = flags.take(pieces.count), len(flags.bytes)

    def arrived(piece: int) -> bool:
        return flags.bytes[first + piece] != 0

    def test() -> bool:
        return flags.bytes.find(0, first, stop) < 0

    def wait() -> None:
        while not test():
            progress.drive(probe)
            os.sched_yield()

    return Incoming(pieces.within(box), first, arrived=arrived, wait=wait, test=test)


def mirror_out(
    box: Box, pieces: Pieces, array: NDArray[Any], into: Incoming, flags: Flags
) -> Outgoing:
    """Local. To this rank itself: copied within the array."""
    there, ones = pieces.within(box), b"\1" * pieces.count
    start, stop = into.first, into.first + pieces.count
    copies = [(array[target], array[source])
              for target, source in zip(into.pieces, there, strict=True)]

    def mark(piece: int) -> None:
        flags.bytes[start + piece] = 1

    def mark_all() -> None:
        flags.bytes[start:stop] = ones

    return Outgoing(there, flags.take(pieces.count), copies, copies, mark, mark_all)


@dataclass(frozen=True)
class Transport:
    """How the messages travel: what ``Psend_init`` and ``Precv_init`` are told."""

    method: str
    aggregate: int
    info: Mapping[str, str] | MPI.Info | None


class Traffic:
    """The halves of all faces, in the order of the faces.

    Nothing here knows the :class:`~.exchange.HaloExchange`, so that one that is dropped without
    ``Free`` can be collected while its messages stay valid until Finalize.
    """

    def __init__(
        self, context: Context, array: NDArray[Any], routes: Sequence[Route], transport: Transport
    ) -> None:
        self.context, self.array, self.routes = context, array, routes
        self.options: dict[str, Any] = vars(transport)
        self.outgoing: list[Outgoing] = []
        self.incoming: list[Incoming] = []
        self.sends: list[PartitionedSend] = []
        self.receives: list[PartitionedReceive] = []
        self.flags = Flags()
        self._unpacked = [self._needs_memory(route) for route in routes]
        self._memory: NDArray[np.uint8] | None = None
        self._shared = False

    def allocate(self, comm: MPI.Comm) -> None:
        """Collective. Memory for what is unpacked: where peers on the node can store into it.

        Plain memory where the node has not enough of that.
        """
        wanted = sum(map(self._room, self.routes, self._unpacked))
        if not largest(self.context.comm, None, "memory of a halo", [wanted])[0]:
            return
        try:
            links = sum(self._unpacked)
            self._memory, self._shared = empty(comm, wanted, np.uint8, links=links), True
        except ResourceError:
            self._memory = np.empty(wanted, np.uint8)

    def connect(self) -> None:
        """Local. Make the halves; their requests meet their peers in the first round."""
        start = 0
        mirrors: dict[int, Incoming] = {}
        for route, unpacked in zip(self.routes, self._unpacked, strict=True):
            message = None
            if unpacked and self._memory is not None and route.recv is not None:
                nbytes = route.recv.size * self.array.itemsize
                message = self._memory[start : start + nbytes].view(self.array.dtype)
                start += self._room(route, unpacked)
            self.incoming.append(self._receive(route, message, mirrors))
        for route in self.routes:
            self.outgoing.append(self._send(route, mirrors))

    def rehearse(self) -> None:
        """Collective. A round in which the requests meet their peers; the array is not changed.

        Raises the first error of a request when all of them are at rest.
        """
        direct = [self.array[route.face.recv] for route, half
                  in zip(self.routes, self.incoming, strict=True) if not half.copies]
        saved: list[Copy] = [(face, face.copy()) for face in direct]
        requests = [*self.receives, *self.sends]
        errors: list[Exception] = []
        for request in requests:
            _attempt(request.Start, errors)
        for send in self.sends:
            if send.active:
                _attempt(partial(send.Pready_range, 0, send.partitions - 1), errors)
        for request in requests:
            _attempt(request.Wait, errors)
        for target, source in saved:
            target[...] = source
        if errors:
            raise errors[0]

    def close(self) -> None:
        """Local. Give back the messages, but for those of a round that was never completed."""
        for request in (*self.receives, *self.sends):
            if request.active:  # of a broken round: it may be complete
                with contextlib.suppress(Exception):
                    request.Test()
            if not request.active:
                request.Free()
        for halves in (self.receives, self.sends, self.incoming, self.outgoing):
            halves.clear()

    def give_back(self) -> None:
        """Collective, after :meth:`close`. Free the memory."""
        memory, self._memory = self._memory, None
        if memory is not None and self._shared:
            free(memory)

    # -- inside ----------------------------------------------------------------------------------

    def _receive(
        self, route: Route, message: NDArray[Any] | None, mirrors: dict[int, Incoming]
    ) -> Incoming:
        box, pieces, peer = route.face.recv, route.recv, route.face.rank
        if pieces is None:
            return Incoming()
        face, comm = self.array[box], self.context.comm
        if peer == comm.rank:
            mirrors[route.recv_tag] = mirror_in(box, pieces, self.flags, comm.Iprobe)
            return mirrors[route.recv_tag]
        buffer = pieces.in_memory_order(face) if message is None else message
        request = Precv_init(comm, buffer, pieces.count, peer, route.recv_tag, **self.options)
        self.receives.append(request)
        return message_in(box, pieces, face, message, request, self.flags)

    def _send(self, route: Route, mirrors: dict[int, Incoming]) -> Outgoing:
        box, pieces, peer = route.face.send, route.send, route.face.rank
        if pieces is None:
            return Outgoing()
        face, comm = self.array[box], self.context.comm
        if peer == comm.rank:
            return mirror_out(box, pieces, self.array, mirrors[route.send_tag], self.flags)
        message = None
        if not pieces.as_it_lies(face):
            message = np.zeros(pieces.size, self.array.dtype)
        buffer = pieces.in_memory_order(face) if message is None else message
        request = Psend_init(comm, buffer, pieces.count, peer, route.send_tag, **self.options)
        self.sends.append(request)
        return message_out(box, pieces, face, message, request, self.flags)

    def _needs_memory(self, route: Route) -> bool:
        """True where a message is unpacked, false where it comes straight to its place."""
        if route.recv is None or route.face.rank == self.context.comm.rank:
            return False
        face = self.array[route.face.recv]
        region = find_region(face)
        direct = region is not None and self._sees(route.face.rank, region)
        return not (direct and route.recv.as_it_lies(face))

    def _sees(self, peer: int, region: Region) -> bool:
        """Whether a peer can store into a region, or is not on this node anyway."""
        if peer not in self.context.node().rank_of:
            return True
        there = region.node.comm.Get_group()
        (place,) = MPI.Group.Translate_ranks(self.context.group, [peer], there)
        there.Free()
        return bool(place != MPI.UNDEFINED)

    def _room(self, route: Route, unpacked: bool) -> int:
        """Bytes of memory for a message."""
        if not unpacked or route.recv is None:
            return 0
        return aligned(route.recv.size * self.array.itemsize)


def _attempt(action: Callable[[], object], errors: list[Exception]) -> None:
    try:
        action()
    except Exception as error:
        errors.append(error)
