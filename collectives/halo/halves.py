"""The two halves of a face: what leaves, and what comes. These lead nowhere; others inherit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from onesided.collectives.pattern import Box

#: A copy, ``target[...] = source``.
Copy = tuple[NDArray[Any], NDArray[Any]]


class Outgoing:
    """The half that sends: pieces leave one by one, or all together."""

    def __init__(self, pieces: Sequence[Box] = ()) -> None:
        """``pieces``: boxes of the array."""
        self.pieces = tuple(pieces)

    def start(self) -> None:
        """Local. Begin a round."""

    def leave(self, piece: int) -> None:
        """Local. Send a piece; once per round, from any thread."""

    def leave_all(self) -> None:
        """Local. Send all pieces of a round in which none has left."""

    def wait(self) -> None:
        """Local. Return when the pieces of the array can be written again."""

    def test(self) -> bool:
        """Local. True when the pieces of the array can be written again."""
        return True


class Incoming:
    """The half that receives: pieces arrive, each in its own time."""

    def __init__(self, pieces: Sequence[Box] = ()) -> None:
        """``pieces``: boxes of the array."""
        self.pieces = tuple(pieces)

    def start(self) -> None:
        """Local. Begin a round."""

    def arrived(self, piece: int) -> bool:
        """Local. True when a piece is in the array."""
        return True

    def wait(self) -> None:
        """Local. Return when all pieces are in the array."""

    def test(self) -> bool:
        """Local. True when all pieces are in the array."""
        return True


def copy_all(copies: Sequence[Copy]) -> None:
    """Local. Carry out prepared copies."""
    for target, source in copies:
        target[...] = source
