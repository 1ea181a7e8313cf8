"""The halves of a face whose neighbor is another rank: packed, sent, received, unpacked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.halo.halves import Copy, Incoming, Outgoing, copy_all
from onesided.collectives.halo.pieces import Pieces
from onesided.collectives.partitioned.receive import PartitionedReceive
from onesided.collectives.partitioned.send import PartitionedSend
from onesided.collectives.pattern import Box


class MessageOut(Outgoing):
    """Pieces are packed by the thread that marks them, where they do not lie as they travel."""

    def __init__(
        self, box: Box, pieces: Pieces, face: NDArray[Any], message: NDArray[Any] | None,
        request: PartitionedSend,
    ) -> None:
        """``face``: the box of the array; ``message``: the packed form, None without packing."""
        super().__init__(pieces.within(box))
        self.request = request
        places = None if message is None else pieces.places(message)
        self._copies: list[Copy] | None = None
        self._all: Sequence[Copy] = ()
        if message is not None and places is not None:
            self._copies = list(zip(places, [face[part] for part in pieces.boxes], strict=True))
            whole = pieces.whole(message)
            self._all = self._copies if whole is None else [(whole, face)]
        self._mark: Callable[[int], None] = request.Pready
        self._mark_all: Callable[[], None] = (
            partial(request.Pready, 0) if pieces.count == 1
            else partial(request.Pready_range, 0, pieces.count - 1)
        )

    def start(self) -> None:
        self.request.Start()

    def wait(self) -> None:
        self.request.Wait()

    def test(self) -> bool:
        return self.request.Test()

    def leave(self, piece: int) -> None:
        if self._copies is not None:
            target, source = self._copies[piece]
            target[...] = source
        self._mark(piece)

    def leave_all(self) -> None:
        for target, source in self._all:
            target[...] = source
        self._mark_all()


class MessageIn(Incoming):
    """Pieces are unpacked when somebody asks for them, or at the end, where that is needed."""

    def __init__(
        self, box: Box, pieces: Pieces, face: NDArray[Any], message: NDArray[Any] | None,
        request: PartitionedReceive,
    ) -> None:
        """``face``: the box of the array; ``message``: the packed form, None without unpacking."""
        super().__init__(pieces.within(box))
        self.request = request
        self._face = face if message is None else None
        self._copies: list[Copy] = []
        self._all: Sequence[Copy] = ()
        if message is not None:
            places = pieces.places(message)
            self._copies = list(zip([face[part] for part in pieces.boxes], places, strict=True))
            whole = pieces.whole(message)
            self._all = self._copies if whole is None else [(face, whole)]
        self._done = bytearray(pieces.count)  # pieces that have been unpacked
        self._zeros = bytes(pieces.count)
        self._left = 0  # pieces that have not
        self._lock = threading.Lock()
        self._parrived: Callable[[int], bool] = request.Parrived

    def start(self) -> None:
        if self._copies:
            self._done[:] = self._zeros
            self._left = len(self._done)
        self.request.Start()

    def arrived(self, piece: int) -> bool:
        if not self._copies:
            return self._parrived(piece)
        if not self._done[piece]:
            if not self._parrived(piece):
                return False
            with self._lock:
                self._unpack(piece)
        return True

    def wait(self) -> None:
        self.request.Wait()
        if self._left:
            self._unpack_rest()

    def test(self) -> bool:
        if not self.request.Test():
            return False
        if self._left:
            self._unpack_rest()
        return True

    def saved(self) -> Sequence[Copy]:
        """Local. How what a message would overwrite in the array is restored."""
        return [] if self._face is None else [(self._face, np.copy(self._face))]

    def _unpack(self, piece: int) -> None:
        """Once per round; the caller holds the lock."""
        if not self._done[piece]:
            target, source = self._copies[piece]
            target[...] = source
            self._done[piece] = 1
            self._left -= 1

    def _unpack_rest(self) -> None:
        with self._lock:
            if self._left == len(self._done):
                copy_all(self._all)
                self._done[:] = b"\1" * len(self._done)
                self._left = 0
            for piece in range(len(self._done) if self._left else 0):
                self._unpack(piece)
