"""The two halves of a face, planned: what a round has to copy, and whom to call.

They are records without methods, because a step of a small block takes no longer than a few calls.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from numpy.typing import NDArray

from onesided.collectives import progress
from onesided.collectives.halo.pieces import Pieces
from onesided.collectives.partitioned.receive import PartitionedReceive
from onesided.collectives.partitioned.send import PartitionedSend
from onesided.collectives.pattern import Box

#: A copy, ``target[...] = source``.
Copy = tuple[NDArray[Any], NDArray[Any]]


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


def mirror_in(box: Box, pieces: Pieces, flags: Flags) -> Incoming:
    """Local. From this rank itself: there when :func:`mirror_out` has copied it."""
    first, stop = flags.take(pieces.count), len(flags.bytes)

    def arrived(piece: int) -> bool:
        return flags.bytes[first + piece] != 0

    def test() -> bool:
        return flags.bytes.find(0, first, stop) < 0

    def wait() -> None:
        while not test():
            for request in list(progress.active):
                request.advance_if_free()
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


def copy_all(copies: Sequence[Copy]) -> None:
    """Local. Carry out prepared copies."""
    for target, source in copies:
        target[...] = source
