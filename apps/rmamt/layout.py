"""Where messages lie, the same places at origin and target, and whether they came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onesided.apps.rmamt.patterns import Route

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Layout:
    """Slots of neighbours, in them the parts of threads, in these one place for every message.

    No two messages of an epoch share a byte, as MPI demands of concurrent operations.
    """

    slots: int
    threads: int
    messages: int
    size: int

    @property
    def count(self) -> int:
        """Local. Messages in an epoch, of all threads to all neighbours."""
        return self.slots * self.threads * self.messages

    @property
    def nbytes(self) -> int:
        """Local. Of a window, or of the memory at an origin."""
        return self.count * self.size

    @property
    def slot_bytes(self) -> int:
        """Local. What belongs to one neighbour."""
        return self.nbytes // self.slots

    def slot(self, number: int) -> slice:
        """Local. The bytes of one neighbour."""
        return slice(number * self.slot_bytes, (number + 1) * self.slot_bytes)

    def places(self, thread: int) -> list[tuple[int, int]]:
        """Local. The slot and first byte of every message of a thread: neighbours take turns."""
        return [
            (slot, ((slot * self.threads + thread) * self.messages + number) * self.size)
            for number in range(self.messages)
            for slot in range(self.slots)
        ]


def messages_of(wanted: int, slots: int, threads: int, size: int, most: int) -> int:
    """Local. Messages of a thread to a neighbour in an epoch, so that a window has ``most`` bytes.

    One at least.
    """
    return max(1, min(wanted, most // (slots * threads * size)))


PERIOD = 65521  # a prime: no two places of messages have the same bytes


class Content:
    """What the ranks of a cell send: other bytes in every turn, from every rank, at every place."""

    def __init__(self) -> None:
        place = np.arange(PERIOD, dtype=np.uint32)
        mixed = place * np.uint32(2654435761)
        self._pattern: Bytes = (mixed >> np.uint32(24)).astype(np.uint8)

    def of(self, rank: int, turn: int, part: slice) -> Bytes:
        """Local. A new array, for these places."""
        own = self._pattern + np.uint8((37 * rank + 101 * turn + 1) % 256)
        return np.resize(np.roll(own, -(part.start % PERIOD)), part.stop - part.start)


class Memory:
    """The two buffers of a rank, and who writes which slot of the one that receives.

    ``sends`` is what others get or are sent, ``receives`` where data come; ``givers``: by slot, the
    rank whose data come there.
    """

    def __init__(
        self, layout: Layout, sends: Bytes, receives: Bytes, rank: int, givers: Sequence[int]
    ) -> None:
        self._layout, self._rank, self._givers = layout, rank, givers
        self._sends, self._receives = sends, receives
        self._content = Content()

    def fill(self, turn: int) -> None:
        """Local. New data to send, and in the places where data come the opposite of them."""
        for number in range(self._layout.slots):
            part = self._layout.slot(number)
            self._sends[part] = self._content.of(self._rank, turn, part)
        for number, giver in enumerate(self._givers):
            part = self._layout.slot(number)
            np.invert(self._content.of(giver, turn, part), out=self._receives[part])

    def wrong(self, turn: int) -> int:
        """Local. How many messages are not as they should be."""
        found = 0
        for number, giver in enumerate(self._givers):
            part = self._layout.slot(number)
            differs = self._receives[part] != self._content.of(giver, turn, part)
            found += int(differs.reshape(-1, self._layout.size).any(axis=1).sum())
        return found


def givers_of(route: Route, *, getting: bool) -> Sequence[int]:
    """Local. Whose data come to a rank, by slot."""
    return route.outgoing if getting else route.incoming
