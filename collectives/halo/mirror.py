"""The halves of a face whose neighbor is this rank itself: one copy within the array."""

from __future__ import annotations

import os
from typing import Any

from numpy.typing import NDArray

from onesided.collectives import progress
from onesided.collectives.halo.halves import Incoming, Outgoing
from onesided.collectives.halo.pieces import Pieces
from onesided.collectives.pattern import Box


class MirrorIn(Incoming):
    """Pieces have come when they have been copied."""

    def __init__(self, box: Box, pieces: Pieces, face: NDArray[Any]) -> None:
        super().__init__(pieces.within(box))
        self.places = [face[part] for part in pieces.boxes]
        self._done = bytearray(pieces.count)
        self._zeros = bytes(pieces.count)

    def start(self) -> None:
        self._done[:] = self._zeros

    def came(self, piece: int) -> None:
        """Local. A piece has been copied."""
        self._done[piece] = 1

    def arrived(self, piece: int) -> bool:
        return self._done[piece] != 0

    def test(self) -> bool:
        return 0 not in self._done

    def wait(self) -> None:
        while 0 in self._done:
            for request in list(progress.active):
                request.advance_if_free()
            os.sched_yield()


class MirrorOut(Outgoing):
    """A mark copies the piece."""

    def __init__(self, box: Box, pieces: Pieces, face: NDArray[Any], into: MirrorIn) -> None:
        super().__init__(pieces.within(box))
        sources = [face[part] for part in pieces.boxes]
        self._copies = list(zip(into.places, sources, strict=True))
        self._came = into.came

    def leave(self, piece: int) -> None:
        target, source = self._copies[piece]
        target[...] = source
        self._came(piece)

    def leave_all(self) -> None:
        for piece in range(len(self._copies)):
            self.leave(piece)
